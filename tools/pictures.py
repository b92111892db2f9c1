"""Draw the book's SVG pictures into chapters/img/: `python tools/pictures.py`.

One visual language for all of them: the palette (d2l_gpu/palette.py), the type and the shapes below. A picture is 480 units wide, so
that 16-unit text is still legible on a phone, and brings its own background, so that it reads in light and dark.
"""

import runpy
from math import log10
from pathlib import Path
from types import SimpleNamespace

IMAGES = Path(__file__).parents[1] / "chapters" / "img"
WIDTH = 480
palette = SimpleNamespace(**runpy.run_path(IMAGES.parents[1] / "d2l_gpu" / "palette.py"))
PAPER, INK, SOFT, MOVE = palette.PAPER, palette.INK, palette.SOFT, palette.MOVE
HOST, HOST_FILL, CARD, CARD_FILL = palette.HOST, palette.HOST_FILL, palette.CARD, palette.CARD_FILL
limits, pipeline = (SimpleNamespace(**runpy.run_path(IMAGES.parents[1] / "d2l_gpu" / f"{name}.py")) for name in ("limits", "pipeline"))


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
              grid(312, 74, 2, 3, HOST, "#ffffff"), text(351, 146, "a CPU tensor", 14, color=SOFT)]
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


def roofline():
    """Without JavaScript; with it, _static/interactive.js puts an interactive one in its place."""
    card = limits.MACHINES["T4"]

    def at(intensity, rate):
        return 70 + 66 * (log10(intensity) + 2), 312 - 30 * (log10(rate) - 7)

    def mark(work, label, dx=0, dy=0, anchor="start"):
        found = limits.least_time(work, card)
        (x, y), (_, roof) = at(found.intensity, found.rate), at(found.intensity, min(card.peak, found.intensity * card.bandwidth))
        return (f'<line x1="{x:.1f}" y1="{roof:.1f}" x2="{x:.1f}" y2="{y:.1f}" stroke="{MOVE}" stroke-width="2" '
                f'stroke-dasharray="4 3"/><circle cx="{x:.1f}" cy="{y:.1f}" r="6" fill="{MOVE}"/>'
                + text(round(x + dx, 1), round(y + dy, 1), label, 15, anchor))

    shapes = [text(14, 34, "T4 (published): 8.1 TFLOP/s, 320 GB/s", 16, "start", weight="bold"),
              text(14, 54, "FLOP/s", 15, "start", SOFT)]
    for k, label in enumerate(("1 G", "1 T", "1 P")):
        y = at(1, 1e9 * 1000**k)[1]
        shapes += [f'<line x1="70" y1="{y:g}" x2="466" y2="{y:g}" stroke="{SOFT}" stroke-width="0.6"/>', text(62, y + 5, label, 15, "end", SOFT)]
    for intensity, label in ((0.01, "0.01"), (1, "1"), (100, "100"), (10_000, "10,000")):
        x = at(intensity, 1)[0]
        shapes += [f'<line x1="{x:g}" y1="72" x2="{x:g}" y2="312" stroke="{SOFT}" stroke-width="0.6"/>',
                   text(min(x, 442), 332, label, 15, color=SOFT)]
    (x0, y0), (x1, y1), (x2, y2) = at(0.01, 0.01 * card.bandwidth), at(card.peak / card.bandwidth, card.peak), at(10_000, card.peak)
    trail = " ".join(f"{x:.1f},{y:.1f}" for x, y in (
        at(r.intensity, r.rate) for r in (limits.least_time(limits.product(2**(k / 4)), card) for k in range(16, 53))))
    shapes += [f'<polyline points="{x0:.1f},{y0:.1f} {x1:.1f},{y1:.1f} {x2:.1f},{y2:.1f}" fill="none" stroke="{CARD}" stroke-width="3"/>',
               f'<polyline points="{trail}" fill="none" stroke="{MOVE}" stroke-width="1.5"/>',
               text(x1 - 8, y1 - 12, "ridge", 15, color=CARD, weight="bold"), text(x2, y2 - 12, "peak", 15, "end", CARD, "bold"),
               text(x0 + 6, y0 - 40, "bandwidth", 15, "start", CARD, "bold"),
               mark(limits.addition(4096), "addition", 12, 18), mark(limits.mlp_step(64), "MLP step", -8, 20, "end"),
               mark(limits.product(64), "product, n = 64", 14, 8), mark(limits.product(2048), "n = 2048", 0, 24, "middle"),
               text(268, 354, "FLOP for each byte of memory traffic", 15, color=SOFT)]
    save("roofline.svg", 370, "The roofline of a T4 on logarithmic axes: FLOP per second against FLOP per byte. The roof rises with the "
         "memory bandwidth to the ridge and is flat at the peak. An addition is on the slope, a product of 2048 by 2048 matrices "
         "on the flat part; a small product and a training step of a small MLP are far below, held down by launch overhead.", *shapes)


