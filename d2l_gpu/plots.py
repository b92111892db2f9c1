"""Pictures of what machines measured, side by side; matplotlib is imported when one is drawn."""

import io
import textwrap

from . import results
from .palette import COLORS, INK, PAPER, SOFT
from .progress import _png

#: Which key of a measurement's setting is the horizontal axis of a part that is drawn as lines, and its label.
_SWEEPS = {"products": ("size", "rows and columns of the matrices"), "copies": ("bytes", "size in bytes"),
           "training steps": ("batch", "examples in a batch")}

_PASS = 60_000  # images in a pass of the ladder


def draw_results(part, machines=None, this=None, bounds=None):
    """Draw one part of the records of several machines: "products", "copies" and "training steps" as lines over the
    size, any other part (such as "ladder") as points, one panel a machine. Times are in seconds on a logarithmic axis,
    those of the ladder for 60,000 images: a pass over fewer is scaled, and says from how many.

    `machines` is a list of records (by default all that come with the book, published ones last), `this` a list of
    measurements taken here (`results.entry`), drawn first as "this machine". Published figures are marked so. `bounds` is a
    dict of a machine's name and the least seconds by arithmetic: below its points, and a dashed line through them.
    Returns matplotlib's figure, which a notebook shows. Raises ValueError if no record has that part, ImportError
    without matplotlib.
    """
    machines = results.read_all() if machines is None else list(machines)
    if this:
        machines.insert(0, {"machine": "this machine", "published": None, "measurements": list(this)})
    drawn = [(_title(m), rows) for m in machines
             if (rows := [e for e in results.find(m, part) if e["unit"] == "s" and e["median"] > 0])]
    if not drawn:
        raise ValueError(f"no machine has measured {part!r}; measure this one: python -m d2l_gpu.record")
    return _lines(part, drawn, *_SWEEPS[part]) if part in _SWEEPS else _dots(part, drawn, bounds)


def _title(machine):
    return f"{machine['machine']} (published)" if machine["published"] else machine["machine"]


#: So narrow that 11 points can still be read when a phone shrinks a picture to its width.
_NARROW = {"width": 5.2, "points": 11}


def _figure(columns, width, height, heights=(1,), points=9):
    from matplotlib.figure import Figure  # no pyplot: nothing is left open, and no backend is chosen

    class Picture(Figure):
        def _repr_png_(self):  # what a notebook asks for
            for limit in (400_000, 250_000, 100_000):  # before its colors are reduced, which leaves about a third
                png = _in_few_colors(_png(self, limit))
                if len(png) < 100_000:
                    break
            return png

    figure = Picture(figsize=(width, height), facecolor=PAPER, layout="constrained")
    axes = list(figure.subplots(len(heights), columns, squeeze=False, height_ratios=heights).flat)
    for ax in axes:
        ax.set_facecolor(PAPER)
        ax.spines[["top", "right"]].set_visible(False)
        ax.spines[["left", "bottom"]].set_color(SOFT)
        ax.tick_params(colors=INK, which="both", labelsize=points)
        for label in (ax.xaxis.label, ax.yaxis.label):
            label.set(color=INK, fontsize=points)
    return figure, axes


def _in_few_colors(png):
    """The picture with a palette of 64 colors: a third of the bytes, so that it can be sharp on dense screens."""
    from PIL import Image
    file = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(file, "PNG", optimize=True)
    return file.getvalue()


def _lines(part, drawn, key, label):
    lines = {}
    for title, rows in drawn:
        for row in rows:
            if key in row["setting"]:
                dtype = row["setting"].get("dtype", "float32")
                width = f", width {row['setting']['width']}" if "width" in row["setting"] else ""
                name = f"{row['name']}{width}{f', {dtype}' * (dtype != 'float32')}: {row['device']}, {title}"
                lines.setdefault(name, []).append((row["setting"][key], row["median"], row["spread"]))
    figure, (ax,) = _figure(1, height=3.4 + 0.24 * len(lines), **_NARROW)
    ax.set(xscale="log", yscale="log", xlabel=label, ylabel="time (s)")
    drawn = []
    for k, (name, points) in enumerate(lines.items()):
        points, color = sorted(points, key=lambda p: p[:2]), COLORS[k % len(COLORS)]
        x, y = [p[0] for p in points], [p[1] for p in points]
        drawn += ax.plot(x, y, marker="o", markersize=4, color=color, label=textwrap.fill(name, 58),
                         markerfacecolor=PAPER if "(published)" in name else color)
        spread = [p for p in points if p[2]]
        ax.vlines([p[0] for p in spread], [p[2][0] for p in spread], [p[2][1] for p in spread], color=color, alpha=0.6)
    ax.grid(True, which="major", color=SOFT, alpha=0.2)
    drawn.sort(key=lambda line: -line.get_ydata()[-1])  # the names in the order of the lines' ends
    _key(figure, drawn, labelcolor=[line.get_color() for line in drawn])
    return figure


def _key(figure, lines, **options):
    """Name the lines under the drawing, where names have room however close the lines are."""
    figure.legend(handles=lines, loc="outside lower left", frameon=False, fontsize=_NARROW["points"], handlelength=1.4, **options)


