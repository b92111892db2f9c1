"""Fills the landing page when the book is built: the chapters from _toc.yml and the notebooks, what was measured and
run from results/*.json. It needs no torch."""

import json
import re
from pathlib import Path

import yaml
from d2l_repository import on_github, repository_address
from d2l_results import cell, load_reader, table, title

PAGE = "intro"
KINDS = {"cpu": "without a GPU", "cuda": "with an NVIDIA GPU", "mps": "with an Apple GPU"}
OWN = "fetch-package"  # a cell that tools/address.py writes: no part of the chapter


def parts(root):
    """The book's parts that have chapters: a dict from a part's name to its chapters' names, in the book's order."""
    toc = yaml.safe_load((Path(root) / "_toc.yml").read_text(encoding="utf-8"))
    found = {part["caption"]: [entry["file"] for entry in part["chapters"]] for part in toc["parts"]}
    return {name: files for name, files in found.items() if all(file.startswith("chapters/") for file in files)}


def about(root, file):
    """A chapter's title, what its reader can do afterwards, and its number of code cells."""
    cells = json.loads((Path(root) / f"{file}.ipynb").read_text(encoding="utf-8"))["cells"]
    head = re.match(r"# (.+)\n\nAfter this chapter you can (.+?)\.?\n\n", "".join(cells[0]["source"]) + "\n\n")
    if not head:
        raise ValueError(f"{file}.ipynb does not begin with its title and 'After this chapter you can ...'")
    return head[1], head[2], sum(c["cell_type"] == "code" and OWN not in c["metadata"].get("tags", []) for c in cells)


def chapter_list(root, files, first):
    """The chapters of a part as a Markdown list that begins with the number `first`."""
    lines = []
    for number, file in enumerate(files, first):
        name, able, _ = about(root, file)
        lines.append(f"{number}. [{name}]({file}.ipynb): {able}.")
    return "\n".join(lines)


def kind(record):
    """What a machine's chapters ran on: "cuda", "mps" or "cpu"."""
    devices = [device["device"].split(":")[0] for device in record["devices"]]
    return next((name for name in ("cuda", "mps") if name in devices), "cpu")


def newest(records):
    """The newest run of each chapter on each kind of device: a dict from (chapter, kind) to (record, row)."""
    runs = {}
    for record in sorted((r for r in records if not r["published"]), key=lambda r: r["date"] or ""):
        runs |= {(row["chapter"], kind(record)): (record, row) for row in record["chapters"]}
    return runs


def run_text(record, row, cells, named):
    """One run in words: when and how long, and what was wrong with it; the machine's name if it is `named`."""
    words = [record["date"] or "no date", f"{row['seconds']:.0f} s" if row["seconds"] >= 1 else "under 1 s"]
    words += [title(record)] if named else []
    words += [] if row["passed"] else [f"stopped at cell {row['cells'] + 1} of {row['of']}"]
    words += [f"an earlier version, of {row['of']} cells"] if row["of"] != cells else []
    return "; ".join(words)


def status(root, records):
    """A table of all chapters: when each last ran from top to bottom, on what, and how long it took."""
    runs = newest(records)
    kinds = [k for k in KINDS if k in ("cpu", "cuda") or any(k == of for _, of in runs)]
    machines = {k: {title(record) for (_, of), (record, _) in runs.items() if of == k} for k in kinds}
    header = [KINDS[k] + (f": {min(machines[k])}" if len(machines[k]) == 1 else "") for k in kinds]
    lines = [f"| chapter | {' | '.join(map(cell, header))} |", "|" + "---|" * (1 + len(kinds))]
    number = 0
    for files in parts(root).values():
        for file in files:
            number, (name, _, cells) = number + 1, about(root, file)
            found = [runs.get((Path(file).name, k)) for k in kinds]
            lines.append("| " + " | ".join([f"{number} [{name}]({file}.ipynb)", *(
                cell(run_text(*run, cells, len(machines[k]) > 1)) if run else "not yet" for k, run in zip(kinds, found))]) + " |")
    return "\n".join(lines)


def measured(records):
    """The machines in words: what each is, when it was measured and how many figures it gave."""
    own, others = ([r for r in records if bool(r["published"]) is p] for p in (False, True))
    rows = [[title(r), KINDS[kind(r)], r["date"] or "not given", r["versions"].get("torch", "not given"), len(r["measurements"])] for r in own]
    lines = table(["machine", "", "date", "torch", "figures"], rows) if own else ["No machine has been recorded yet.", ""]
    if own and not any(kind(r) != "cpu" for r in own):
        lines += ["No machine with a GPU has been recorded yet. What needs one is left out there, and is not estimated.", ""]
    if others:
        names = " and ".join(cell(r["machine"]) for r in others)
        lines += [f"Beside them stand figures that others published, marked so ({names})."]
    return "\n".join(lines)


def opening(address):
    """How a chapter is opened in Colab and Kaggle, which depends on whether the book is where they can find it."""
    if on_github(address):
        return "Each chapter's page has a rocket at its top that opens it in Colab or Kaggle."
    return ("Download a chapter with the button at the top of its page, open it there, and put the folder `d2l_gpu` of the book's "
            "repository beside it.")


def fill(app, docname, source):
    if docname != PAGE:
        return
    root, number, texts = app.srcdir, 1, {}
    for part, files in parts(root).items():
        texts[f"chapters of {part}"] = chapter_list(root, files, number)
        number += len(files)
    records = load_reader(root).read_all(Path(root) / "results", say=lambda text: None)  # the results page names what is left out
    texts |= {"status": status(root, records), "measured": measured(records), "opening": opening(repository_address(root))}
    for name, text in texts.items():
        if f"<!-- {name} -->" not in source[0]:
            raise ValueError(f"{PAGE}.md has no place for <!-- {name} -->")
        source[0] = source[0].replace(f"<!-- {name} -->", text)


def setup(app):
    app.connect("source-read", fill)
    app.connect("env-get-outdated", lambda app, env, added, changed, removed: [PAGE] if PAGE in env.found_docs else [])
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
