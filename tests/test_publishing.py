"""The book as it is published: buttons that open a chapter elsewhere, the page for unknown addresses, ways through the book."""

import json
import re
import shutil
import subprocess
from types import SimpleNamespace
from urllib.parse import urlsplit

import book
import d2l_landing
import d2l_publishing
import notebooks
import pytest
import yaml
from sphinx.search.en import SearchEnglish

HOME = "https://github.com/somebody/courses"
#: Addresses of pages that others link to: they stay. A new page is added here.
ADDRESSES = {"index.html", "intro.html", "search.html", "genindex.html", "404.html",
             *(f"pages/{name}.html" for name in ("installation", "cheat-sheet", "glossary", "api", "results", "sources")),
             *(f"chapters/{name}.html" for name in (
                 "01-devices", "02-tensors-on-gpu", "03-copying", "04-networks-on-gpu", "05-training-loop", "06-device-errors",
                 "07-when-a-gpu-helps", "08-data-pipeline", "09-dataloader", "10-profiling", "11-mixed-precision", "12-gpu-memory",
                 "13-streams", "14-several-gpus", "15-where-next"))}


@pytest.fixture(scope="module")
def published(tmp_path_factory, root):
    """The pages of the book in a folder of a repository on GitHub, built for the address where they will be."""
    repository = tmp_path_factory.mktemp("published") / "courses"
    repository.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=repository, check=True)
    return book.read_pages(book.build(root, repository / "books" / "gpu", BOOK_REPOSITORY_URL=f"{HOME}.git", BOOK_BRANCH="trunk",
                            BOOK_BASE_URL="https://somebody.example/courses"))


# ---------------------------------------------------------------------------------------------------- launching
def test_every_chapter_opens_in_colab_and_kaggle_at_its_branch_and_folder(published):
    for path in notebooks.chapters():
        links, place = published[f"chapters/{path.stem}.html"].links, f"blob/trunk/books/gpu/chapters/{path.name}"
        assert f"https://colab.research.google.com/github/somebody/courses/{place}" in links
        assert f"https://kaggle.com/kernels/welcome?src={HOME}/{place}" in links
        assert HOME in links and f"../_sources/chapters/{path.name}" in links


def test_pages_that_are_no_notebooks_have_no_such_button(published):
    for name, page in published.items():
        if not name.startswith("chapters/"):
            assert not [link for link in page.links if "colab.research" in link or "kernels/welcome" in link], name


def test_the_published_pages_ask_no_other_host_either(published):
    assert not [(name, asset) for name, page in published.items() for asset in page.assets
                if urlsplit(asset).scheme not in ("", "data") or asset.startswith("//")]


@pytest.mark.parametrize("address, button, launch", [
    ("https://github.com/somebody/book", True, True), ("https://gitlab.com/somebody/book", True, False),
    ("https://git.example.org/somebody/book", False, False), ("", False, False)])
def test_colab_is_offered_for_github_alone(monkeypatch, tmp_path, address, button, launch):
    monkeypatch.setenv("BOOK_REPOSITORY_URL", address)
    config = SimpleNamespace(html_theme_options={"repository_url": "https://github.com/other/one"}, html_baseurl="")
    d2l_publishing.set_repository(SimpleNamespace(srcdir=tmp_path), config)
    assert config.html_theme_options["use_repository_button"] is button
    assert config.html_theme_options.get("repository_url") == (address if button else None)
    assert ("colab_url" in config.html_theme_options["launch_buttons"]) is launch


@pytest.mark.parametrize("address, expected", [(HOME, "rocket"), ("https://gitlab.com/a/b", "Download"), (None, "Download")])
def test_the_landing_page_tells_how_a_chapter_opens_elsewhere(address, expected):
    assert expected in d2l_landing.opening(address)


@pytest.mark.parametrize("setting, variable, expected", [
    (["checkout", "-q", "-b", "work"], None, "work"),
    (["checkout", "-q", "-b", "work", "--track", "origin/v2/new"], None, "v2/new"),
    (["checkout", "-q", "--detach"], None, "trunk"),
    (["checkout", "-q", "-b", "work"], "other", "other")])
