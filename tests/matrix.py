"""Run the tests of the package and of the simulator under other releases of torch: `make test-matrix`, or

    python tests/matrix.py [RELEASE ...]          # 2.9.1 and 2.13.0 if none is named

Each release gets an environment of its own outside the checkout, in D2L_GPU_MATRIX or the user's cache folder,
which is kept for the next run. Notebooks and pages are left out: their outputs belong to one release.
"""

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
RELEASES = ["2.9.1", "2.13.0"]  # the oldest that is supported, and one between it and the newest
LEFT_OUT = [f"test_{name}.py" for name in (
    "address", "api_page", "browser", "interactive", "notebooks", "pages", "publishing", "record", "reference")]


def environment(release):
    """The Python of an environment with this release of torch."""
    cache = Path(os.environ.get("D2L_GPU_MATRIX") or Path.home() / ".cache" / "d2l_gpu-matrix")
    folder = cache / f"torch-{release}-py{sys.version_info.major}.{sys.version_info.minor}"
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    ready = folder / "ready"
    if not ready.exists():
        print(f"making {folder.name} ...", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", f"torch=={release}", "numpy", "pytest", "psutil", "expecttest"], check=True)
        ready.touch()
    return python


def main(releases):
    failed = []
    for release in releases:
        ignored = [f"--ignore=tests/{name}" for name in LEFT_OUT if (ROOT / "tests" / name).exists()]
        command = [environment(release), "-m", "pytest", "tests", "-q", "-p", "no:cacheprovider", *ignored]
        print(f"\n=== torch {release}", flush=True)
        if subprocess.run(command, cwd=ROOT).returncode:
            failed.append(release)
    print(f"\n{len(releases) - len(failed)} passed, {len(failed)} failed" + (f": {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or RELEASES))
