"""Errors of simulated devices, and tracebacks that do not pass through the simulator.

A reader who adds a host tensor to a device tensor should see PyTorch's message below their own
line, not the machinery in between.  Every function of the simulator that PyTorch or the reader
calls is a boundary: an exception that leaves it first loses the simulator's frames.
"""

from __future__ import annotations

import functools
import os
import re

_HERE = os.path.dirname(__file__) + os.sep
# torch._ops calls the kernels and torch.library registers them: plumbing beneath a boundary.
_PLUMBING = (os.path.join("torch", "_ops.py"), os.path.join("torch", "library.py"))


class SimulatorUnavailable(RuntimeError):
    """Raised when this torch release lacks a private name that the simulator rests on."""


def unsupported(what: str) -> NotImplementedError:
    """The error for anything that is not simulated."""
    return NotImplementedError(f"simulate_gpus: {what} is not simulated")


def reader_traceback(error: BaseException) -> BaseException:
    """Cut the simulator's frames out of `error.__traceback__`, in place; return `error`."""
    frames, entry = [], error.__traceback__
    while entry is not None:
        file = entry.tb_frame.f_code.co_filename
        if not file.startswith(_HERE) and not file.endswith(_PLUMBING):
            frames.append(entry)
        entry = entry.tb_next
    for entry, following in zip(frames, [*frames[1:], None]):
        entry.tb_next = following
    error.__traceback__ = frames[0] if frames else None
    return error


def boundary(function):
    """Decorate a function that is called from outside the simulator.

    A bare `raise` passes on the exception without adding the current frame to its traceback, so
    that after reader_traceback() nothing of this wrapper or of `function` is left in it.
    """

    @functools.wraps(function)
    def call(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            reader_traceback(error)
            raise

    return call


def boundaries(cls):
    """Class decorator: every method, property and static method of `cls` is a boundary."""
    for name, value in list(vars(cls).items()):
        if isinstance(value, property):
            setattr(cls, name, property(*(f and boundary(f) for f in (value.fget, value.fset))))
        elif callable(value) and hasattr(value, "__code__"):
            setattr(cls, name, boundary(value))
    return cls


def in_words_of_cuda(error: RuntimeError) -> RuntimeError:
    """The same error with the device names that C++ knows ("meta:0") as the reader knows them."""
    return type(error)(re.sub(r"\bmeta\b", "cuda", str(error)))