def test_the_branch_is_the_one_that_others_can_see(monkeypatch, tmp_path, setting, variable, expected):
    def git(*arguments, folder=tmp_path / "clone"):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments], cwd=folder, check=True, capture_output=True)
    git("init", "-q", "-b", "trunk", "origin", folder=tmp_path)
    git("commit", "-q", "--allow-empty", "-m", "first", folder=tmp_path / "origin")
    git("branch", "v2/new", folder=tmp_path / "origin")
    git("clone", "-q", "origin", "clone", folder=tmp_path)
    if expected == "work":
        git("remote", "remove", "origin")
    git(*setting)
    monkeypatch.setenv("BOOK_BRANCH", variable) if variable else monkeypatch.delenv("BOOK_BRANCH", raising=False)
    assert d2l_publishing.branch(tmp_path / "clone") == expected


# ------------------------------------------------------------------------------------------ an address that is none
def test_the_404_page_needs_nothing_and_leads_back_from_any_depth(published, pages):
    for page, base in ((published["404.html"], "/courses/"), (pages["404.html"], "")):  # pages: from a file, at the root
        assert not page.assets and not page.images
        assert {f"{base}index.html", f"{base}chapters/01-devices.html"} <= set(page.links)
        assert all(link.startswith(base) for link in page.links)
        assert f'action="{base}search.html"' in page.path.read_text(encoding="utf-8")


# ---------------------------------------------------------------------------------------------------- navigation
def test_no_page_has_moved(pages):
    assert ADDRESSES <= set(pages)
    assert {name for name in pages if name.startswith("chapters/")} <= ADDRESSES, "add the new chapter to ADDRESSES"


def test_pages_name_the_address_they_are_published_at(published, pages):
    canonical = '<link rel="canonical" href="https://somebody.example/courses/chapters/03-copying.html"'
    assert canonical in published["chapters/03-copying.html"].path.read_text(encoding="utf-8")
    assert 'rel="canonical"' not in pages["chapters/03-copying.html"].path.read_text(encoding="utf-8")


def test_previous_and_next_go_through_the_book_in_order(pages, root):
    toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
    order = ["intro"] + [entry["file"] for part in toc["parts"] for entry in part["chapters"]]
    step = {name: dict(re.findall(r'<a class="(left-prev|right-next)"\s+href="([^"]+)"', pages[f"{name}.html"].path.read_text(encoding="utf-8")))
            for name in order}
    for here, there in zip(order, order[1:]):
        assert step[here]["right-next"].endswith(f"{there.rpartition('/')[2]}.html")
        assert step[there]["left-prev"].endswith(f"{here.rpartition('/')[2]}.html")


def test_the_sidebar_shows_the_parts_and_numbers_the_chapters_through(pages):
    text = pages["intro.html"].path.read_text(encoding="utf-8")
    captions = re.findall(r'<span class="caption-text">([^<]+)</span>', text)
    assert list(dict.fromkeys(captions))[:4] == ["Devices", "Training", "Feeding the GPU", "Going faster"]
    numbers = re.findall(r'<a class="reference internal" href="chapters/[^"]+">(\d+)\. ', text)
    assert numbers[:len(notebooks.chapters())] == [str(k + 1) for k in range(len(notebooks.chapters()))]


def test_a_page_has_one_search_box(pages):
    for name, page in pages.items():
        if name not in ("search.html", "index.html", "404.html"):  # the search page shows the theme's own, the dialog stays shut
            assert page.path.read_text(encoding="utf-8").count('<form class="bd-search') == 1, name


