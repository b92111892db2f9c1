"""Draw the book's SVG pictures into chapters/img/: `python tools/pictures.py`.

One visual language for all of them: the palette (d2l_gpu/palette.py), the type and the shapes below. A picture is 480 units wide, so
that 16-unit text is still legible on a phone, and brings its own background, so that it reads in light and dark.
"""

import runpy
from pathlib import Path
from types import SimpleNamespace

IMAGES = Path(__file__).parents[1] / "chapters" / "img"

WIDTH = 480
palette = SimpleNamespace(**runpy.run_path(IMAGES.parents[1] / "d2l_gpu" / "palette.py"))
PAPER, INK, SOFT, MOVE = palette.PAPER, palette.INK, palette.SOFT, palette.MOVE
HOST, HOST_FILL, CARD, CARD_FILL = palette.HOST, palette.HOST_FILL, palette.CARD, palette.CARD_FILL


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


def arrow(x1, y1, x2, y2, color=MOVE):
    return (f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{color}" stroke-width="2.5" '
            f'marker-end="url(#head-{color[1:]})"/>')


def heads(*colors):
    """Arrow heads for `arrow`, one for each color used."""
    return "<defs>" + "".join(
        f'<marker id="head-{c[1:]}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
        f'orient="auto-start-reverse"><path d="M0 0 L10 5 L0 10 z" fill="{c}"/></marker>' for c in colors) + "</defs>"


def grid(x, y, rows, columns, stroke, fill, size=26):
    """A tensor: `rows` by `columns` cells."""
    return "".join(f'<rect x="{x + size * c:g}" y="{y + size * r:g}" width="{size}" height="{size}" fill="{fill}" '
                   f'stroke="{stroke}" stroke-width="1.5"/>' for r in range(rows) for c in range(columns))


def memory_spaces():
    shapes = [heads(MOVE, INK), box(20, 20, 440, 132, HOST, HOST_FILL),
              text(36, 46, "cpu: all cores, main memory", anchor="start", weight="bold", color=HOST),
              box(36, 62, 186, 74, HOST, "#ffffff"), text(48, 84, "the Python object X", 15, "start"),
              text(48, 104, "shape, dtype, device", 14, "start", SOFT), text(48, 124, "a pointer", 14, "start", SOFT),
              grid(312, 74, 2, 3, HOST, "#ffffff"), text(351, 146, "a CPU tensor", 13, color=SOFT)]
    for i, x in enumerate((20, 250)):
        shapes += [box(x, 232, 210, 128, CARD, CARD_FILL),
                   text(x + 14, 348, f"cuda:{i}: a card, its memory", 14, "start", CARD, "bold")]
    shapes += [grid(40, 250, 2, 3, CARD, "#ffffff"), text(128, 282, "the bytes of X", 14, "start"),
               f'<path d="M52 136 L52 244" stroke="{INK}" stroke-width="2" stroke-dasharray="5 4" fill="none" '
               f'marker-end="url(#head-{INK[1:]})"/>',
               arrow(150, 226, 150, 158), arrow(150, 158, 150, 226), arrow(350, 226, 350, 158), arrow(350, 158, 350, 226),
               text(250, 186, "the bus: copies,", 15, color=MOVE), text(250, 206, "slow", 15, color=MOVE)]
    save("memory-spaces.svg", 376, "Three memories: the main memory of the CPU and one memory on each of two cards, joined by a "
         "slow bus. The Python object X is in main memory, its bytes are in the memory of cuda:0.", *shapes)


