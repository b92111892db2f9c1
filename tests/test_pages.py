"""The built book: that it builds without a warning, and that its pages hold together and ask no other host."""

import re
import subprocess
from urllib.parse import unquote, urlsplit

import notebooks
import pytest

import d2l_book
import d2l_repository


def test_every_chapter_has_a_page(pages):
    assert {f"chapters/{path.stem}.html" for path in notebooks.chapters()} <= set(pages)


def test_no_page_asks_another_host_for_anything(pages):
    foreign = [(name, asset) for name, page in pages.items() for asset in page.assets
               if urlsplit(asset).scheme not in ("", "data") or asset.startswith("//")]
    assert not foreign


def test_style_sheets_ask_no_other_host(html):
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
        said = [image.get("alt") or "" for image in page.images if "logo" not in image.get("class", "")]
        assert all(len(alt) > 30 and not re.search(r"\.(png|svg)\b", alt) for alt in said), (name, said)  # no file's name
        assert len(set(said)) == len(said), (name, said)


def test_pictures_bring_their_own_background(html):
    from PIL import Image
    for path in (html / "_images").iterdir():
        if path.suffix == ".png":
            with Image.open(path) as image:
                assert image.convert("RGBA").getpixel((0, 0))[3] == 255, path.name
        else:
            width, height = re.search(r'viewBox="0 0 (\d+) (\d+)"', path.read_text(encoding="utf-8")).groups()
            assert re.search(rf'<rect[^>]* width="{width}" height="{height}"[^>]* fill="#', path.read_text(encoding="utf-8")), path.name


MENDED = """<link rel="preload" as="font" href="a.woff2" />
<link rel="stylesheet" href="_static/sphinx-thebe.css?v=4" /><link rel="stylesheet" href="_static/book.css" />
<script>const THEBE_JS_URL = "x"</script><script async src="_static/sphinx-thebe.js"></script><script src="_static/book.js"></script>
<script type="text/x-thebe-config">
{a: 1}
</script>
<script>kernelName = 'python3'</script>
<div class="bd-sidebar-primary bd-sidebar"><summary aria-label="Toggle hidden content">
<th class="head"><p></p></th><th class="head"><p>what</p></th>
<span class="pre">torch.cuda.memory_allocated</span> <span class="pre">cudaDeviceSynchronize</span> <span class="pre">loss.item</span>"""


def test_a_page_is_mended_once_and_the_rest_of_it_stays():
    once = d2l_book.mend(MENDED)
    assert d2l_book.mend(once) == once
    assert not re.search("thebe|kernelName|preload", once, re.IGNORECASE) and "book.css" in once and "book.js" in once
    assert '<div role="complementary" aria-label="Book" class="bd-sidebar-primary bd-sidebar"><summary>' in once
    assert "torch.<wbr/>cuda.<wbr/>memory_<wbr/>allocated" in once and "cuda<wbr/>Device<wbr/>Synchronize" in once
    assert '<td></td><th class="head"><p>what</p></th>' in once and '<span class="pre">loss.item</span>' in once


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
