"""The built book: that it builds without a warning, and that its pages hold together and ask no other host."""

import subprocess
from urllib.parse import unquote, urlsplit

import notebooks
import pytest

import d2l_repository


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
        assert not [link for link in page.links if "colab.research" in link or "kernels/welcome" in link], name


def test_every_chapter_can_be_downloaded(pages):
    for path in notebooks.chapters():
        assert f"../_sources/chapters/{path.name}" in pages[f"chapters/{path.stem}.html"].links


@pytest.mark.parametrize("remote, address", [
    ("git@example.org:somebody/book.git", "https://example.org/somebody/book"),
    ("ssh://git@example.org/somebody/book.git", "https://example.org/somebody/book"),
    ("https://example.org/somebody/book.git", "https://example.org/somebody/book"),
    ("https://example.org/somebody/book/", "https://example.org/somebody/book"),
    ("https://name:word@example.org/somebody/book.git", "https://example.org/somebody/book"),
    ("/a/folder", None),
    ("", None),
])
def test_the_repositorys_address_is_read_from_git_or_the_variable(monkeypatch, tmp_path, remote, address):
    monkeypatch.setenv("BOOK_REPOSITORY_URL", remote)
    assert d2l_repository.repository_address() == address
    monkeypatch.delenv("BOOK_REPOSITORY_URL")
    monkeypatch.chdir(tmp_path)
    subprocess.run(["git", "init", "-q"], check=True)
    if remote:
        subprocess.run(["git", "remote", "add", "origin", remote], check=True)
    assert d2l_repository.repository_address() == address
