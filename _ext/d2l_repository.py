"""Where the book's repository is on the web, for links to it. Nothing but the standard library and, where it is installed, git.

Two variables answer where git cannot: BOOK_REPOSITORY_URL (the repository's web address) and BOOK_BRANCH (the branch that
links lead to).
"""

import os
import re
import subprocess


def git(*arguments, folder=None):
    """What git answers, or "" where it has no answer or is not installed."""
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=folder)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def web_address(address):
    """The https address of a repository, from any form that git takes; None if there is none, as for a folder."""
    ssh = re.fullmatch(r"(?:ssh://)?git@([^:/]+)[:/](.+)", address)
    if ssh:
        address = f"https://{ssh[1]}/{ssh[2]}"
    address = re.sub(r"(\.git)?/*$", "", re.sub(r"^https://[^/@]+@", "https://", address))  # nobody's name or password
    return address if re.fullmatch(r"https://[\w.:-]+(/[\w.~-]+)+", address) else None


def repository_address(folder=None):
    """The repository's web address, from BOOK_REPOSITORY_URL or git's remote `origin`; None if neither says."""
    address = os.environ.get("BOOK_REPOSITORY_URL")
    return web_address(git("remote", "get-url", "origin", folder=folder) if address is None else address)


def branch(folder=None):
    """The branch that links lead to: BOOK_BRANCH, the one that the current branch follows, the remote's own, the current."""
    found = os.environ.get("BOOK_BRANCH") or re.sub(r"^[^/]+/", "", (
        git("rev-parse", "--abbrev-ref", "@{upstream}", folder=folder)
        or git("rev-parse", "--abbrev-ref", "origin/HEAD", folder=folder)))
    return found or git("branch", "--show-current", folder=folder) or "main"


def path_in_repository(folder=None):
    """Where the book is inside its repository: "" at the top, else such as "books/gpu"."""
    return git("rev-parse", "--show-prefix", folder=folder).strip("/")


def on_github(address):
    """Whether Colab and Kaggle can open what is at this address: they know GitHub alone."""
    return bool(re.fullmatch(r"https://github\.com/[^/]+/[^/]+", address or ""))
