"""Run the notebooks on this machine's GPUs with nbval and write a report: `make test-cuda`.

With two GPUs or more every output must equal the stored one. With one, where a second device is the CPU, every cell must run;
each cell whose output differs is listed, and those tagged nbval-check-output (what holds on any hardware) must not. The same
goes for a torch of another release than the one the outputs were recorded with. Exits with 1 if something failed, with 2
where there is no GPU. The report, results/<machine>-notebooks.md, is meant to be committed.
"""

import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]
import notebooks  # noqa: E402


def place(failure):
    """The notebook's name and the number of the code cell, from 0, in a failure that `notebooks.compare` lists."""
    found = re.match(r"(\S+) Cell (\d+)", failure)
    return (found[1], int(found[2])) if found else (failure[:60], None)


def judge(failures, tags, strict):
    """Sort the failures of a strict run into `broken` (the cell did not run), `wrong` (its output had to be the stored
    one) and `different` (it had not). `tags(notebook, cell)` gives a cell's tags. Entries are (notebook, cell, why)."""
    broken, wrong, different = [], [], []
    for failure in failures:
        name, cell = place(failure)
        if "Cell outputs differ" not in failure:
            lines = [line.strip() for line in re.sub(r"(?:\x1b|#x1B)\[[0-9;]*m", "", failure).splitlines() if line.strip()]
            broken.append((name, cell, lines[-1] if lines else "?"))
        elif strict or "nbval-check-output" in tags(name, cell):
            wrong.append((name, cell, "the output is not the stored one"))
        else:
            different.append((name, cell, "the output is not the stored one"))
    return broken, wrong, different


def _cells(name):
    return notebooks.code_cells(notebooks.read(notebooks.CHAPTERS / f"{name}.ipynb"))


def cell_tags(name, cell):
    return notebooks.tags(_cells(name)[cell]) if cell is not None else []


def report(machine, strict, result, expected, broken, wrong, different):
    """The report's text, in Markdown."""
    versions = machine["versions"]
    rule = "every output must equal the stored one" if strict else "every cell must run; tagged outputs must equal"
    lines = [f"# Notebooks on {machine['machine']}", "",
             f"{machine['date']}, torch {versions['torch']} ({versions['build']}), driver {machine['driver']}, "
             f"Python {versions['python']}. Rule: {rule}.", "",
             f"{result['cells']} of {expected} code cells ran, {result['passed']} gave the stored output."]
    for title, rows in (("Did not run", broken), ("Ran, and the output is wrong", wrong), ("Ran, with another output", different)):
        lines += ["", f"## {title}: {len(rows)}"]
        if rows:
            lines += ["", *(f"- {name}, cell {cell_name(name, cell)}: {why}" for name, cell, why in rows)]
    return "\n".join(lines) + "\n"


def cell_name(name, cell):
    try:
        return f"`{_cells(name)[cell]['id']}`"
    except (OSError, IndexError, TypeError):
        return cell


def main():
    import torch

    import d2l_gpu as d2l

    if not torch.cuda.is_available():
        print(f"make test-cuda needs an NVIDIA GPU that PyTorch can use. CUDA is {d2l.hardware().cuda}.")
        return 2
    release, count = torch.__version__.split("+")[0], torch.cuda.device_count()
    paths = notebooks.chapters()
    strict = count >= 2 and all(notebooks.recorded_with(path) == release for path in paths)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(count)))
    result = notebooks.compare(paths, workers=1, CUDA_VISIBLE_DEVICES=visible)
    expected = sum(len(notebooks.code_cells(notebooks.read(path))) for path in paths)
    broken, wrong, different = judge(result["failed"], cell_tags, strict)
    if result["cells"] != expected:
        broken.append(("all", None, f"{result['cells']} of {expected} code cells ran"))
    machine = d2l.results.this_machine()
    text = d2l.results.clean(report(machine, strict, result, expected, broken, wrong, different), 10**6)
    path = ROOT / "results" / f"{d2l.results.slug(machine['machine'])}-notebooks.md"
    path.write_text(text, encoding="utf-8")
    print(text + f"\nwritten to {path.relative_to(ROOT)}")
    return 1 if broken or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
