import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools"), str(ROOT / "_ext"), str(ROOT / "tests")]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))  # for subprocesses
import book  # noqa: E402


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def html(tmp_path_factory, root):
    """The folder of the freshly built HTML, for a repository whose address is not known."""
    return book.build(root, tmp_path_factory.mktemp("book") / "source", BOOK_REPOSITORY_URL="")


@pytest.fixture(scope="session")
def pages(html):
    return book.read_pages(html)
