"""The book's Sphinx extension: scripts only where they are used, and pages that a browser shows without an error and a keyboard
or a screen reader can use."""

import re
from pathlib import Path


def drop_unused_script(app, page, template, context, doctree):
    """Jupyter Book puts every script of _static into every page: take interactive.js out where nothing is interactive."""
    if not re.search(r'<img[^>]* src="[^"]*/(roofline|timeline)\.svg"', context.get("body") or ""):
        context["script_files"] = [file for file in context["script_files"] if "interactive.js" not in str(file)]


#: What the theme and Jupyter Book write into pages, and what stands there instead.
MENDED = [
    # A browser refuses fonts to a page that is opened as a file, and logs an error; the icons do not need them.
    (r'<link rel="preload" as="font"[^>]*>', ""),
    # Thebe runs cells on another host. It is off, but its scripts are written all the same, twice, which is an error.
    (r'<link\b[^>]*/sphinx-thebe\.css[^>]*>|<script\b[^>]*/sphinx-thebe\.js[^>]*></script>', ""),
    (r'<script>(?:const THEBE_JS_URL|kernelName) =.*?</script>|<script type="text/x-thebe-config">.*?</script>', ""),
    # The title and the search button of the sidebar are outside of every landmark.
    (r'<div class="bd-sidebar-primary\b', '<div role="complementary" aria-label="Book" class="bd-sidebar-primary'),
    # All solutions would have this one name instead of the words that they show.
    (r'<summary aria-label="Toggle hidden content">', "<summary>"),
    # A header without a word heads nothing.
    (r'<th class="head"><p></p></th>', "<td></td>"),
    # The theme's script makes boxes of this class reachable by keyboard while they scroll.
    (r'<div class="pst-scrollable-table-container">', '<div class="pst-scrollable-table-container jp-RenderedHTMLCommon">'),
]


def breakable(code):
    """A long name in the text, with the places at which a line may end: after its punctuation, before its capitals."""
    return re.sub(r"(?<=\w)(::|[._/(,=])(?=\w)", r"\1<wbr/>", re.sub(r"(?<=[a-z])(?=[A-Z])", "<wbr/>", code))


def mend(html):
    """The text of a page with `MENDED` applied; a mended page stays as it is."""
    for pattern, replacement in MENDED:
        html = re.sub(pattern, replacement, html, flags=re.DOTALL)
    return re.sub(r'(?<=<span class="pre">)[^<]{17,}', lambda name: breakable(name[0]), html)


def mend_pages(app, exception):
    if exception is None and app.builder.format == "html":
        for path in Path(app.outdir).rglob("*.html"):
            before = path.read_text(encoding="utf-8")
            after = mend(before)
            if after != before:
                path.write_text(after, encoding="utf-8")


def search_without_excerpts(app, page, template, context, doctree):
    """The results' excerpts are fetched from the pages, which a browser refuses to a page that is opened as a file."""
    if page == "search":
        app.add_js_file(None, body='if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;')


def setup(app):
    app.connect("html-page-context", drop_unused_script)
    app.connect("html-page-context", search_without_excerpts, priority=400)  # before the scripts are looked through
    app.connect("build-finished", mend_pages)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
