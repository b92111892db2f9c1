import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools"), str(ROOT / "_ext")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))  # for subprocesses


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def html(tmp_path_factory, root):
    """The folder of the freshly built HTML, as `make book` builds it."""
    folder = tmp_path_factory.mktemp("book") / "source"
    shutil.copytree(root, folder, ignore=shutil.ignore_patterns(".venv*", "_build", ".git", "__pycache__", "tests"))
    tool = shutil.which("jupyter-book", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    done = subprocess.run([tool, "build", ".", "--warningiserror", "--nitpick", "--keep-going"], cwd=folder,
                          capture_output=True, text=True, env=os.environ | {"BOOK_REPOSITORY_URL": ""})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder / "_build" / "html"
