"""The repository's address in the chapters: written and taken out exactly, and a chapter alone fetches d2l_gpu without touching torch."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import address
import notebooks
import pytest

URL = "git+https://github.com/somebody/gpus-in-pytorch@main"
each_chapter = pytest.mark.parametrize("path", notebooks.chapters(), ids=lambda path: path.stem)


def without(path):
    """A chapter as it is without an address, whether this repository has one or not."""
    return address.without_address(notebooks.read(path))


@each_chapter
def test_what_was_written_is_taken_out_to_the_byte(path):
    before = notebooks.canonical(without(path))
    written = notebooks.canonical(address.with_address(without(path), URL))
    assert written != before and URL in written
    again = notebooks.canonical(address.with_address(address.with_address(without(path), "git+https://github.com/old/one@main"), URL))
    assert again == written
    assert notebooks.canonical(address.without_address(address.with_address(without(path), URL))) == before


@each_chapter
def test_the_cell_is_the_first_that_runs_and_is_folded_everywhere(path):
    notebook = address.with_address(without(path), URL)
    cell = notebooks.code_cells(notebook)[0]
    assert address.address_in(notebook) == URL and address.address_in(without(path)) is None
    assert "".join(cell["source"]).startswith("#@title ") and cell["metadata"]["cellView"] == "form"  # Colab
    assert cell["metadata"]["jupyter"]["source_hidden"] and "remove-cell" in notebooks.tags(cell)  # JupyterLab, the pages
    assert notebook["cells"][0]["cell_type"] == "markdown"
    assert max(len(line.rstrip("\n")) for line in cell["source"]) <= 84


def test_all_chapters_hold_the_same_address_or_none():
    assert len({address.address_in(notebooks.read(path)) for path in notebooks.chapters()}) == 1


@pytest.mark.parametrize("url, branch, expected", [
    ("https://github.com/somebody/book", None, "git+https://github.com/somebody/book@trunk"),
    ("https://github.com/somebody/book.git", "v2/new", "git+https://github.com/somebody/book@v2/new"),
    ("git@github.com:somebody/book.git", None, "git+https://github.com/somebody/book@trunk"),
    ("https://name:word@github.com/somebody/book.git", None, "git+https://github.com/somebody/book@trunk"),
])
def test_an_address_is_understood_in_any_form_of_gits(monkeypatch, url, branch, expected):
    monkeypatch.setenv("BOOK_BRANCH", "trunk")
    monkeypatch.setattr(address.d2l_repository, "path_in_repository", lambda folder: "")
    assert address.package_address(url, branch) == expected
    monkeypatch.setattr(address.d2l_repository, "path_in_repository", lambda folder: "books/gpu")
    assert address.package_address(url, branch) == expected + "#subdirectory=books/gpu"


@pytest.mark.parametrize("url, branch", [("somebody/book", "main"), ("ftp://example.org/book", "main"), ('https://github.com/a/b"; x', "main"),
                                         ("https://github.com/a/b", "--upload"), ("https://github.com/a/b", 'a"b')])
def test_what_is_no_address_or_branch_is_named(url, branch):
    with pytest.raises(ValueError, match="give one such as"):
        address.package_address(url, branch)


# ------------------------------------------------------------------------------------------- the cell by itself
def run_cell(monkeypatch, found, **answer):
    """Run the cell where d2l_gpu is `found` or not and pip gives that answer; the commands that it started."""
    commands = []
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    monkeypatch.setattr(subprocess, "run", lambda command, **options: commands.append(command) or SimpleNamespace(**answer))
    exec(address.SOURCE.replace("{address}", URL), {})
    return commands


def test_where_the_package_is_there_nothing_is_fetched_or_printed(monkeypatch, capsys):
    assert run_cell(monkeypatch, found=object()) == [] and capsys.readouterr().out == ""


def test_pip_is_told_to_leave_all_other_packages_alone(monkeypatch):
    (command,) = run_cell(monkeypatch, found=None, returncode=0)
    assert command[:4] == [sys.executable, "-m", "pip", "install"] and "--no-deps" in command and command[-1] == URL
    assert "--upgrade" not in command


def test_a_failed_fetch_says_why_and_names_the_ways_out(monkeypatch):
    with pytest.raises(RuntimeError) as caught:
        run_cell(monkeypatch, found=None, returncode=1, stderr="ERROR: could not resolve host\n")
    for words in (URL, "online", "Kaggle", "copy the folder d2l_gpu", "could not resolve host"):
        assert words in str(caught.value)


# ------------------------------------------------------------------------- a bare environment, as in Colab and Kaggle
def git(*arguments, folder):
    person = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *person, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def repository(tmp_path_factory, root):
    """A clone of this book, as it is now, with its own address in its chapters."""
    if not shutil.which("git"):
        pytest.skip("git is not installed")
    folder = tmp_path_factory.mktemp("elsewhere") / "book"
    shutil.copytree(root, folder, ignore=shutil.ignore_patterns(".venv*", "_build", "build", ".git", "__pycache__", "*.egg-info"))
    git("init", "--quiet", "--initial-branch", "trunk", folder=folder)
    write = [sys.executable, str(folder / "tools" / "address.py"), folder.as_uri(), "--branch", "trunk"]
    subprocess.run(write, check=True, capture_output=True, env=os.environ | {"PYTHONPATH": ""})
    git("add", "--all", folder=folder)
    git("commit", "--quiet", "--message", "a copy", folder=folder)
    return folder


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """Python in an environment with all packages of this one but d2l_gpu, however that is installed here."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    shared = folder / "packages"  # links: what is installed later goes into the environment's own folder
    shared.mkdir()
    for place in dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]):
        for path in Path(place).iterdir():
            ours = path.name.lower().replace("-", "_").startswith(("d2l_gpu", "__editable__"))
            if not ours and path.suffix != ".pth" and not (shared / path.name).exists():
                (shared / path.name).symlink_to(path)
    own = next((folder / "venv").rglob("site-packages"))
    (own / "shared.pth").write_text(f"{shared}\n")
    return SimpleNamespace(python=folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python", own=own, shared=shared)


def environment():
    """No address of this book on the path; pip builds with the setuptools that are there, so that it needs no network."""
    return notebooks.environment(PYTHONPATH="", PIP_NO_BUILD_ISOLATION="0", PIP_DISABLE_PIP_VERSION_CHECK="1")


def torch_there(python):
    """Where a Python finds torch, its version, and a digest of the names, sizes and times of its files."""
    told = subprocess.run([python, "-c", "import torch; print(torch.__file__); print(torch.__version__)"], capture_output=True,
                          text=True, env=environment(), check=True).stdout.split()
    files = sorted((str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in Path(told[0]).parent.resolve().rglob("*.py"))
    return *told, hashlib.sha256(repr(files).encode()).hexdigest()


def test_a_chapter_alone_fetches_the_package_and_leaves_torch_as_it_is(repository, bare, tmp_path):
    missing = subprocess.run([bare.python, "-c", "import d2l_gpu"], capture_output=True, text=True, env=environment(), cwd=tmp_path)
    assert "No module named 'd2l_gpu'" in missing.stderr
    before, listed = torch_there(bare.python), set(bare.own.iterdir())

    chapter = shutil.copy(repository / "chapters" / "02-tensors-on-gpu.ipynb", tmp_path)
    assert address.address_in(notebooks.read(chapter)) == f"git+{repository.as_uri()}@trunk"
    cell = notebooks.code_cells(notebooks.read(chapter))[0]
    text = notebooks.read(chapter)
    cell = next(c for c in text["cells"] if c["id"] == cell["id"])
    cell["metadata"]["tags"].append("nbval-ignore-output")  # here it says that it fetches
    Path(chapter).write_text(notebooks.canonical(text), encoding="utf-8")
    done = subprocess.run([bare.python, "-m", "pytest", "--nbval-lax", "--nbval-current-env", "-q", "-p", "no:cacheprovider", "-c", os.devnull,
                           "--rootdir", tmp_path, chapter], capture_output=True, text=True, env=environment(), cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert f"{len(notebooks.code_cells(text))} passed" in done.stdout

    new = {path.name for path in set(bare.own.iterdir()) - listed}
    assert "d2l_gpu" in new and all(name.startswith(("d2l_gpu", "__pycache__")) for name in new)
    assert (bare.own / "d2l_gpu" / "sample" / "LICENSE").exists() and list((bare.own / "d2l_gpu" / "recorded").glob("*.json"))
    assert torch_there(bare.python) == before


def test_a_chapter_that_cannot_fetch_says_so_in_words(bare, tmp_path):
    (tmp_path / "cell.py").write_text(
        "import sys, importlib.util\nimportlib.util.find_spec = lambda name: None\n"  # as if nothing had been fetched before
        + address.SOURCE.replace("{address}", f"git+{(tmp_path / 'nowhere').as_uri()}@main"))
    done = subprocess.run([bare.python, tmp_path / "cell.py"], capture_output=True, text=True, env=environment(), cwd=tmp_path)
    assert done.returncode == 1 and "RuntimeError: pip could not fetch d2l_gpu" in done.stderr and "copy the folder" in done.stderr