def tensor_bytes():
    shapes = [heads(INK), text(20, 34, "torch.ones(2, 3), float32", 17, "start", weight="bold"),
              grid(40, 50, 2, 3, CARD, CARD_FILL, 40), text(180, 84, "6 numbers", anchor="start"),
              text(180, 106, "of 4 bytes = 24 bytes", anchor="start"),
              text(20, 176, "in memory: one row of bytes", 16, "start", weight="bold")]
    for k in range(6):
        shapes.append(box(20 + 40 * k, 190, 40, 34, CARD, CARD_FILL, 0))
        shapes.append(text(40 + 40 * k, 213, "4", 15))
    shapes += [f'<rect x="260" y="190" width="200" height="34" fill="none" stroke="{SOFT}" stroke-width="2" stroke-dasharray="5 4"/>',
               text(360, 213, "488 bytes of filler", 14, color=SOFT),
               text(460, 246, "memory is given in units of 512 bytes", 14, "end", SOFT),
               arrow(160, 286, 160, 230, INK), text(20, 306, "X[1] is a view: it starts at the fourth number", 16, "start", weight="bold"),
               text(20, 328, "and has no bytes of its own", 16, "start")]
    save("tensor-bytes.svg", 346, "A tensor of 2 by 3 float32 numbers is one row of 24 bytes in memory, in a block of 512 that the "
         "allocator gives. A view such as X[1] points into the same row.", *shapes)


def copy():
    shapes = [heads(MOVE)]
    for i, x in enumerate((20, 250)):
        shapes += [box(x, 20, 210, 236, CARD, CARD_FILL), text(x + 105, 46, f"cuda:{i}", 17, color=CARD, weight="bold")]
    shapes += [grid(46, 72, 2, 3, CARD, "#ffffff"), text(144, 104, "X", 18, weight="bold"),
               grid(346, 72, 2, 3, CARD, "#ffffff"), text(440, 104, "Z", 18, weight="bold"), arrow(164, 98, 338, 98),
               text(298, 90, "copy", 15, color=MOVE),
               grid(346, 142, 2, 3, CARD, "#ffffff"), text(440, 174, "Y", 18, weight="bold"),
               text(355, 228, "Y + Z is computed here", 15), text(125, 174, "X stays", 15, color=SOFT),
               text(240, 288, "Z = X.to(Y.device)", 17, weight="bold")]
    save("copy.svg", 306, "Z = X.to(Y.device) copies X from cuda:0 to cuda:1, where Y is. X stays where it was, and Y + Z is "
         "computed on cuda:1.", *shapes)


def queue():
    def lane(y, who, color, fill, spans):
        parts = [text(20, y + 17, who, 15, "start", color, "bold")]
        for start, length, label, kind in spans:
            stroke, inside = {"work": (color, fill), "wait": (MOVE, "#ffffff")}[kind]
            dash = ' stroke-dasharray="4 3"' if kind == "wait" else ""
            parts.append(f'<rect x="{70 + start:g}" y="{y}" width="{length:g}" height="24" fill="{inside}" stroke="{stroke}" '
                         f'stroke-width="1.5"{dash}/>')
            if label:
                parts.append(text(70 + start + length / 2, y + 18, label, 15, color=MOVE if kind == "wait" else INK))
        return "".join(parts)

    shapes = [text(20, 34, "Queue at the counter: fetch every cup", 16, "start", weight="bold")]
    host, card = [], []
    for k in range(4):
        host += [(98 * k, 16, "", "work"), (98 * k + 16, 82, "waits", "wait")]
        card.append((98 * k + 16, 56, f"cup {k + 1}", "work"))
    shapes += [lane(48, "host", HOST, HOST_FILL, host), lane(80, "GPU", CARD, CARD_FILL, card),
               text(20, 128, "between two cups the GPU has nothing to do", 14, "start", SOFT),
               text(20, 176, "Order by phone: collect once", 16, "start", weight="bold")]
    host = [(16 * k, 16, "", "work") for k in range(4)] + [(64, 96, "other work", "work"), (160, 80, "waits once", "wait")]
    shapes += [lane(190, "host", HOST, HOST_FILL, host),
               lane(222, "GPU", CARD, CARD_FILL, [(16 + 56 * k, 56, f"cup {k + 1}", "work") for k in range(4)]),
               text(20, 270, "the four cups are ready sooner, with one wait", 14, "start", SOFT)]
    save("queue.svg", 288, "Two time lines. Above, the host orders a cup and waits for it four times, and the GPU is idle in "
         "between. Below, the host orders four cups, does other work, and waits once; the GPU works without a break.", *shapes)