def timeline():
    """Without JavaScript; with it, _static/interactive.js puts an interactive one in its place."""
    def spans(y, lane, stroke, fill):
        return [f'<rect x="{102 + 2.5 * s.start:g}" y="{y}" width="{2.5 * (s.end - s.start):g}" height="24" fill="{fill}" '
                f'stroke="{stroke}" stroke-width="1.5"/>' + text(102 + 1.25 * (s.start + s.end), y + 17, s.batch + 1, 14)
                for s in lane]

    shapes, y = [], 20
    for workers, heading in ((0, "No workers: one after another"), (3, "Three workers load at the same time")):
        found = pipeline.timeline(load=18, compute=6, workers=workers, batches=6)
        shapes.append(text(14, y + 14, heading, 16, "start", weight="bold"))
        for k, lane in enumerate(found.lanes):
            y += 28
            shapes += [text(14, y + 17, f"worker {k + 1}" if workers else "main", 15, "start", HOST, "bold"), *spans(y, lane, HOST, HOST_FILL)]
        y += 28
        end = found.computes[-1].end
        shapes += [text(14, y + 17, "GPU", 15, "start", CARD, "bold"),
                   f'<rect x="102" y="{y}" width="{2.5 * end:g}" height="24" fill="#ffffff" stroke="{MOVE}" stroke-width="1.5" stroke-dasharray="4 3"/>',
                   *spans(y, found.computes, CARD, CARD_FILL)]
        y += 44
    shapes += [text(14, y + 14, "load 18, compute 6; dashed: the GPU is idle", 15, "start", SOFT)]
    save("timeline.svg", y + 32, "Time lines of six batches that take three times as long to load as to compute. Without workers the "
         "main process and the GPU take turns, and the GPU is idle most of the time. With three workers that load side by side "
         "the GPU waits for the first batch and then works without a break.", *shapes)


def supply():
    shapes = [heads(INK)]
    stages = [("storage", "reads", "7", HOST, HOST_FILL), ("CPU", "decodes, joins", "30", HOST, HOST_FILL),
              ("bus", "copies", "60", MOVE, "#f8e4d9"), ("GPU", "trains", "50", CARD, CARD_FILL)]
    for k, (name, does, pace, color, fill) in enumerate(stages):
        x = 12 + 117 * k
        shapes += [box(x, 40, 104, 64, color, fill), text(x + 52, 66, name, 17, color=color, weight="bold"), text(x + 52, 90, does, 14)]
        if k < 3:
            shapes.append(arrow(x + 105, 72, x + 117, 72, INK))
    shapes.append(text(12, 26, "an example, in batches a second that each stage could do:", 15, "start", SOFT))
    for k, (name, does, pace, color, fill) in enumerate(stages):
        x, high = 12 + 117 * k, 2 * float(pace)
        shapes += [f'<rect x="{x + 26}" y="{262 - high:g}" width="52" height="{high:g}" fill="{fill}" stroke="{color}" '
                   f'stroke-width="1.5"/>', text(x + 52, 256 - high, pace, 16, color=color, weight="bold")]
    shapes += [f'<line x1="12" y1="248" x2="468" y2="248" stroke="{MOVE}" stroke-width="2" stroke-dasharray="6 4"/>',
               f'<line x1="12" y1="262" x2="468" y2="262" stroke="{INK}" stroke-width="1.5"/>',
               text(240, 288, "all of them go at the pace of the slowest: 7", 16, color=MOVE, weight="bold"),
               text(240, 312, "the disk is slow, the CPU waits, and it is the GPU that looks idle", 14, color=SOFT)]
    save("supply.svg", 328, "Four stages, storage, CPU, bus and GPU, with the batches a second that each could do: 7, 30, 60 and 50. "
         "A dashed line at 7 cuts through all of them: the slowest sets the pace, and the other three wait.", *shapes)


