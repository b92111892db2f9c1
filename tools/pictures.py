"""Draw the book's SVG pictures into chapters/img/: `python tools/pictures.py`.

One visual language for all of them: the palette, the type and the shapes below. A picture is 480 units wide, so
that 16-unit text is still legible on a phone, and brings its own background, so that it reads in light and dark.
"""

from pathlib import Path

IMAGES = Path(__file__).parents[1] / "chapters" / "img"

WIDTH = 480
PAPER, INK, SOFT = "#fbfaf7", "#1f2933", "#52606d"
HOST, HOST_FILL = "#2b5c8a", "#d6e6f5"        # the CPU and main memory: blue
CARD, CARD_FILL = "#276749", "#d3ecdf"        # a GPU and its memory: green
MOVE = "#b7471d"                              # copies and waits: orange


def text(x, y, content, size=16, anchor="middle", color=INK, weight="normal"):
    return (f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{color}" '
            f'font-weight="{weight}">{content}</text>')


def box(x, y, width, height, stroke, fill, radius=6):
    return (f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{radius}" '
            f'fill="{fill}" stroke="{stroke}" stroke-width="2"/>')


def save(name, height, title, *shapes):
    """Write one picture; `title` is what a screen reader says."""
    body = "\n".join(shapes)
    (IMAGES / name).write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'font-family="Helvetica, Arial, sans-serif">\n<title>{title}</title>\n'
        f'<rect width="{WIDTH}" height="{height}" rx="10" fill="{PAPER}"/>\n{body}\n</svg>\n', encoding="utf-8")


def latency_throughput():
    shapes = [text(122, 34, "CPU", 20, weight="bold", color=HOST), text(358, 34, "GPU", 20, weight="bold", color=CARD),
              box(22, 48, 200, 176, HOST, "#ffffff"), box(258, 48, 200, 176, CARD, "#ffffff")]
    for k in range(4):
        x, y = 34 + 90 * (k % 2), 58 + 50 * (k // 2)
        shapes += [box(x, y, 86, 44, HOST, HOST_FILL), text(x + 43, y + 28, "core")]
    shapes += [box(34, 158, 176, 56, SOFT, "#e9edf1"), text(122, 191, "cache")]
    for row in range(8):
        for column in range(13):
            shapes.append(f'<rect x="{268 + 14 * column}" y="{58 + 14 * row}" width="11" height="11" rx="2" '
                          f'fill="{CARD_FILL}" stroke="{CARD}" stroke-width="1"/>')
    shapes += [box(268, 178, 180, 36, SOFT, "#e9edf1"), text(358, 201, "cache"),
               text(22, 256, "One task:", anchor="start", weight="bold"),
               text(22, 326, "Many tasks in the same time:", anchor="start", weight="bold")]
    shapes += [box(22, 268, 60, 22, HOST, HOST_FILL, 3), text(92, 285, "done soon", anchor="start", color=HOST),
               box(258, 268, 110, 22, CARD, CARD_FILL, 3), text(378, 285, "later", anchor="start", color=CARD)]
    for row in range(4):
        for k in range(3):
            shapes.append(f'<rect x="{22 + 62 * k}" y="{340 + 14 * row}" width="58" height="10" rx="2" fill="{HOST_FILL}" '
                          f'stroke="{HOST}" stroke-width="1"/>')
    for k in range(20):
        shapes.append(f'<rect x="258" y="{340 + 5.2 * k:.1f}" width="110" height="3.4" fill="{CARD_FILL}" '
                      f'stroke="{CARD}" stroke-width="0.8"/>')
    shapes += [text(378, 398, "far more", anchor="start", color=CARD), text(22, 420, "a few", anchor="start", color=HOST)]
    save("latency-throughput.svg", 456, "A CPU has a few large cores and a large cache: one task is done soon. A GPU has "
         "many small units: one task takes longer, but many are done together.", *shapes)


if __name__ == "__main__":
    IMAGES.mkdir(parents=True, exist_ok=True)
    latency_throughput()
