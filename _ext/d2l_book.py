"""The book's Sphinx extension: links to the repository only where there is one, scripts only where they are used."""

import os
import re
import subprocess


def repository_address():
    """The repository's web address, from BOOK_REPOSITORY_URL or git's remote `origin`; None if neither says."""
    address = os.environ.get("BOOK_REPOSITORY_URL")
    if address is None:
        try:
            done = subprocess.run(["git", "remote", "get-url", "origin"], capture_output=True, text=True)
        except OSError:  # no git
            return None
        address = done.stdout.strip()
    ssh = re.fullmatch(r"(?:ssh://)?git@([^:/]+)[:/](.+)", address)
    if ssh:
        address = f"https://{ssh[1]}/{ssh[2]}"
    address = re.sub(r"(\.git)?/*$", "", address)
    return address if address.startswith("https://") else None


def set_repository(app, config):
    """Jupyter Book fills in the address of its own repository where none is given: put ours, or take it out."""
    address = repository_address()
    options = config.html_theme_options
    if address:
        options["repository_url"] = address
        options["use_repository_button"] = True
    else:
        options.pop("repository_url", None)
        options["use_repository_button"] = options["use_issues_button"] = False


def drop_unused_script(app, page, template, context, doctree):
    """Jupyter Book puts every script of _static into every page: take interactive.js out where nothing is interactive."""
    if not re.search(r'<img[^>]* src="[^"]*/(roofline|timeline)\.svg"', context.get("body") or ""):
        context["script_files"] = [file for file in context["script_files"] if "interactive.js" not in str(file)]


def setup(app):
    app.connect("config-inited", set_repository)
    app.connect("html-page-context", drop_unused_script)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