def starved():
    def lane(y, who, color, fill, spans):
        parts = [text(12, y + 18, who, 15, "start", color, "bold")]
        for start, length, label in spans:
            parts.append(f'<rect x="{86 + start:g}" y="{y}" width="{length:g}" height="26" fill="{fill}" stroke="{color}" '
                         f'stroke-width="1.5"/>')
            parts.append(text(86 + start + length / 2, y + 18, label, 14))
        return "".join(parts)

    def idle(y, spans):
        return "".join(f'<rect x="{86 + start:g}" y="{y}" width="{length:g}" height="26" fill="none" stroke="{MOVE}" '
                       f'stroke-width="1.5" stroke-dasharray="4 3"/>' + (text(86 + start + length / 2, y + 18, "idle", 14, color=MOVE)
                                                                         if length > 40 else "") for start, length in spans)

    shapes = [text(12, 30, "One process loads and trains: taking turns", 16, "start", weight="bold"),
              lane(42, "CPU", HOST, HOST_FILL, [(96 * k, 64, f"load {k + 1}") for k in range(4)]), idle(42, [(96 * k + 64, 32) for k in range(4)]),
              lane(76, "GPU", CARD, CARD_FILL, [(96 * k + 64, 32, str(k + 1)) for k in range(4)]), idle(76, [(96 * k, 64) for k in range(4)]),
              text(12, 124, "while one side works, the other waits", 14, "start", SOFT),
              text(12, 168, "The same with a GPU twice as fast", 16, "start", weight="bold"),
              lane(180, "CPU", HOST, HOST_FILL, [(80 * k, 64, f"load {k + 1}") for k in range(4)]), idle(180, [(80 * k + 64, 16) for k in range(4)]),
              lane(214, "GPU", CARD, CARD_FILL, [(80 * k + 64, 16, str(k + 1)) for k in range(4)]), idle(214, [(80 * k, 64) for k in range(4)]),
              text(12, 262, "four batches are done a little sooner, and the GPU waits as long as before", 14, "start", SOFT)]
    save("starved.svg", 280, "Two time lines of four batches. Above, one process loads a batch, the GPU trains on it, and each is idle while the "
         "other works. Below, the GPU is twice as fast: its idle times are as long as before, and little is won.", *shapes)


def loader():
    shapes = [heads(INK, MOVE), box(12, 20, 150, 216, HOST, HOST_FILL), text(87, 44, "your process", 16, color=HOST, weight="bold"),
              box(24, 58, 126, 46, HOST, "#ffffff"), text(87, 78, "sampler", 15), text(87, 96, "[7, 2], [0, 5] ...", 14, color=SOFT),
              box(24, 120, 126, 46, HOST, "#ffffff"), text(87, 140, "in order, pinned", 15), text(87, 158, "if you ask", 14, color=SOFT),
              box(24, 188, 126, 38, HOST, "#ffffff"), text(87, 212, "for X, y in loader", 15),
              arrow(87, 167, 87, 187, INK)]
    for k in range(2):
        y = 20 + 112 * k
        shapes += [box(282, y, 186, 104, HOST, HOST_FILL), text(375, y + 22, f"worker {k}: a process", 15, color=HOST, weight="bold"),
                   text(294, y + 48, "dataset[7], dataset[2]" if k == 0 else "dataset[0], dataset[5]", 15, "start"),
                   text(294, y + 70, "each transformed", 15, "start"), text(294, y + 92, "joined: collate", 15, "start")]
    shapes += [arrow(152, 74, 280, 62, INK), arrow(152, 88, 280, 168, INK), text(214, 56, "indices", 15),
               arrow(280, 104, 152, 136, MOVE), arrow(280, 204, 152, 150, MOVE), text(218, 202, "batches", 15, color=MOVE),
               text(240, 262, "indices go out, up to 2 batches a worker ahead", 15),
               text(240, 284, "batches come back through shared memory", 15, color=MOVE)]
    save("loader.svg", 300, "A DataLoader with two workers. Your process draws lists of indices and sends them to the worker processes. "
         "Each worker fetches its samples, transforms them, joins them to a batch and sends it back.", *shapes)


