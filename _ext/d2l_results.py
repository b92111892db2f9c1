"""Fills the page of results from results/*.json when the book is built. It needs no torch and no matplotlib."""

import importlib.util
import re
import runpy
from html import escape
from pathlib import Path

from sphinx.util import logging

PAGE, MARKER = "pages/results", "<!-- results -->"
_PALETTE = runpy.run_path(Path(__file__).parents[1] / "d2l_gpu" / "palette.py")
PAPER, INK, BAR, BAR_FILL = (_PALETTE[name] for name in ("PAPER", "INK", "HOST", "HOST_FILL"))

#: The parts of a record that get a table, their heading, and a sentence on what they are.
PARTS = {
    "ladder": ("The training experiment, rung by rung", "Seconds of one pass over 60,000 images of 28 × 28 (an MLP of 784-128-64-10, "
               "Adam, batches of 64). Each rung changes one thing of the one before. Where only time is measured, the images are "
               "the embedded sample drawn with repetition."),
    "products": ("Matrix products", "One product of two square matrices, float32 unless another format is given."),
    "copies": ("Copies", "Pageable and pinned memory, both ways, and what pinning itself takes; without a GPU, copies within main memory."),
    "operations": ("Single operations", "Additions: of one number, which is all overhead, and of many, into a tensor that is there, which "
                   "is all memory traffic."),
    "training steps": ("Training steps, from tiny to large", "Forward, backward and update on a batch that is on the device: a linear "
                       "regression with three parameters, and the CNN of chapter 05, wider and deeper."),
    "mixed precision": ("Mixed precision", "One training step in float32, in TF32 where a card has it, and under autocast; and the wide network's "
                        "batch in four pieces whose gradients add up."),
    "profiler": ("The profiler's own cost", "One training step of the small MLP, plain and under the profiler, and the number of "
                 "PyTorch's operators in it."),
    "memory": ("Memory", "The peak of a training step of the network of chapter 12, counted; and what a card holds besides tensors."),
    "streams": ("Streams", "The same work on one stream and on two."),
    "compile": ("torch.compile", "A chain of eight operations on each number, and a training step of the small MLP, plain and compiled; "
                "the first call of each, with nothing in the compiler's cache."),
    "channels last": ("Convolutions in two layouts", "Forward and backward of three convolutions, with the channels first, as usual, and last."),
    "cnn": ("A small CNN", "Conv2d(1, 16), ReLU, pooling, linear to 10; batches of 64."),
}


