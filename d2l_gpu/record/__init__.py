"""Measures this machine within a budget of minutes: `python -m d2l_gpu.record --minutes 8` (see __main__.py)."""

import os
import sys
from pathlib import Path


def python(module, *arguments):
    """The command that runs a module of this very package; the current folder is not searched."""
    return [sys.executable, "-P", "-m", module, *map(str, arguments)]


def environment(**changes):
    """This process's environment, in which the command of `python` finds what this process finds."""
    path = [str(Path(__file__).resolve().parents[2]), *filter(None, sys.path)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(path))} | changes