def staging():
    rows = (("ordinary memory", "the driver copies", "your loop waits", "a buffer of", "the driver"),
            ("pin_memory=True, with workers", "a thread copies", "your loop goes on", "the batch,", "pinned"),
            ("pin_memory=True, no workers", "your loop copies", "your loop pins first", "the batch,", "pinned"))
    shapes = [heads(HOST, MOVE)]
    for k, (title, who, what, first, second) in enumerate(rows):
        y = 20 + 136 * k
        shapes += [text(20, y + 16, title, 16, "start", weight="bold"), text(460, y + 16, what, 15, "end", MOVE),
                   box(20, y + 54, 90, 54, HOST, HOST_FILL), text(65, y + 78, "the batch", 15), text(65, y + 98, "as loaded", 14, color=SOFT),
                   box(216, y + 54, 108, 54, HOST, "#ffffff"), text(270, y + 78, first, 15), text(270, y + 98, second, 15),
                   box(400, y + 54, 60, 54, CARD, CARD_FILL), text(430, y + 87, "GPU", 16, color=CARD, weight="bold"),
                   arrow(112, y + 81, 213, y + 81, HOST), text(163, y + 46, who, 14, color=HOST),
                   arrow(326, y + 81, 397, y + 81), text(362, y + 46, "the card reads", 14, color=MOVE)]
    save("staging.svg", 424, "Three ways of a batch to the GPU, each through pinned memory. From ordinary memory the driver makes the "
         "extra copy and the loop waits. With workers and pin_memory a thread makes it and the loop goes on. Without workers the "
         "loop makes it itself.", *shapes)


def trace():
    """One training step as Perfetto draws it: labels and operators of the host, the GPU's lane below, three things to look for."""
    def span(x, y, width, label, color, fill, dash="", height=26):
        return (f'<rect x="{x:g}" y="{y}" width="{width:g}" height="{height}" fill="{fill}" stroke="{color}" stroke-width="1.5"{dash}/>'
                + (text(x + width / 2, y + height - 8, label, 14) if label else ""))

    def mark(x, y, number):
        return (f'<circle cx="{x:g}" cy="{y:g}" r="11" fill="{PAPER}" stroke="{MOVE}" stroke-width="2"/>'
                + text(x, y + 5, number, 15, color=MOVE, weight="bold"))

    dashed = ' stroke-dasharray="4 3"'
    shapes = [heads(MOVE), text(20, 34, "one step on the time line", 17, "start", weight="bold"),
              text(460, 34, "time", 14, "end", SOFT), text(20, 70, "host", 15, "start", HOST, "bold"),
              text(20, 196, "GPU", 15, "start", CARD, "bold")]
    for x, width, label in ((66, 112, "load"), (180, 66, "forward"), (248, 84, "backward"), (334, 126, ".item()")):
        shapes.append(span(x, 52, width, label, HOST, HOST_FILL))
    shapes.append(span(70, 82, 104, "Python", HOST, "#ffffff"))
    shapes += [span(184 + 13 * k, 82, 10, "", HOST, "#ffffff") for k in range(5)]
    shapes += [span(252 + 13 * k, 82, 10, "", HOST, "#ffffff") for k in range(6)]
    shapes.append(span(338, 82, 118, "Synchronize", MOVE, "#ffffff", dashed))
    shapes.append(span(66, 178, 122, "", MOVE, "#ffffff", dashed))
    shapes.append(span(188, 178, 36, "copy", MOVE, "#ffffff"))
    at = 224
    for width in (24, 15, 30, 12, 34, 20, 38, 16, 33, 10):
        shapes.append(span(at, 178, width, "", CARD, CARD_FILL))
        at += width
    shapes += [arrow(189, 110, 195, 174), arrow(202, 110, 233, 174), arrow(262, 110, 320, 174),
               mark(127, 191, "1"), mark(300, 136, "2"), mark(396, 136, "3"),
               mark(31, 238, "1"), text(50, 243, "a gap: the GPU has nothing to do; look up", 15, "start"),
               mark(31, 270, "2"), text(50, 275, "from an order to its kernel: the host is ahead", 15, "start"),
               mark(31, 302, "3"), text(50, 307, "the host waits for the queue: no slow copy", 15, "start")]
    save("trace.svg", 326, "A time line of one training step. The host loads, orders forward and backward, and waits in item. The GPU has "
         "a gap while the host loads, then a copy and kernels without a break until the wait ends.", *shapes)


