"""The chapters' notebooks: their canonical form, and how their outputs are recorded and compared.

    python tools/notebooks.py record [NAME ...]   run chapters from the top and store their outputs
    python tools/notebooks.py format [NAME ...]   write chapters in the canonical form, outputs as they are

NAME is a part of a file's name, such as 01; without one, every chapter. tests/run.py and the unit tests use the
functions below.
"""

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHAPTERS = ROOT / "chapters"


def chapters(names=()):
    """The paths of all chapters, or of those whose file name contains one of `names`."""
    found = sorted(CHAPTERS.glob("*.ipynb"))
    picked = [path for path in found if not names or any(name in path.stem for name in names)]
    if not picked:
        sys.exit(f"no chapter matches {' '.join(names)}; there are {', '.join(p.stem for p in found)}")
    return picked


def read(path):
    return json.loads(Path(path).read_text(encoding="utf-8"))


def code_cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def tags(cell):
    return cell["metadata"].get("tags", [])


# ------------------------------------------------------------------------------------- the canonical form
def canonical(notebook):
    """The one text that a notebook has in git: sorted keys, indent 1, and nothing that changes between runs."""
    metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
                "language_info": {"name": "python"}}
    if "d2l" in notebook["metadata"]:
        metadata["d2l"] = notebook["metadata"]["d2l"]
    cells, count = [], 0
    for cell in notebook["cells"]:
        kept = {"collapsed", "jupyter", "mystnb", "tags", "cellView"}  # not: execution times, editor state
        cell = cell | {"metadata": {k: v for k, v in cell["metadata"].items() if k in kept}}
        if cell["cell_type"] == "code":
            count += 1
            cell["execution_count"] = count
            cell["outputs"] = [output | {"execution_count": count} if "execution_count" in output else output
                               for output in cell["outputs"]]
        cells.append(cell)
    notebook = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def record(path):
    """Run a chapter in a folder of its own, as a reader without a GPU, and store what it printed."""
    import nbclient
    import nbformat
    import torch

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", record_timing=False,
                                         coalesce_streams=True,  # one output, however the prints came in
                                         resources={"metadata": {"path": folder}})
        client.execute(env=environment())
    notebook["metadata"]["d2l"] = {"recorded": {"torch": torch.__version__.split("+")[0], "gpus": "none"}}
    path.write_text(canonical(json.loads(nbformat.writes(notebook))), encoding="utf-8")


def environment(**changes):
    """The environment in which outputs are recorded and compared: no GPU visible, one thread."""
    settings = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "COLUMNS": "80", "TQDM_DISABLE": "1",
                "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}
    return os.environ | settings | changes


# ------------------------------------------------------------------------------------------------- nbval
def recorded_with(path):
    return read(path)["metadata"].get("d2l", {}).get("recorded", {}).get("torch", "nothing")


def compare(paths, workers=2, strict=True, **variables):
    """Run notebooks with nbval, each in a temporary folder of its own.

    Strict: every output must equal the stored one, except in cells tagged `nbval-ignore-output`. Not strict:
    only cells tagged `nbval-check-output` are compared; every cell must still run.
    Returns a dict: `cells` (as run), `passed` (how many), `failed` (a list of "notebook, cell N: why") and
    `text` (what pytest printed).
    """
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            own = Path(folder) / path.stem
            own.mkdir()
            shutil.copy(path, own)
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "--nbval" if strict else "--nbval-lax", "--nbval-current-env",
                   "--nbval-cell-timeout", "120", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", folder,
                   "-q", "--junit-xml", str(report), folder]
        if workers > 1 and len(paths) > 1:
            command[3:3] = ["-n", str(workers), "--dist", "loadscope"]
        done = subprocess.run(command, env=environment(**variables), cwd=folder, capture_output=True, text=True)
        text = done.stdout + done.stderr
        if not report.exists():
            raise RuntimeError(f"nbval did not run:\n{text}")
        cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    failed = []
    for case in cases:
        problems = [child for child in case if child.tag in ("failure", "error")]
        if problems:
            name = case.get("classname", "").removesuffix(".ipynb").split(".")[-1]
            failed.append(f"{name} {case.get('name')}: {problems[0].text or ''}")
    ran = [case for case in cases if not any(child.tag == "skipped" for child in case)]
    return {"cells": len(ran), "passed": len(ran) - len(failed), "failed": failed, "text": text}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["record", "format"])
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    for path in chapters(options.names):
        if options.command == "record":
            record(path)
        else:
            path.write_text(canonical(read(path)), encoding="utf-8")
        print(f"{path.relative_to(ROOT)}: done")
    if options.command == "record":
        print(f"recorded with torch on Python {platform.python_version()}, no GPU visible")


if __name__ == "__main__":
    main()
