"""The built book: that it builds without a warning, and that its pages hold together and ask no other host."""

import subprocess
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import notebooks
import pytest

import d2l_book


class Page(HTMLParser):
    """What a page refers to: `links`, `assets` (things a browser fetches by itself), `images`, `ids`."""

    def __init__(self, path):
        super().__init__()
        self.path, self.links, self.assets, self.images, self.ids = path, [], [], [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        a = dict(attributes)
        if a.get("id"):
            self.ids.add(a["id"])
        if tag == "a" and a.get("href"):
            self.links.append(a["href"])
        if tag == "img":
            self.images.append(a)
        for name in ("src", "srcset", "poster", "data"):
            if a.get(name):
                self.assets.append(a[name])
        if tag == "link" and a.get("rel") not in ("canonical", "next", "prev", "search", "index", "author", "copyright"):
            self.assets.append(a.get("href", ""))


@pytest.fixture(scope="session")
def pages(html):
    return {path.relative_to(html).as_posix(): Page(path) for path in html.rglob("*.html") if "_static" not in path.parts}


def test_every_chapter_has_a_page(pages):
    assert {f"chapters/{path.stem}.html" for path in notebooks.chapters()} <= set(pages)


def test_no_page_asks_another_host_for_anything(pages):
    foreign = [(name, asset) for name, page in pages.items() for asset in page.assets
               if urlsplit(asset).scheme not in ("", "data") or asset.startswith("//")]
    assert not foreign


def test_style_sheets_ask_no_other_host(html):
    import re
    for sheet in html.rglob("*.css"):
        urls = re.findall(r"""(?:url\(|@import)\s*["']?([^"')\s]+)""", sheet.read_text(encoding="utf-8"))
        assert not [url for url in urls if url.startswith(("http:", "https:", "//"))], sheet


def test_internal_links_and_assets_resolve(html, pages):
    broken = []
    for name, page in pages.items():
        for target in page.links + page.assets:
            parts = urlsplit(target)
            if parts.scheme or target.startswith("//"):
                continue
            path = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
            if not path.exists():
                broken.append((name, target))
            elif parts.fragment and path.suffix == ".html" and path.is_relative_to(html.resolve()):
                other = pages.get(path.relative_to(html.resolve()).as_posix())
                if other and unquote(parts.fragment) not in other.ids:
                    broken.append((name, target))
    assert not broken


def test_external_links_are_secure(pages):
    assert not [(name, link) for name, page in pages.items() for link in page.links if link.startswith("http:")]


def test_pictures_say_what_they_show(pages):
    for name, page in pages.items():
        for image in page.images:
            if "logo" not in image.get("class", ""):
                assert len(image.get("alt") or "") > 30, (name, image)


def test_only_pages_with_an_interactive_picture_load_its_script(pages):
    for name, page in pages.items():
        moving = any(image["src"].endswith(("/roofline.svg", "/timeline.svg")) for image in page.images)
        assert moving == any("interactive.js" in asset for asset in page.assets), name


def test_without_an_address_there_is_no_link_to_a_repository(pages):
    for name, page in pages.items():
        assert not [link for link in page.links if "executablebooks" in link or "None" in link], name


@pytest.mark.parametrize("remote, address", [
    ("git@example.org:somebody/book.git", "https://example.org/somebody/book"),
    ("ssh://git@example.org/somebody/book.git", "https://example.org/somebody/book"),
    ("https://example.org/somebody/book.git", "https://example.org/somebody/book"),
    ("https://example.org/somebody/book/", "https://example.org/somebody/book"),
    ("/a/folder", None),
    ("", None),
])
def test_the_repositorys_address_is_read_from_git_or_the_variable(monkeypatch, tmp_path, remote, address):
    monkeypatch.setenv("BOOK_REPOSITORY_URL", remote)
    assert d2l_book.repository_address() == address
    monkeypatch.delenv("BOOK_REPOSITORY_URL")
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "-q"], check=True)
    if remote:
        subprocess.run(["git", "remote", "add", "origin", remote], check=True)
    assert d2l_book.repository_address() == address
