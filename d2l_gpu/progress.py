"""Curves that grow while a model trains: a figure in a notebook, lines of text in a script."""

import atexit
import base64
import io
import sys
import time
import weakref
from collections import namedtuple

import torch

from .palette import COLORS, INK, PAPER

Point = namedtuple("Point", ["x", "y"])

DRAW_SECONDS = 0.25   # at most one drawing in this time,
DRAW_SHARE = 10       # and in ten times the time that one takes: drawing costs a tenth of the whole at most
FETCH_SECONDS = 5     # numbers on a device are fetched for a drawing after this time, or when flush() asks

_unfinished = weakref.WeakSet()  # boards with points that are not on the screen yet
_hooked = set()  # where this process has been asked to draw them: an IPython shell, or the exit of the script


class ProgressBoard:
    """Curves of `(x, y)` points, one for each label, drawn while they grow.

    In a notebook it is one figure under the cell, replaced as it grows, which ends as a PNG; in a script and in
    a terminal it is lines of text. The attributes are the arguments and may change at any time: `xlabel`,
    `ylabel`, the limits `xlim` and `ylim` (pairs), the scales `xscale` and `yscale` ("linear", "log", ...), the
    line styles `ls` and `colors` that the curves take in turn, `figsize` in inches, `fig` and `axes` of
    matplotlib (`axes` you give are drawn on, in a script too), and `display`: False keeps the points and shows
    nothing.

    Differs from d2l.torch's `ProgressBoard`: drawing takes time proportional to the points (there, to the square
    of the drawings), a fifth curve is not dropped, `xlabel` is not needed, and a tensor stays on its device until
    it is drawn.
    """

    def __init__(self, xlabel=None, ylabel=None, xlim=None, ylim=None, xscale="linear", yscale="linear",
                 ls=["-", "--", "-.", ":"], colors=COLORS, fig=None, axes=None, figsize=(3.5, 2.5), display=True):
        self.xlabel, self.ylabel, self.xlim, self.ylim = xlabel, ylabel, xlim, ylim
        self.xscale, self.yscale, self.ls, self.colors = xscale, yscale, ls, colors
        self.fig, self.axes, self.figsize, self.display = fig, axes, figsize, display
        self._data = {}  # label -> [Point, ...]
        self._lines = {}  # label -> matplotlib's line
        self._handle, self._news = None, False  # the display in the notebook; whether it lacks points
        self.clear()

    def clear(self, after=None):
        """Forget all points, or those with x greater than `after`; what comes next is drawn anew."""
        self.finish()
        self.raw_points = {}  # label -> [(x, y), ...] that await their mean
        self._pending = []  # (label, x, [y, ...]) whose mean is still to be taken; each y a number or a tensor
        self._shown_at = self._cost = 0.0  # when the last drawing ended, and the seconds it took
        kept = {} if after is None else self._data
        kept = {label: [point for point in points if point.x <= after] for label, points in kept.items()}
        self._data = {label: points for label, points in kept.items() if points}
        for line in self._lines.values():
            line.remove()
        self._lines = {}

    def draw(self, x, y, label, every_n=1):
        """Add the point (x, y) to the curve `label`; every `every_n` points are drawn as one, their mean
        (each by itself if that is 0 or 1).

        `y` is a number or a tensor with one element, on any device and with or without a gradient; a tensor is
        copied where it is, and fetched later. Drawing is put off while the last one is recent; the end of the
        cell, of the script and of a fit draw what is left, and so does `show()`.

        Raises ValueError if `y` has more than one element.
        """
        if isinstance(y, torch.Tensor):
            if y.numel() != 1:
                raise ValueError(f"a point of {label!r} is one number, not a tensor of shape {tuple(y.shape)}: "
                                 "take its mean first")
            y = y.detach().clone()  # what the caller does to it later must not change the curve
            patience = FETCH_SECONDS
        else:
            y, patience = float(y), DRAW_SECONDS
        group = self.raw_points.setdefault(label, [])
        group.append((x, y))
        if len(group) < every_n:
            return
        self._pending.append((label, sum(float(x) for x, _ in group) / len(group), [y for _, y in group]))
        group.clear()
        self._has_news()
        if self.display and self._due(patience):
            self.show()

    @property
    def data(self):
        """The points as {label: [Point(x, y), ...]}, numbers all; those still on a device are fetched, together."""
        self._collect()
        return self._data

    def _collect(self):
        numbers = iter(_fetch([y for _, _, ys in self._pending for y in ys if isinstance(y, torch.Tensor)]))
        points = [(label, Point(x, sum(next(numbers) if isinstance(y, torch.Tensor) else y for y in ys) / len(ys)))
                  for label, x, ys in self._pending]
        self._pending = []
        for label, point in points:
            self._data.setdefault(label, []).append(point)

    def flush(self):
        """Fetch the points that are on a device, in one wait, and draw them if the last drawing is not too recent."""
        self._collect()
        if self.display and self._due(DRAW_SECONDS):
            self.show()

    def show(self):
        """Fetch and draw all points now."""
        self._collect()
        if not self._data or not self.display:
            return
        start = time.monotonic()
        if self.axes is not None or _in_notebook():
            self._draw_figure()
        else:
            self._print_line()
        self._news = False
        self._shown_at = time.monotonic()
        self._cost = self._shown_at - start

    def finish(self):
        """Draw what is not drawn yet; the next point starts a new display, in the cell that is running then."""
        if self._news:
            self.show()
        self._handle = None

    def _has_news(self):
        if not self._news:
            self._news = True
            self._shown_at = self._shown_at or time.monotonic()
            _unfinished.add(self)
            _finish_at_the_end()

    def _due(self, patience):
        return self._news and time.monotonic() - self._shown_at >= max(patience, DRAW_SHARE * self._cost)

    # ----------------------------------------------------------------------------------- how it looks
    def _print_line(self):
        x = max(points[-1].x for points in self._data.values())
        values = ", ".join(f"{label} {points[-1].y:.4g}" for label, points in self._data.items())
        line = f"{self.xlabel or 'x'} {round(x, 2):g}: {values}"
        tqdm = sys.modules.get("tqdm")
        (tqdm.tqdm.write if tqdm else print)(line)  # a progress bar moves out of the way

    def _draw_figure(self):
        try:
            axes = self._update_axes()
        except ImportError:
            return self._print_line()
        if not _in_notebook():
            return
        from IPython.display import display
        png = _png(axes.figure)
        bundle = {"image/png": base64.b64encode(png).decode(), "text/plain": f"curves against {self.xlabel or 'x'}"}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)

    def _update_axes(self):
        """The axes with every curve on them: each keeps one line, which gets the points it has now."""
        axes = self.axes if self.axes is not None else self._own_axes()
        if any(line.axes is not axes for line in self._lines.values()):
            self._lines = {}
        for label, points in self._data.items():
            if label not in self._lines:
                i = len(self._lines)  # after one round of colors the styles move on by one: no two curves look the same
                style = self.ls[(i + i // len(self.colors)) % len(self.ls)]
                color = self.colors[i % len(self.colors)]
                self._lines[label], = axes.plot([], [], linestyle=style, color=color, label=label)
            self._lines[label].set_data(*zip(*points))
            self._lines[label].set_marker("o" if len(points) == 1 else "")  # one point makes no line
        wanted = {name: getattr(self, name) for name in ("xscale", "yscale", "xlabel", "ylabel", "xlim", "ylim")}
        axes.relim()
        axes.autoscale_view()
        axes.set(**{name: value for name, value in wanted.items() if value is not None})
        many = sum(map(len, self._data.values())) > 10_000  # to find the best place takes long then
        place = {"loc": "upper right" if many else "best"}
        if len(self._lines) > 4:
            place = {"loc": "upper left", "bbox_to_anchor": (1.02, 1)}  # beside the axes
        axes.legend(fontsize="small", facecolor=PAPER, labelcolor=INK, **place)
        return axes

    def _own_axes(self):
        if self.fig is None:
            from matplotlib.figure import Figure  # not pyplot: no window, and no second copy of the figure
            self.fig = Figure(figsize=self.figsize, facecolor=PAPER, layout="constrained")
        if not self.fig.axes:
            axes = self.fig.add_subplot(facecolor=PAPER)
            axes.tick_params(colors=INK)
            axes.xaxis.label.set_color(INK)
            axes.yaxis.label.set_color(INK)
            axes.grid(alpha=0.3)
        return self.fig.axes[0]


def _fetch(tensors):
    """The values of tensors with one element each, in one copy and one wait for each device they are on."""
    with torch.no_grad():
        values = {device: iter(torch.stack([t.reshape(()) for t in tensors if t.device == device]).tolist())
                  for device in {t.device for t in tensors}}
    return [float(next(values[t.device])) for t in tensors]


def _png(figure, limit=100_000):
    """The figure as a PNG of less than `limit` bytes: sharp on dense screens, or coarser where it would be larger."""
    for dpi in (200, 130, 80, 50):
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=dpi, metadata={"Software": None})
        if file.tell() < limit:
            break
    return file.getvalue()


def _shell():
    """The IPython shell that runs this code, or None."""
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


def _in_notebook():
    return getattr(_shell(), "kernel", None) is not None


def _finish_at_the_end():
    """Have the boards drawn at the end of the running cell, or of the script."""
    shell = _shell()
    if id(shell) in _hooked:
        return
    _hooked.add(id(shell))
    if shell is None:
        atexit.register(_finish_all)
    else:
        shell.events.register("post_run_cell", _finish_all)


def _finish_all(_result=None):
    for board in list(_unfinished):
        _unfinished.discard(board)
        board.finish()