def formats():
    rows = [("float32", 8, 23, 0), ("TF32", 8, 10, 13), ("bfloat16", 8, 7, 0), ("float16", 5, 10, 0)]
    bit, left = 11.4, 96
    shapes = [text(left + 0.5 * bit, 34, "sign", 14, color=SOFT), text(left + 5 * bit, 34, "exponent", 14, color=MOVE),
              text(left + 20 * bit, 34, "fraction", 14, color=HOST)]
    for k, (name, exponent, fraction, unused) in enumerate(rows):
        y, x = 46 + 44 * k, left
        shapes.append(text(20, y + 20, name, 15, "start", weight="bold"))
        for count, stroke, fill in ((1, SOFT, "#e9edf1"), (exponent, MOVE, "#fbe3da"), (fraction, HOST, HOST_FILL)):
            for _ in range(count):
                shapes.append(f'<rect x="{x:.1f}" y="{y}" width="{bit}" height="30" fill="{fill}" stroke="{stroke}" stroke-width="1"/>')
                x += bit
        if unused:
            shapes += [f'<rect x="{x:.1f}" y="{y}" width="{unused * bit:.1f}" height="30" fill="none" stroke="{SOFT}" stroke-dasharray="4 3"/>',
                       text(x + unused * bit / 2, y + 20, "not looked at", 14, color=SOFT)]
        else:
            bits = f"{1 + exponent + fraction} bits"
            shapes.append(text(x + 10, y + 20, bits, 14, "start", SOFT) if fraction < 23 else "")
    shapes += [text(20, 246, "exponent: how far the numbers reach", 15, "start", MOVE),
               text(20, 268, "fraction: how close they lie together", 15, "start", HOST)]
    save("formats.svg", 286, "The bits of four number formats. float32: 1 sign, 8 exponent, 23 fraction. TF32: the same, with only 10 bits of "
         "the fraction looked at. bfloat16: 8 and 7. float16: 5 and 10.", *shapes)