def module_to():
    rows = [("weight = nn.Parameter(...)", True), ('register_buffer("mask", ...)', True), ("blocks = nn.ModuleList([...])", True),
            ("scale = torch.ones(3)", False), ("layers = [nn.Linear(...)]", False)]
    shapes = [heads(MOVE), text(20, 32, "a module, and what net.to(gpu) moves", 16, "start", weight="bold"),
              box(20, 46, 290, 222, HOST, HOST_FILL), text(34, 258, "main memory", 14, "start", HOST, "bold"),
              box(370, 46, 90, 222, CARD, CARD_FILL), text(415, 258, "GPU", 14, color=CARD, weight="bold")]
    for k, (line, moves) in enumerate(rows):
        y = 60 + 37 * k
        shapes += [box(32, y, 266, 30, CARD if moves else HOST, CARD_FILL if moves else "#ffffff", 4),
                   text(42, y + 20, line, 15, "start")]
        if moves:
            shapes += [arrow(304, y + 15, 384, y + 15), box(388, y, 54, 30, CARD, "#ffffff", 4)]
        else:
            shapes.append(text(322, y + 20, "stays", 15, "start", MOVE))
    save("module-to.svg", 284, "A module with five attributes. A parameter, a buffer and the layers of a ModuleList move to the GPU; "
         "a plain tensor and layers in a Python list stay in main memory.", *shapes)


def loop():
    shapes = [heads(MOVE, INK), box(20, 20, 160, 250, HOST, HOST_FILL), text(100, 46, "main memory", 16, color=HOST, weight="bold"),
              box(300, 20, 160, 250, CARD, CARD_FILL), text(380, 46, "the device", 16, color=CARD, weight="bold"),
              box(36, 66, 128, 36, HOST, "#ffffff"), text(100, 89, "model, new"),
              box(316, 66, 128, 36, CARD, "#ffffff"), text(380, 89, "model"),
              arrow(168, 84, 310, 84), text(240, 74, "1: once", 15, color=MOVE, weight="bold")]
    for k in range(3):
        shapes += [box(40 + 10 * k, 150 + 8 * k, 104, 44, HOST, "#ffffff", 4)]
    shapes += [text(112, 193, "batches"), box(316, 150, 128, 30, CARD, "#ffffff"), text(380, 170, "inputs"),
               box(316, 188, 128, 30, CARD, "#ffffff"), text(380, 208, "labels"),
               arrow(168, 165, 310, 165), arrow(168, 203, 310, 203),
               text(240, 157, "2: each step", 15, color=MOVE, weight="bold"), text(240, 225, "3: each step", 15, color=MOVE, weight="bold"),
               text(380, 240, "forward, backward,", 14),
               text(380, 258, "update", 14), text(240, 300, "forget one of the three, and it is an error", 15, color=SOFT)]
    save("loop.svg", 316, "Main memory and the device. The model crosses once; inputs and labels of each batch cross in every step. "
         "Forward, backward and update run on the device.", *shapes)


def late_error():
    def lane(y, who, color, spans):
        parts = [text(20, y + 20, who, 15, "start", color, "bold")]
        for start, width, label, stroke, fill in spans:
            parts += [box(start, y, width, 30, stroke, fill, 4), text(start + width / 2, y + 20, label, 14)]
        return "".join(parts)

    shapes = [heads(MOVE, SOFT), text(20, 32, "queued in time, reported late", 16, "start", weight="bold"),
              lane(50, "host", HOST, [(70, 62, "loss", HOST, HOST_FILL), (136, 88, "backward", HOST, HOST_FILL),
                                      (228, 52, "step", HOST, HOST_FILL), (284, 176, ".item() waits", MOVE, "#ffffff")]),
              lane(130, "GPU", CARD, [(104, 116, "forward", CARD, CARD_FILL), (224, 134, "loss: label 10", MOVE, "#ffffff")]),
              arrow(101, 82, 224, 130, SOFT), text(196, 106, "the line that is wrong", 14, "start", SOFT),
              arrow(358, 130, 440, 84), text(458, 122, "error", 15, "end", MOVE, "bold"),
              text(20, 194, "The error comes up at .item(), three lines after its cause.", 15, "start", SOFT)]
    save("late-error.svg", 212, "Two time lines. The host queues the loss, the backward pass and the optimizer's step, and waits at item. "
         "The GPU is still in the forward pass, then fails in the loss; the error reaches the host at item.", *shapes)


