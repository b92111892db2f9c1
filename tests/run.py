"""Run every test and print a summary: `make test`, or `python tests/run.py` in an environment with
requirements.txt installed. Exits with 1 if anything failed."""

import platform
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import notebooks  # noqa: E402


def unit_tests():
    """The package, the checks, the notebooks' form and the built pages."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        subprocess.run([sys.executable, "-m", "pytest", "tests", "-q", "--junit-xml", str(report)], cwd=ROOT)
        if not report.exists():
            return 0, 1, 0, "pytest did not run"
        suite = next(ElementTree.parse(report).getroot().iter("testsuite"))
    total, skipped = int(suite.get("tests")), int(suite.get("skipped"))
    failed = int(suite.get("failures")) + int(suite.get("errors"))
    return total - failed - skipped, failed, skipped, ""


def notebook_profile(strict=True, **variables):
    """A function that runs all notebooks under one profile. Where outputs are not those of the recording by design
    (another number of GPUs), only cells tagged `nbval-check-output` are compared."""
    may_be_strict = strict

    def run():
        import torch
        release = torch.__version__.split("+")[0]
        passed = failed = 0
        notes = []
        same = {p: may_be_strict and notebooks.recorded_with(p) == release for p in notebooks.chapters()}
        groups = {strict: [path for path in same if same[path] is strict] for strict in (True, False)}
        for strict, paths in groups.items():
            if not paths:
                continue
            result = notebooks.compare(paths, strict=strict, **variables)
            expected = sum(len(notebooks.code_cells(notebooks.read(path))) for path in paths)
            if result["cells"] != expected:
                result["failed"].append(f"{result['cells']} of {expected} code cells ran")
            passed, failed = passed + result["passed"], failed + len(result["failed"])
            for failure in result["failed"]:
                print(failure)
            if not strict and may_be_strict:
                notes.append(f"only tagged cells compared: recorded with torch {notebooks.recorded_with(paths[0])}, "
                             f"this is {release}")
        return passed, failed, 0, "; ".join(notes)
    return run


STAGES = {
    "unit tests, pages": unit_tests,
    "notebooks, no GPU": notebook_profile(),
    "notebooks, another CPU": notebook_profile(ATEN_CPU_CAPABILITY="default", OMP_NUM_THREADS="2"),
    "notebooks, one device": notebook_profile(strict=False, D2L_GPU_SIMULATE="1"),
    "notebooks, plain CPU": notebook_profile(strict=False, D2L_GPU_SIMULATE="0"),
}


def main():
    rows = []
    for name, stage in STAGES.items():
        print(f"\n=== {name}", flush=True)
        start = time.monotonic()
        try:
            passed, failed, skipped, note = stage()
        except Exception as error:
            passed, failed, skipped, note = 0, 1, 0, f"{type(error).__name__}: {error}"
        rows.append((name, passed, failed, skipped, time.monotonic() - start, note))
    print(f"\nPython {platform.python_version()}, {platform.system()} {platform.machine()}")
    print(f"{'stage':26}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}")
    for name, passed, failed, skipped, seconds, note in rows:
        print(f"{name:26}{passed:8}{failed:8}{skipped:9}{seconds:9.0f}  {note}")
    passed, failed, skipped = (sum(row[k] for row in rows) for k in (1, 2, 3))
    print(f"\n{'All tests passed.' if not failed else 'Some tests failed: see above.'}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