def number_line():
    left, right = 96, 460

    def at(value):  # decimal exponents from -46 to 40
        return left + (value + 46) / 86 * (right - left)

    shapes = [text(20, 32, "how far they reach", 16, "start", weight="bold")]
    rows = [("float32", -44.85, -37.93, 38.53), ("TF32", -44.85, -37.93, 38.53), ("bfloat16", -40.04, -37.93, 38.53), ("float16", -7.22, -4.21, 4.82)]
    for k, (name, least, normal, most) in enumerate(rows):
        y = 46 + 32 * k
        shapes += [text(20, y + 15, name, 15, "start"),
                   f'<rect x="{at(normal):.1f}" y="{y}" width="{at(most) - at(normal):.1f}" height="20" fill="{HOST_FILL}" stroke="{HOST}"/>',
                   f'<rect x="{at(least):.1f}" y="{y}" width="{at(normal) - at(least):.1f}" height="20" fill="#ffffff" stroke="{HOST}" '
                   'stroke-dasharray="3 2"/>' if name != "TF32" else ""]
    shapes += [text(at(-7.22) - 6, 157, "6e-8", 14, "end", MOVE), text(at(4.82) + 6, 157, "65,504", 14, "start", MOVE),
               f'<line x1="{left}" y1="178" x2="{right}" y2="178" stroke="{INK}"/>']
    for value, label in ((-40, "1e-40"), (-20, "1e-20"), (0, "1"), (20, "1e20"), (38, "1e38")):
        shapes += [f'<line x1="{at(value):.1f}" y1="174" x2="{at(value):.1f}" y2="182" stroke="{INK}"/>', text(at(value), 198, label, 14)]
    shapes += [text(20, 240, "how close they lie: all numbers from 1 to 1 + 1/32", 16, "start", weight="bold")]
    for k, (name, steps) in enumerate((("float32", 0), ("TF32", 32), ("bfloat16", 4), ("float16", 32))):
        y = 254 + 32 * k
        shapes.append(text(20, y + 15, name, 15, "start"))
        if steps:
            shapes += [f'<line x1="{left + (right - left) * i / steps:.1f}" y1="{y}" x2="{left + (right - left) * i / steps:.1f}" y2="{y + 20}" '
                       f'stroke="{HOST}" stroke-width="2"/>' for i in range(steps + 1)]
        else:
            shapes += [f'<rect x="{left}" y="{y}" width="{right - left}" height="20" fill="{HOST}"/>',
                       text((left + right) / 2, y + 15, "262,145 numbers", 14, color="#ffffff")]
    shapes.append(f'<line x1="{left}" y1="386" x2="{right}" y2="386" stroke="{INK}"/>')
    for i, label in ((0, "1"), (2, "1 + 1/64"), (4, "1 + 1/32")):
        x = left + (right - left) * i / 4
        shapes += [f'<line x1="{x:.1f}" y1="382" x2="{x:.1f}" y2="390" stroke="{INK}"/>', text(x, 406, label, 14, "end" if i == 4 else "middle")]
    save("number-line.svg", 422, "Above, the range of each format on a logarithmic line: float32, TF32 and bfloat16 reach to about 1e38, float16 from "
         "6e-8 to 65,504. Below, the numbers between 1 and 1 + 1/32: bfloat16 has 5, float16 and TF32 have 33, float32 has 262,145.", *shapes)


def amp_step():
    rows = [("scaler.scale(loss)", "the loss, times the scale", MOVE), (".backward()", "gradients, times the scale", MOVE),
            ("scaler.unscale_(optimizer)", "true gradients; inf noted", CARD), ("clip_grad_norm_(...)", "clipped gradients", CARD),
            ("scaler.step(optimizer)", "an update, or none if inf", CARD), ("scaler.update()", "the scale of the next step", HOST)]
    fills = {MOVE: "#fbe3da", CARD: CARD_FILL, HOST: HOST_FILL}
    shapes = [heads(INK), text(20, 30, "the call", 15, "start", weight="bold"), text(262, 30, "what there is after it", 15, "start", weight="bold")]
    for k, (call, what, color) in enumerate(rows):
        y = 44 + 52 * k
        shapes += [box(20, y, 220, 36, color, fills[color]), text(130, y + 23, call, 15), text(262, y + 23, what, 15, "start", color)]
        if k:
            shapes.append(arrow(130, y - 15, 130, y - 2, INK))
    shapes.append(text(20, 374, "with nothing to clip, the two in the middle go:", 14, "start", SOFT))
    shapes.append(text(20, 394, "step divides by the scale itself", 14, "start", SOFT))
    save("amp-step.svg", 412, "Six calls in a row: scale the loss, backward, unscale, clip, step, update. After the first two everything is "
         "multiplied by the scale; from unscale on the gradients are the true ones; update sets the scale of the next step.", *shapes)


def memory_layers():
    rows = [(20, 440, SOFT, "#e9edf1", "the card"), (34, 330, SOFT, "#ffffff", "nvidia-smi: this process"),
            (48, 250, CARD, "#ffffff", "reserved: taken from the driver"), (62, 150, CARD, CARD_FILL, "allocated")]
    shapes = [text(20, 30, "whose memory is it?", 16, "start", weight="bold")]
    for k, (x, width, stroke, fill, label) in enumerate(rows):
        y = 44 + 34 * k
        shapes += [box(x, y, width, 222 - 42 * k, stroke, fill), text(x + 12, y + 22, label, 15, "start", weight="bold" if k == 3 else "normal")]
    shapes += [text(137, 208, "your tensors", 15), text(255, 176, "kept for", 14, color=SOFT), text(255, 194, "the next", 14, color=SOFT),
               text(331, 160, "context,", 14, color=SOFT), text(331, 178, "kernels", 14, color=SOFT),
               text(412, 150, "free, or", 14, color=SOFT), text(412, 168, "others'", 14, color=SOFT)]
    save("memory-layers.svg", 282, "The memory of a card as nested boxes: allocated for tensors, reserved by PyTorch, used by the process as "
         "nvidia-smi shows it, and the whole card.", *shapes)


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