def streams():
    shapes = [heads(INK, MOVE), box(14, 86, 74, 92, HOST, HOST_FILL), text(51, 126, "Python", 15, color=HOST, weight="bold"),
              text(51, 146, "orders", 15, color=HOST)]
    for y, name, color, fill, orders in ((64, "default stream", CARD, CARD_FILL, ("step 2", "step 1", "step 0")),
                                         (166, "side", MOVE, "#f7e3da", ("copy 3", "copy 2", "copy 1"))):
        shapes += [text(128, y - 10, f"stream: {name}", 15, "start", weight="bold"), arrow(92, 122 if y < 100 else 142, 122, y + 17, INK)]
        for k, order in enumerate(orders):
            shapes += [box(128 + 58 * k, y, 56, 34, color, fill, 3), text(156 + 58 * k, y + 22, order, 14)]
        shapes.append(arrow(306, y + 17, 346, y + 17, INK))
    shapes += [box(350, 20, 116, 244, SOFT, "#ffffff"), text(408, 44, "the card", 15, weight="bold"),
               box(362, 56, 92, 56, CARD, CARD_FILL), text(408, 89, "computes", 15),
               box(362, 158, 92, 44, MOVE, "#f7e3da"), text(408, 185, "copies in", 15),
               box(362, 210, 92, 44, MOVE, "#f7e3da"), text(408, 237, "copies out", 15),
               text(14, 244, "in a stream: one after another", 14, "start", SOFT),
               text(14, 264, "between streams: in any order, unless one waits", 14, "start", SOFT)]
    save("streams.svg", 282, "Python puts orders into two streams. The steps in the default stream go to the part of the card that computes, "
         "the copies in the other stream to a copy engine. Each stream is in order; between the two there is none.", *shapes)


def reuse():
    def span(x, y, width, label, color, fill, weight=1.5, dash=""):
        return (f'<rect x="{x}" y="{y}" width="{width}" height="34" rx="3" fill="{fill}" stroke="{color}" stroke-width="{weight}"{dash}/>'
                + text(x + width / 2, y + 22, label, 14))

    copy, step = (MOVE, "#f7e3da"), (CARD, CARD_FILL)
    wrong = (MOVE, "#ffffff", 3, ' stroke-dasharray="5 3"')
    shapes = []
    for top, title, note in ((20, "the allocator does not know who uses A", "writes over A while step 0 reads it"),
                             (176, "after A.record_stream(default stream)", "A is kept until step 0 has read it")):
        wrongly = top == 20
        shapes += [text(14, top + 14, title, 16, "start", weight="bold"), text(14, top + 52, "side", 14, "start"),
                   text(14, top + 96, "default", 14, "start"),
                   span(74, top + 30, 72, "copy to A", *copy), span(150, top + 30, 72, "copy to B", *copy),
                   span(236, top + 30, 72, f"copy to {'A' if wrongly else 'C'}", *(wrong if wrongly else copy)),
                   span(150, top + 74, 182, "step 0 reads A", *step), span(336, top + 74, 120, "step 1 reads B", *step),
                   text(241, top + 128, note, 14, color=MOVE if wrongly else SOFT)]
    save("reuse.svg", 318, "Two time lines. Above, the side stream gets the memory A again for its third copy and writes over it while "
         "step 0 in the default stream still reads it. Below, after record_stream, the third copy gets other memory.", *shapes)


if __name__ == "__main__":
    IMAGES.mkdir(parents=True, exist_ok=True)
    for draw in (latency_throughput, memory_spaces, tensor_bytes, copy, queue, module_to, loop, late_error, streams, reuse):
        draw()