def load_reader(root):
    """The module d2l_gpu/results.py, loaded by its path: importing the package would ask for torch."""
    spec = importlib.util.spec_from_file_location("d2l_results_reader", Path(root) / "d2l_gpu" / "results.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cell(text):
    """Text as it may stand in a cell of a Markdown table."""
    return re.sub(r"\s+", " ", re.sub(r"([\\|*_`\[\]])", r"\\\1", escape(str(text), quote=False)))


def table(header, rows):
    lines = ["| " + " | ".join(map(cell, header)) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(map(cell, row)) + " |" for row in rows] + [""]


def title(record):
    return record["machine"] + (" (published)" if record["published"] else "")


def machines(records):
    rows = []
    for record in records:
        versions = record["versions"]
        gpus = [d for d in record["devices"] if d["device"] != "cpu"]
        driver = record["driver"] or ("not given" if record["published"] else "none")
        rows.append([title(record), record["date"] or "not given", versions.get("torch", "not given"), driver,
                     "; ".join(f"{d['name']}" + (f", {d['memory'] / 1e9:.1f} GB" if d["memory"] else "") for d in gpus) or "none",
                     record["cores"] or "not given", record["threads"] or "not given"])
    lines = ["## Machines", ""] + table(["machine", "date", "torch", "driver", "GPU", "CPU cores", "threads"], rows)
    if not any(d["device"].startswith("cuda") for r in records if not r["published"] for d in r["devices"]):
        lines += ["No machine with a GPU is on this page yet: what needs one is missing below, and is not estimated.", ""]
    for record in records:
        if record["published"]:
            lines += [f"- *{cell(title(record))}*: {cell(record['published']['source'])}; {cell(record['published']['note'])}."]
        for part in record["parts"]:
            if part["note"] and not record["published"] and part["state"] != "skipped":
                lines += [f"- {cell(title(record))}, {cell(part['part'])}: {cell(part['state'])}; {cell(part['note'])}."]
    return lines + [""]


def label(entry):
    """What a row of a part's table is called: the name and its setting, but for what all rows share."""
    s, extra = entry["setting"], []
    if "size" in s:
        extra.append(f"{s['size']} × {s['size']}")
    if "bytes" in s:
        extra.append(f"{s['bytes'] / 1024:,.0f} KiB")
    if s.get("dtype", "float32") != "float32":
        extra.append(s["dtype"])
    extra += [f"width {s['width']}"] if "width" in s else []
    extra += [f"batch {s['batch']:,}"] if entry["part"] == "training steps" else []
    extra += [f"{s['numbers']:,} numbers"] if s.get("numbers", 1) > 1 else []
    extra += [f"{s['operators']} operators"] if "operators" in s else []
    extra += [f"{s['launches']} orders to the GPU"] if "launches" in s else []
    extra += [f"{s['images']:,} images"] if entry["part"] == "ladder" and s.get("images") != 60_000 else []
    return entry["name"] + (f" ({', '.join(extra)})" if extra else "")


def part_table(part, records, reader):
    columns, rows, sizes = [], {}, {}
    for record in records:
        for e in reader.find(record, part):
            column = f"{e['device']}, {title(record)}"
            if column not in columns:
                columns.append(column)
            workers = f", {e['setting']['workers']} workers" if e["setting"].get("workers") else ""
            figure = f"{e['median']:g} {e['unit']}" if record["published"] else reader.format_entry(e)  # as it was printed
            rows.setdefault(label(e), {})[column] = figure + workers
            sizes[label(e)] = (e["setting"].get("size", 0), e["setting"].get("bytes", 0))
    return table(["what", *columns], [[name, *(rows[name].get(column, "") for column in columns)]
                                      for name in sorted(rows, key=sizes.get)])


def bars(record, reader):
    """The ladder of one machine as a picture: SVG that stands in the page itself. Lengths are proportional to the times."""
    rows = reader.find(record, "ladder")
    longest, height, device = max(e["median"] for e in rows), 46 + 44 * len(rows), rows[0]["device"]
    name = escape(f"{device}, {title(record)}")
    spoken = escape("; ".join(f"{e['name']} {reader.format_entry(e, spread=False)}" for e in rows))
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 480 {height}" role="img" font-family="Helvetica, Arial, sans-serif" '
             f'style="max-width: 34rem; width: 100%; height: auto; display: block; margin: 0 auto 1rem">',
             f"<title>One pass on {name}, in seconds: {spoken}</title>",
             f'<rect width="480" height="{height}" rx="10" fill="{PAPER}"/>',
             f'<text x="16" y="28" font-size="16" font-weight="bold" fill="{INK}">One pass on {name}</text>']
    for k, e in enumerate(rows):
        y, width = 42 + 44 * k, max(2.0, 350 * e["median"] / longest)
        workers = f", {e['setting']['workers']} workers" if e["setting"].get("workers") else ""
        dash = ' stroke-dasharray="4 3"' if record["published"] else ""
        lines += [f'<text x="16" y="{y + 14}" font-size="15" fill="{INK}">{escape(label(e) + workers)}</text>',
                  f'<rect x="16" y="{y + 19}" width="{width:.1f}" height="14" fill="{BAR_FILL}" stroke="{BAR}"{dash}/>',
                  f'<text x="{width + 24:.1f}" y="{y + 31}" font-size="15" fill="{INK}">{reader.format_entry(e, spread=False)}</text>']
    return [*lines, "</svg>", ""]


def chapters(records):
    lines = []
    for record in records:
        if record["chapters"]:
            lines += [f"### {cell(title(record))}", ""] + table(["chapter", "cells run", "seconds", "result"], [
                [row["chapter"], f"{row['cells']} of {row['of']}", f"{row['seconds']:.0f}", row["error"] or "passed"]
                for row in record["chapters"]])
    return ["## Every chapter's cells", "", "Run from top to bottom by Python alone, on the devices that the machine has.", "", *lines] * bool(lines)


def placement(records):
    lines = []
    for record in records:
        found = record["placement"]
        if found:
            lines += [f"{cell(title(record))}: {found['cases']} cases, {len(found['differences'])} differ.", ""]
            if found["differences"]:
                lines += table(["case", "simulated", "real"], [[d["case"], d["simulated"], d["real"]] for d in found["differences"]])
    return ["## Simulated GPUs against real ones", "", *lines] * bool(lines)


def content(records, reader, left_out=()):
    """The page's Markdown from the records: machines, then a table a part, with a picture of every ladder; at the top
    what was `left_out` (sentences)."""
    lines = [f"- *left out:* {cell(text)}" for text in left_out] + [""]
    if not records:
        return "\n".join([*lines, "No machine has been recorded yet.", ""])
    lines += machines(records)
    for part, (heading, sentence) in PARTS.items():
        having = [record for record in records if reader.find(record, part)]
        if having:
            lines += [f"## {heading}", "", sentence, ""]
            if part == "ladder":
                lines += [line for record in having for line in bars(record, reader)]
            lines += part_table(part, having, reader)
    return "\n".join(lines + placement(records) + chapters(records)) + "\n"


def fill(app, docname, source):
    if docname == PAGE:
        reader, left_out = load_reader(app.srcdir), []
        records = reader.read_all(Path(app.srcdir) / "results", say=left_out.append)
        for text in left_out:
            logging.getLogger(__name__).info(text)  # named here and on the page; no reason to stop the build
        source[0] = source[0].replace(MARKER, content(records, reader, left_out))


def setup(app):
    app.connect("source-read", fill)
    app.connect("env-get-outdated", lambda app, env, added, changed, removed: [PAGE] if PAGE in env.found_docs else [])
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