def dp_ddp():
    def card(x, y, name, *rows):
        return [box(x, y, 168, 92, CARD, CARD_FILL), text(x + 84, y + 22, name, 15, color=CARD, weight="bold"),
                *(text(x + 84, y + 46 + 20 * k, row, 14) for k, row in enumerate(rows))]

    shapes = [heads(MOVE), text(14, 28, "DataParallel: one process", 16, "start", weight="bold"),
              box(14, 40, 452, 150, HOST, "#ffffff"), text(240, 62, "one Python orders everything", 14, color=HOST),
              *card(26, 82, "cuda:0", "weights, optimizer", "part 0, all scores"), *card(286, 82, "cuda:1", "a copy of the weights", "part 1"),
              arrow(196, 110, 284, 110), text(240, 102, "weights", 14, color=MOVE), arrow(196, 134, 284, 134), text(240, 129, "inputs", 14, color=MOVE),
              arrow(284, 164, 196, 164), text(240, 157, "scores,", 14, color=MOVE), text(240, 182, "gradients", 14, color=MOVE),
              text(14, 226, "DDP: a process for each card", 16, "start", weight="bold")]
    for x, rank in ((14, 0), (278, 1)):
        shapes += [box(x, 238, 188, 146, HOST, "#ffffff"), text(x + 94, 260, f"rank {rank}: Python, loader", 14, color=HOST),
                   *card(x + 10, 280, f"cuda:{rank}", "weights, optimizer", f"part {rank}")]
    shapes += [arrow(206, 326, 274, 326), arrow(274, 326, 206, 326), text(240, 296, "mean", 14, color=MOVE),
               text(240, 313, "of the", 14, color=MOVE), text(240, 350, "gradients", 14, color=MOVE)]
    save("dp-ddp.svg", 400, "Above, DataParallel: one process. In each step weights and inputs go from cuda:0 to cuda:1, and scores and gradients "
         "come back. Below, DDP: two processes, each with a card, weights and an optimizer of its own. Only gradients go between them.",
         *shapes)


def ring():
    shapes = [heads(MOVE)]
    centers = [(120, 76), (360, 76), (360, 226), (120, 226)]
    for k, (x, y) in enumerate(centers):
        shapes += [box(x - 78, y - 44, 156, 88, CARD, "#ffffff"), text(x, y - 20, f"cuda:{k}", 15, color=CARD, weight="bold")]
        for piece in range(4):
            sent = piece == k
            shapes += [box(x - 66 + 34 * piece, y - 6, 30, 34, MOVE if sent else CARD, "#f7e3da" if sent else CARD_FILL, 3),
                       text(x - 51 + 34 * piece, y + 17, "abcd"[piece], 15)]
    shapes += [arrow(202, 76, 278, 76), arrow(360, 124, 360, 178), arrow(278, 226, 202, 226), arrow(120, 178, 120, 124)]
    shapes += [text(240, 64, "a", 15, color=MOVE), text(376, 157, "b", 15, "start", MOVE), text(240, 216, "c", 15, color=MOVE),
               text(104, 157, "d", 15, "end", MOVE),
               text(240, 300, "3 steps: each piece is added up on its way around", 15),
               text(240, 322, "3 more: each sum is handed on to all", 15),
               text(240, 348, "sent by each card: 2 · 3/4 of the gradients", 15, weight="bold")]
    save("ring.svg", 364, "Four cards in a ring. The gradients are cut into pieces a, b, c and d. In each step every card sends one piece to the next. "
         "After three steps every piece is added up, after three more every card has all sums.", *shapes)


