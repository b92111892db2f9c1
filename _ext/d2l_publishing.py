"""A Sphinx extension for the published book: links to the repository and buttons that open a chapter elsewhere, only where they
lead somewhere; a page for addresses that do not exist; a search that knows functions by name.

The variable BOOK_BASE_URL, where it is set, is the address that the pages are published at.
"""

import os
import re
from html import escape
from pathlib import Path
from urllib.parse import quote, urlsplit

from d2l_repository import branch, on_github, path_in_repository, repository_address
from sphinx.search import languages
from sphinx.search.en import SearchEnglish

FORGES = ("github.", "gitlab.", "bitbucket.")  # what the theme can link to
MISSING = Path(__file__).with_name("404.html")


class SearchNames(SearchEnglish):
    """The words of a page, and the parts of the names among them: find_bottleneck is found by "bottleneck" too."""

    def split(self, input):
        words = super().split(input)
        parts = [re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", word) for word in words if "_" in word.strip("_") or re.search("[a-z][A-Z]", word)]
        return words + [part for found in parts for part in found if len(part) > 2]


def set_repository(app, config):
    """Jupyter Book fills in the address of its own repository where none is given: put ours, or take it out."""
    address, options = repository_address(app.srcdir), config.html_theme_options
    launch = {"notebook_interface": "classic"}
    if address and any(forge in urlsplit(address).netloc for forge in FORGES):
        options |= {"repository_url": address, "repository_branch": branch(app.srcdir), "use_repository_button": True,
                    "path_to_docs": path_in_repository(app.srcdir)}
        launch |= {"colab_url": "https://colab.research.google.com"} if on_github(address) else {}
    else:
        options.pop("repository_url", None)
        options["use_repository_button"] = options["use_issues_button"] = False
    options["launch_buttons"] = launch
    config.html_baseurl = os.environ.get("BOOK_BASE_URL", "")


def add_kaggle(app, page, template, context, doctree):
    """Where the theme has put a button that opens the chapter in Colab, put one for Kaggle beside it."""
    for group in context.get("header_buttons", []):
        if group.get("label") == "launch-buttons":
            options = app.config.html_theme_options
            path = quote("/".join(filter(None, [options["path_to_docs"], f"{page}.ipynb"])))
            source = f"{options['repository_url']}/blob/{options['repository_branch']}/{path}"
            group["buttons"].append({"type": "link", "text": "Kaggle", "tooltip": "Launch on Kaggle", "icon": "fab fa-kaggle",
                                     "url": f"https://kaggle.com/kernels/welcome?src={quote(source, safe=':/')}"})


def write_missing_page(app, error):
    """404.html, which a server shows for any address that it does not know: links from the site's root where that is known.

    The page brings all that it needs: at an unknown depth, a relative path to a style sheet would lead nowhere.
    """
    if error or app.builder.name != "html":
        return
    base = urlsplit(app.config.html_baseurl).path.rstrip("/") + "/" if app.config.html_baseurl else ""
    chapters = [(app.builder.get_target_uri(name), app.env.titles[name].astext())
                for name in sorted(app.env.found_docs) if name.startswith("chapters/")]
    items = "\n".join(f'<li><a href="{base}{address}">{escape(title)}</a></li>' for address, title in chapters)
    text = MISSING.read_text(encoding="utf-8").replace("{base}", base).replace("{chapters}", items)
    (Path(app.outdir) / "404.html").write_text(text.replace("{title}", escape(app.config.html_title)), encoding="utf-8")


def setup(app):
    languages["en"] = SearchNames
    app.connect("config-inited", set_repository)
    app.connect("html-page-context", add_kaggle, priority=600)  # the theme makes its buttons at 501
    app.connect("build-finished", write_missing_page)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
