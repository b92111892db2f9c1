"""Devices, and how to ask for one without breaking on the next machine."""

import os
import sys

import torch

from .machine import _count

_said = set()  # the fallbacks that this process has already been told about


def _say_once(message):
    if message not in _said:
        _said.add(message)
        print(message)


def _check_index(i):
    if isinstance(i, bool) or not isinstance(i, int):
        raise ValueError(f"a GPU's index is an integer such as 0 or 1, not {i!r}")
    if i < 0:
        raise ValueError(f"a GPU's index starts at 0: {i} is negative")


def cpu():
    """The CPU: all of its cores and all of the machine's main memory.

    Source: d2l.torch's `cpu`.
    """
    return torch.device("cpu")


def gpu(i=0):
    """The device `cuda:i`: a label, which does not check that such a GPU exists.

    Raises ValueError if `i` is not an integer of at least 0. Source: d2l.torch's `gpu`.
    """
    _check_index(i)
    return torch.device("cuda", i)


def num_gpus():
    """The number of CUDA GPUs that PyTorch can use: 0 without one, without a working driver, or with a
    CPU-only build of torch. Apple and Intel GPUs are not counted; `try_gpu` finds the former.

    Source: d2l.torch's `num_gpus`; unlike it, a GPU that its driver cannot serve does not count.
    """
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _has_mps():
    return hasattr(torch.backends, "mps") and torch.backends.mps.is_available()


def try_gpu(i=0):
    """The device `cuda:i` if it exists; else Apple's GPU (`mps`) for i = 0 where there is one; else the CPU.

    Whatever stands in for `cuda:i` is said in one printed line, once per process.
    Raises ValueError if `i` is not an integer of at least 0. Source: d2l.torch's `try_gpu`.
    """
    _check_index(i)
    n = num_gpus()
    if i < n:
        return gpu(i)
    if i == 0 and _has_mps():
        _say_once("try_gpu(0): no CUDA GPU here, using Apple's GPU (mps)")
        return torch.device("mps")
    _say_once(_fallback(i, n))
    return cpu()


def _fallback(i, n):
    found = f"only {_count(n, 'GPU')}" if n else "no CUDA GPU"
    return f"try_gpu({i}): {found} here, using the CPU"


def try_all_gpus():
    """All GPUs, as a list of devices that is never empty: without a GPU it holds what `try_gpu()` returns.

    Source: d2l.torch's `try_all_gpus`, whose docstring promises `[cpu()]` and whose code returns `[]`.
    """
    return [gpu(i) for i in range(num_gpus())] or [try_gpu()]


def ensure_gpus(n):
    """Make a chapter about `n` GPUs run on this machine, and print what was done.

    With `n` real GPUs: nothing. With fewer, but some: `try_gpu` falls back to the CPU for the missing ones. With
    none: this process gets `n` simulated GPUs, which hold real values in main memory under CUDA's rules of
    placement and take no GPU's time (see `simulate_gpus`).

    The environment variable `D2L_GPU_SIMULATE` overrides the number of simulated GPUs: 0 for none, so that the
    CPU stands in for every GPU, or 1, 2 ... Beside a real GPU it has no effect but a printed line.
    Raises ValueError for an `n` below 1 or a value of the variable that is no number.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ValueError(f"ensure_gpus(n) needs a number of GPUs of at least 1, not {n!r}")
    wanted = os.environ.get("D2L_GPU_SIMULATE", "").strip()
    if wanted and not wanted.isdecimal():
        raise ValueError(f"D2L_GPU_SIMULATE={wanted!r} should be 0, 1, 2 ...: the number of GPUs to simulate")
    if _simulation() is None and num_gpus():
        if wanted:
            _say_once(f"D2L_GPU_SIMULATE={wanted} has no effect beside a real GPU; hide it with CUDA_VISIBLE_DEVICES=")
    elif wanted != "0":
        _simulate(int(wanted or n))
    here = num_gpus()
    if here < n:
        missing = ", ".join(f"cuda:{i}" for i in range(here, n))
        _say_once(f"{_count(here, 'GPU') if here else 'No GPU'} here: the CPU stands in for {missing}")
        _said.update(_fallback(i, here) for i in range(here, n))


def _simulate(n):
    from . import simulator
    running = simulator.simulated()
    if running is not None and running.n == n:
        return
    try:
        simulator.simulate_gpus(n)
    except simulator.SimulatorUnavailable as error:
        print(f"GPUs cannot be simulated with this release of torch, so the CPU stands in for them ({error})")
        return
    print(f"{_count(n, 'simulated GPU')}: real values, CUDA's rules of placement, no speed (no real GPU here)")


def _simulation():
    """The simulation in force, or None; does not import the simulator for the answer None."""
    module = sys.modules.get(f"{__package__}.simulator")
    return module.simulated() if module else None
