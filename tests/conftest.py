import os
import shutil
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
    """The folder of the freshly built HTML, for a repository whose address is not known; built once, also where several
    processes test."""
    from filelock import FileLock  # torch brings it along
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "book"
    with FileLock(shared / "book.lock"):
        if not (folder / "built").exists():
            shutil.rmtree(folder, ignore_errors=True)
            book.build(root, folder, BOOK_REPOSITORY_URL="")
            (folder / "built").touch()
    return folder / "_build" / "html"


@pytest.fixture(scope="session")
def pages(html):
    return book.read_pages(html)


@pytest.fixture(scope="session")
def chromium():
    import browsing
    reason = browsing.missing()
    if reason:
        pytest.skip(reason)
    driver = browsing.start()
    yield driver
    driver.quit()
