"""The built book for its tests: built as `make book` does, and what its pages refer to."""

import os
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path


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


def build(root, folder, **variables):
    """Build the book of `root` in `folder`, as `make book` does, with these variables set; the folder of its HTML."""
    shutil.copytree(root, folder, ignore=shutil.ignore_patterns(".venv*", "_build", ".git", "__pycache__", "tests"))
    tool = shutil.which("jupyter-book", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BOOK_")} | variables
    done = subprocess.run([tool, "build", ".", "--warningiserror", "--nitpick", "--keep-going"], cwd=folder,
                          capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder / "_build" / "html"


def read_pages(html):
    return {path.relative_to(html).as_posix(): Page(path) for path in html.rglob("*.html") if "_static" not in path.parts}