def found(folder, query):
    """The pages that Sphinx's search finds for one word: those that have it or, if none has, a word that contains it."""
    text = (folder / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    word, names = SearchEnglish({}).stem(query.lower()), set()
    for terms in (index["terms"], index["titleterms"]):
        for term in [word] if word in terms else [term for term in terms if query.lower() in term]:
            names |= set(terms[term] if isinstance(terms[term], list) else [terms[term]])
    return {index["docnames"][k] for k in names}


@pytest.mark.parametrize("query, chapter", [
    ("try_gpu", "01-devices"), ("DeviceLoader", "09-dataloader"), ("find_bottleneck", "09-dataloader"), ("find_bottl", "09-dataloader"),
    ("bottleneck", "09-dataloader"), ("deviceload", "09-dataloader"), ("non_blocking", "03-copying"), ("GradScaler", "11-mixed-precision"),
    ("Scaler", "11-mixed-precision"), ("ensure_gpus", "02-tensors-on-gpu"), ("synchronize", "03-copying")])
def test_the_search_finds_functions_by_name_and_by_a_part_of_it(html, query, chapter):
    assert f"chapters/{chapter}" in found(html, query)


# ------------------------------------------------------------------------------------------------ the landing page
def run(chapter, date, seconds=4.0, machine="a machine", device="cpu", cells=3, of=3, error=None):
    return {"machine": machine, "published": None, "date": date, "devices": [{"device": device}],
            "chapters": [{"chapter": chapter, "passed": error is None, "cells": cells, "of": of, "seconds": seconds, "error": error}]}


@pytest.fixture
def small(tmp_path):
    """A book of two chapters, of three cells each."""
    (tmp_path / "_toc.yml").write_text("root: intro\nparts:\n- caption: One\n  chapters:\n  - file: chapters/01-a\n  - file: chapters/02-b\n"
                                       "- caption: Reference\n  chapters:\n  - file: pages/results\n")
    (tmp_path / "chapters").mkdir()
    for name in ("01-a", "02-b"):
        cells = [{"cell_type": "markdown", "source": [f"# About {name[-1]}\n", "\n", "After this chapter you can see, and tell.\n", "\n", "*Time*"]}]
        cells += [{"cell_type": "code", "source": ["1"], "metadata": tags} for tags in ({}, {}, {}, {"tags": [d2l_landing.OWN]})]
        (tmp_path / "chapters" / f"{name}.ipynb").write_text(json.dumps({"cells": cells}))
    return tmp_path


def rows(text):
    return [[part.strip() for part in line.strip("|").split("|")] for line in text.split("\n")]


def test_the_status_is_the_newest_run_on_each_kind_of_device(small):
    records = [run("01-a", "2026-03-01", 9), run("01-a", "2026-02-01", 5), run("01-a", "2026-01-01", 2, "a card", "cuda:0")]
    header, _, first, second = rows(d2l_landing.status(small, records))
    assert header == ["chapter", "without a GPU: a machine", "with an NVIDIA GPU: a card"]
    assert first == ["1 [About a](chapters/01-a.ipynb)", "2026-03-01; 9 s", "2026-01-01; 2 s"]
    assert second[1:] == ["not yet", "not yet"]


def test_the_status_says_what_failed_what_is_old_and_on_which_of_several_machines(small):
    records = [run("01-a", "2026-03-01", of=5, cells=5, machine="one"), run("02-b", "2026-03-01", 0.4, machine="two", cells=1, error="broken")]
    header, _, first, second = rows(d2l_landing.status(small, records))
    assert header[1:] == ["without a GPU", "with an NVIDIA GPU"]
    assert first[1] == "2026-03-01; 4 s; one; an earlier version, of 5 cells"
    assert second[1] == "2026-03-01; under 1 s; two; stopped at cell 2 of 3"


def test_a_part_lists_its_chapters_with_what_they_teach(small):
    assert d2l_landing.parts(small) == {"One": ["chapters/01-a", "chapters/02-b"]}
    assert d2l_landing.chapter_list(small, ["chapters/02-b"], 2) == "2. [About b](chapters/02-b.ipynb): see, and tell."


def test_without_records_the_landing_page_says_so(small):
    assert "No machine has been recorded yet" in d2l_landing.measured([])
    assert [row[1:] for row in rows(d2l_landing.status(small, []))[2:]] == [["not yet", "not yet"]] * 2


def test_the_landing_page_has_every_chapter_and_no_marker_left(pages):
    page = pages["intro.html"]
    assert "<!-- " not in re.sub(r"(?s)<head>.*?</head>", "", (page.path.read_text(encoding="utf-8"))).partition("<article")[2].partition("</article>")[0]
    for path in notebooks.chapters():
        assert page.links.count(f"chapters/{path.stem}.html") >= 3  # sidebar, list, status


# ---------------------------------------------------------------------------------------------- continuous integration
@pytest.mark.parametrize("path", sorted((notebooks.ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.stem)
def test_a_workflow_asks_for_few_rights_ends_in_time_and_names_versions(path):
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"} and "concurrency" in workflow
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 90
        assert all(re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|[0-9a-f]{40})", step["uses"]) for step in job["steps"] if "uses" in step)


def test_actionlint_finds_nothing(root):
    tool = shutil.which("actionlint")
    if not tool:
        pytest.skip("actionlint is not installed")
    done = subprocess.run([tool, *sorted(map(str, (root / ".github" / "workflows").glob("*.yml")))], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