def _dots(part, drawn, bounds):
    if part == "ladder":
        drawn = [_for_a_pass(title, rows) for title, rows in drawn]
    drawn = _with_bounds(drawn, bounds)
    every = [row["median"] for _, rows in drawn for row in rows]
    names = [list(dict.fromkeys(map(_row, rows))) for _, rows in drawn]
    figure, axes = _figure(1, height=0.5 + 0.4 * sum(map(len, names)) + 0.7 * len(drawn), heights=[len(n) + 0.15 for n in names],
                           **_NARROW)
    for ax, (title, rows), names in zip(axes, drawn, names):
        ax.set(xscale="log", ylim=(0.6, len(names) + 0.75), xlim=(min(every) / 1.4, max(every) * 1.4), yticks=[])
        ax.spines["left"].set_visible(False)
        ax.set_title("\n".join(textwrap.wrap(title, 46)), fontsize=12, color=INK, loc="left", weight="bold")
        for k, name in enumerate(names):  # its name over a line, with the time at the other end, and the point on the line
            same = [row for row in rows if _row(row) == name]
            for row in same:
                _dot(ax, row, len(names) - k, "(published)" in title)
            for x, align, words in ((0, "left", name), (1, "right", " / ".join(map(_words, same)))):
                ax.text(x, len(names) - k + 0.14, words, transform=ax.get_yaxis_transform(), fontsize=_NARROW["points"], color=INK,
                        ha=align, zorder=1, bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1})
    axes[-1].set_xlabel(f"time of a pass over {_PASS:,} images (s)" if part == "ladder" else "time (s)")
    return figure


def _dot(ax, row, y, hollow):
    bound, color = row.get("bound", False), COLORS[1 if row.get("bound") else 0]
    ax.axhline(y, color=SOFT, alpha=0.2, linewidth=1)
    if bound:
        ax.axvline(row["median"], color=color, linestyle="--", linewidth=1.2, zorder=0)
    if row["spread"]:
        ax.plot(row["spread"], [y, y], color=color, linewidth=2)
    ax.plot(row["median"], y, "D" if bound else "o", color=color, zorder=4, markerfacecolor=PAPER if hollow or bound else color)


def _words(row):
    return results.format_time(row["median"]) + (f", {n} workers" if (n := row["setting"].get("workers")) else "")


def _with_bounds(drawn, bounds):
    """A bound is a row in its machine's panel; those of machines that measured nothing have a panel of their own."""
    bounds = dict(bounds or {})

    def row(name, seconds):
        return {"name": name, "median": seconds, "spread": None, "setting": {}, "bound": True}

    panels = []
    for title, rows in drawn:
        mine = [name for name in bounds if title == name or title.startswith((f"{name} (", f"{name}, from"))]
        panels.append((title, rows + [row("bound on paper, arithmetic", bounds.pop(name)) for name in mine]))
    if bounds:
        panels.append(("on paper: arithmetic, nothing measured", [row(f"bound of {name}", bounds[name]) for name in bounds]))
    return panels


def _for_a_pass(title, rows):
    """The ladder's rows as they would be for 60,000 images at the same rate; the title says it if they were far fewer."""
    images = [row["setting"].get("images", _PASS) for row in rows]
    scaled = [row | {"median": row["median"] * _PASS / n, "spread": row["spread"] and [s * _PASS / n for s in row["spread"]]}
              for row, n in zip(rows, images)]
    return title + (f", from {min(images):,} images" if min(images) < 0.9 * _PASS else ""), scaled


def _row(row):
    extra = [str(row["setting"][key]) for key in ("dtype", "size") if key in row["setting"]]
    return row["name"] + (f" ({', '.join(extra)})" if extra else "")


def draw_roofline(roofs, points=None):
    """Draw how many operations a second machines can do at most, by how many they do for each byte of memory traffic.

    `roofs` is a dict of a machine's name and its pair (peak in FLOP/s, bandwidth in bytes/s); with "(published)" in the
    name the roof is dashed. `points` is a dict of a machine's name and a dict {operation: (FLOP per byte, FLOP/s)} of
    what was measured there: numbers in the color of that machine's roof, with the operations' names below.
    Returns matplotlib's figure, which a notebook shows. Raises ImportError without matplotlib.
    Source: Williams, Waterman, Patterson, Roofline (2009).
    """
    measured = [at for of in (points or {}).values() for at in of.values()]
    operations = list(dict.fromkeys(operation for of in (points or {}).values() for operation in of))
    rows = -(-(len(roofs) + len(operations)) // 2)
    figure, (ax,) = _figure(1, height=3.6 + 0.22 * rows, **_NARROW)
    left, right = min([0.05, *(x / 2 for x, _ in measured)]), max([1000, *(x * 4 for x, _ in measured)])
    ax.set(xscale="log", yscale="log", xlabel="arithmetic intensity (FLOP per byte)", ylabel="rate (FLOP/s)", xlim=(left, right))
    lines = []
    for k, (name, (peak, bandwidth)) in enumerate(roofs.items()):
        color, ridge = COLORS[k % len(COLORS)], peak / bandwidth
        lines += ax.plot([left, ridge, right], [left * bandwidth, peak, peak], color=color, label=name,
                         ls="--" if "(published)" in name else "-")
        for operation, at in (points or {}).get(name, {}).items():
            ax.plot(*at, "o", color=color, markersize=13)
            ax.annotate(operations.index(operation) + 1, at, ha="center", va="center_baseline", color=PAPER, fontsize=10)
    for k, operation in enumerate(operations):
        lines += ax.plot([], [], ls="", marker=f"${k + 1}$", markersize=9, color=INK, label=operation)
    ax.grid(True, which="major", color=SOFT, alpha=0.2)
    _key(figure, lines, ncols=2, labelcolor=INK)
    return figure
