"""Runs the code cells of the book's chapters on the devices that are there, with Python alone: no Jupyter."""

import ast
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ..results import clean
from . import environment, python

FOLDER = Path(__file__).resolve().parents[2] / "chapters"
LIMIT = 300  # seconds for one chapter


def code_cells(path):
    """The code cells of a notebook, as (source, tags), without the one that would fetch this package."""
    cells = json.loads(Path(path).read_text(encoding="utf-8"))["cells"]
    found = [("".join(cell["source"]), cell["metadata"].get("tags", [])) for cell in cells if cell["cell_type"] == "code"]
    return [(source, tags) for source, tags in found if "fetch-package" not in tags]


def _execute(source, namespace, name):
    """Run a cell; like a notebook, write the file of a %%writefile, and show what the last expression is worth."""
    file = re.match(r"%%writefile (-a )?(\S+)\n", source)
    if file:
        with open(file[2], "a" if file[1] else "w", encoding="utf-8") as script:
            script.write(source[file.end():] + "\n")
        return
    tree = ast.parse(source, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), namespace)
    if last is not None:
        value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
        if value is not None:
            print(repr(value)[:1000])


def run_cells(path):
    """Run a chapter's cells in one namespace, here. Returns (cells that ran, None or "cell N: the first error").

    Cells of IPython's own syntax (% and !) are left out and not counted, except for %%writefile. A cell tagged raises-exception must raise.
    """
    namespace, ran = {"__name__": "__main__", "display": print}, 0
    for k, (source, tags) in enumerate(code_cells(path), 1):
        if re.search(r"^\s*[%!]", source, re.MULTILINE) and not source.startswith("%%writefile "):
            continue
        try:
            _execute(source, namespace, f"cell {k}")
        except (Exception, SystemExit) as error:
            if "raises-exception" not in tags:
                return ran, f"cell {k}: {type(error).__name__}: {(str(error).strip() or '-').splitlines()[0]}"
        else:
            if "raises-exception" in tags:
                return ran, f"cell {k}: raised nothing, and should have"
        ran += 1
    return ran, None


def run(path, limit=LIMIT):
    """Run a chapter in a process and a folder of its own; a row for a record's `chapters`."""
    start, total = time.monotonic(), len(code_cells(path))
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        inside = Path(folder) / "work"
        inside.mkdir()
        try:
            done = subprocess.run(python("d2l_gpu.record.chapters", path, answer), cwd=inside, env=environment(MPLBACKEND="Agg"),
                                  capture_output=True, text=True, timeout=limit, stdin=subprocess.DEVNULL)
            ran, error = json.loads(answer.read_text()) if answer.exists() else (
                0, f"the process ended with status {done.returncode}: {(done.stderr.strip().splitlines() or ['-'])[-1]}")
        except subprocess.TimeoutExpired:
            ran, error = 0, f"not done after {limit:.0f} s"
    return {"chapter": Path(path).stem, "passed": error is None, "cells": ran, "of": total,
            "seconds": round(time.monotonic() - start, 1), "error": clean(error) if error else None}


def part(plan):
    """Report every chapter in turn (parts.py)."""
    paths = sorted(FOLDER.glob("*.ipynb"))
    for k, path in enumerate(paths):
        if plan.left() < 5:
            yield {"cut": f"no time for the chapters from {path.stem} on"}
            return
        yield {"chapter": run(path, min(LIMIT, plan.left()))}
    if not paths:
        yield {"note": "no chapters beside the package"}


if __name__ == "__main__":
    result = run_cells(sys.argv[1])
    Path(sys.argv[2]).write_text(json.dumps(result))
