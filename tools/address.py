"""Writes the repository's address into the chapters, and takes it out again.

    python tools/address.py https://github.com/OWNER/REPOSITORY [--branch BRANCH]
    python tools/address.py --remove

A chapter opened alone, in Colab or Kaggle, has PyTorch and no d2l_gpu. With the address, a cell before its first one
fetches the package, where it is not there yet, and leaves PyTorch as it is. Where it is there, the cell does nothing.
"""

import argparse
import re
import sys

import notebooks

sys.path.append(str(notebooks.ROOT / "_ext"))
import d2l_repository  # noqa: E402

TAG = "fetch-package"
SOURCE = '''\
#@title Fetch the book's package d2l_gpu, if it is missing (PyTorch stays as it is)
import importlib.util
import subprocess
import sys

PACKAGE = (
    "{address}"
)
if importlib.util.find_spec("d2l_gpu") is None:
    print("fetching d2l_gpu, which takes a moment")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", PACKAGE]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(
            f"pip could not fetch d2l_gpu from {PACKAGE}. Is this machine online? "
            "On Kaggle, turn the internet on in the notebook's settings (it takes "
            "a verified phone number). Without it, copy the folder d2l_gpu of the "
            "book's repository beside this notebook. What pip said:\\n"
            + done.stderr.strip())
    importlib.invalidate_caches()
'''


def package_address(url, branch=None):
    """What pip is asked for: the address of a repository, its branch and the book's folder in it.

    Raises ValueError, with the way out, if `url` or `branch` is none that pip and git can use.
    """
    local = re.fullmatch(r"file://(/[\w./~-]+)", url)
    address = url if local else d2l_repository.web_address(url)
    branch = branch or d2l_repository.branch(notebooks.ROOT)
    if not address:
        raise ValueError(f"{url!r} is not the address of a repository: give one such as https://github.com/OWNER/REPOSITORY")
    if not re.fullmatch(r"\w[\w./-]*", branch):
        raise ValueError(f"{branch!r} is not the name of a branch: give one such as --branch main")
    folder = d2l_repository.path_in_repository(notebooks.ROOT)
    return f"git+{address}@{branch}" + (f"#subdirectory={folder}" if folder else "")


def without_address(notebook):
    return notebook | {"cells": [cell for cell in notebook["cells"] if TAG not in notebooks.tags(cell)]}


def with_address(notebook, address):
    """The notebook with one cell that fetches the package, before its first code cell."""
    cells = without_address(notebook)["cells"]
    first = next(k for k, cell in enumerate(cells) if cell["cell_type"] == "code")
    fetch = {"cell_type": "code", "execution_count": None, "id": TAG, "outputs": [],
             "source": SOURCE.replace("{address}", address).rstrip("\n").splitlines(keepends=True),
             "metadata": {"cellView": "form", "jupyter": {"source_hidden": True}, "tags": [TAG, "remove-cell"]}}
    return notebook | {"cells": [*cells[:first], fetch, *cells[first:]]}


def address_in(notebook):
    """The address that a notebook fetches the package from, or None."""
    for cell in notebook["cells"]:
        if TAG in notebooks.tags(cell):
            return re.search(r'"(git\+\S+)"', "".join(cell["source"]))[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("url", nargs="?", help="where the repository is, as https://github.com/OWNER/REPOSITORY")
    what.add_argument("--remove", action="store_true", help="take the address out of the chapters")
    parser.add_argument("--branch", help="the branch to fetch from; by default the one that this clone follows, or main")
    options = parser.parse_args()
    try:
        address = None if options.remove else package_address(options.url, options.branch)
    except ValueError as error:
        sys.exit(str(error))
    for path in notebooks.chapters():
        notebook = notebooks.read(path)
        changed = with_address(notebook, address) if address else without_address(notebook)
        path.write_text(notebooks.canonical(changed), encoding="utf-8")
    print(f"every chapter fetches d2l_gpu from {address}" if address else "no chapter holds an address")


if __name__ == "__main__":
    main()
