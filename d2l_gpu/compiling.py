"""Whether torch.compile can make kernels here, found out by letting it make one."""

import functools
import logging
import warnings

import torch

from .devices import _say_once


def compile_backend(device="cpu"):
    """The backend for `torch.compile(..., backend=...)` that works on `device`: "inductor", or else "eager".

    "inductor" is torch.compile's own, and needs a C++ compiler for a CPU, Triton and compute capability 7.0 for a CUDA
    GPU. "eager" traces in the same way, and then runs the operators one by one: right, and not faster. The reason for it
    is said once. The first call compiles a small function, which takes seconds; the answer is kept. Raises RuntimeError
    where even tracing fails, as with a Python that is too new for this torch.
    """
    backend, reason = _try(torch.device(device).type)
    if backend is None:
        raise RuntimeError(f"torch.compile cannot even trace here: {reason}. Call the function itself, without torch.compile.")
    if reason:
        _say_once(f"torch.compile makes no kernels here, it runs the operators one by one: {reason}")
    return backend


@functools.cache
def _try(kind):
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # it warns of a CUDA toolkit without a GPU
    reason = ""
    for backend in ("inductor", "eager"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                add = torch.compile(lambda x: x + 1, backend=backend)
                if add(torch.ones(8, device=kind)).sum().item() == 16:
                    return backend, reason
            reason = reason or "it computed something wrong"
        except Exception as error:  # every layer under it raises errors of its own
            reason = reason or _in_a_line(error)
    return None, reason


def _in_a_line(error):
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