def fused():
    operations = ("*2", "+1", "sigm.", "*x", "abs", "&#8722;", "clamp", "x&#178;")
    shapes = [heads(MOVE), text(14, 30, "one by one: eight kernels", 16, "start", weight="bold"),
              box(14, 44, 452, 36, HOST, HOST_FILL), text(240, 67, "memory", 16, color=HOST)]
    for k, name in enumerate(operations):
        x = 14 + 57 * k
        reads = (8, 22) if name in ("*x", "&#8722;") else (14,)
        shapes += [arrow(x + at, 82, x + at, 116) for at in reads]
        shapes += [arrow(x + 40, 116, x + 40, 82), box(x, 118, 52, 34, CARD, CARD_FILL), text(x + 26, 140, name, 14)]
    shapes += [text(14, 196, "fused: one kernel", 16, "start", weight="bold"), box(14, 210, 452, 36, HOST, HOST_FILL),
               text(240, 233, "memory", 16, color=HOST), arrow(40, 248, 40, 282), arrow(440, 282, 440, 248),
               box(14, 284, 452, 34, CARD, CARD_FILL)]
    shapes += [text(40 + 57 * k, 306, name, 14) for k, name in enumerate(operations)]
    shapes.append(text(240, 344, "a ninth of the bytes, the same arithmetic", 16, color=MOVE))
    save("fused.svg", 360, "Eight operations one by one each read from memory and write back. Fused into one kernel they read once "
         "and write once.", *shapes)


def replay():
    def row(top, title, orders, kernels, gap, note):
        step = 44
        shapes = [text(14, top, title, 16, "start", weight="bold"), text(14, top + 41, "Python", 14, "start"),
                  text(14, top + 93, "card", 14, "start")]
        for k in range(orders):
            x = 80 + 74 * k
            shapes.append(box(x, top + 18, 70, 34, HOST, HOST_FILL, 3) + text(x + 35, top + 40, "order" if orders > 1 else "replay", 14))
        for k in range(kernels):
            x = 154 + (74 if gap else step) * k
            shapes.append(box(x, top + 70, 40, 34, CARD, CARD_FILL, 3) + text(x + 20, top + 92, str(k + 1), 14))
        return shapes + [text(240, top + 132, note, 14, color=SOFT)]
    save("replay.svg", 346, "Above, Python orders four kernels one by one, and the card is idle between them. Below, one call "
         "replays a graph, and the four kernels run without gaps.",
         *row(28, "one by one", 4, 4, True, "the card waits for the next order"),
         *row(200, "a CUDA graph", 1, 4, False, "one order, no gaps; Python is free"))


def book_map():
    """The book as a place: each part stands where the bytes are that it is about."""
    def part(x, y, name, chapters):
        return [text(x, y, name, 17, weight="bold"), text(x, y + 22, chapters, 15, color=SOFT)]
    shapes = [heads(MOVE), box(20, 20, 440, 174, HOST, HOST_FILL),
              text(36, 46, "the host: Python, cores, main memory", 16, "start", HOST, "bold"),
              box(36, 62, 180, 112, HOST, "#ffffff"), text(126, 84, "files, pictures, batches", 14, color=SOFT),
              *part(126, 120, "Feeding the GPU", "chapters 8 to 10"),
              box(264, 62, 180, 112, HOST, "#ffffff"), text(354, 84, "your program", 14, color=SOFT),
              *part(354, 120, "Training", "chapters 4 to 7"),
              arrow(126, 180, 126, 254), arrow(354, 180, 354, 254), arrow(354, 254, 354, 180),
              *part(240, 216, "Devices", "chapters 1 to 3"),
              box(20, 260, 440, 112, CARD, CARD_FILL),
              text(36, 286, "the GPU: many small units, memory of its own", 16, "start", CARD, "bold"),
              *part(240, 322, "Going faster", "chapters 11 to 15")]
    save("book-map.svg", 388, "A map of the book. Feeding the GPU, chapters 8 to 10, and Training, chapters 4 to 7, stand in the host; "
         "Devices, chapters 1 to 3, at the way between host and GPU; Going faster, chapters 11 to 15, in the GPU.", *shapes)


if __name__ == "__main__":
    IMAGES.mkdir(parents=True, exist_ok=True)
    for draw in (latency_throughput, memory_spaces, tensor_bytes, copy, queue, module_to, loop, late_error,
                 roofline, timeline, supply, starved, loader, staging, trace, formats, number_line, amp_step,
                 memory_layers, streams, reuse, dp_ddp, ring, fused, replay, book_map):
        draw()
