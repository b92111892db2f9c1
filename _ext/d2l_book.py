"""The book's Sphinx extension: scripts only where they are used."""

import re


def drop_unused_script(app, page, template, context, doctree):
    """Jupyter Book puts every script of _static into every page: take interactive.js out where nothing is interactive."""
    if not re.search(r'<img[^>]* src="[^"]*/(roofline|timeline)\.svg"', context.get("body") or ""):
        context["script_files"] = [file for file in context["script_files"] if "interactive.js" not in str(file)]


def setup(app):
    app.connect("html-page-context", drop_unused_script)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
