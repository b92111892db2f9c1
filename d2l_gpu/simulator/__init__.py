"""Simulated GPUs: real values in host memory, CUDA's rules of placement, and a ledger.

    gpus = simulate_gpus(2)              # from here on this process has cuda:0 and cuda:1
    x = torch.ones(2, 3, device="cuda:1")
    x + torch.ones(2, 3)                 # RuntimeError, in PyTorch's own words
    print(gpus.ledger)                   # copies, bytes, waits of the host, operators
    gpus.stop()                          # or: with simulate_gpus(2) as gpus: ...

What holds as on a real GPU: device tags and identity, the current and default device, the rule
that tensors must be together and the errors for breaking it, autograd across devices, optimizers,
mixed precision, nn.DataParallel, DataLoader workers and pinned memory, files with locations,
memory allocated and out of memory.  What is not simulated raises NotImplementedError by name.

Nothing here takes a GPU's time, streams run in program order, numbers are the CPU's (low-order
digits and random values included).  Code on large tensors runs about as fast as on the CPU.  An
operator costs about ten microseconds more, since it passes through Python: a thousand `x[i]`, a
thousand copies of a few numbers, a thousand in-place additions to them take several times the
CPU's time, for which PyTorch needs less than a microsecond each.

How it works is said in tensor.py; read that first, then placement.py and operators.py.
"""

from __future__ import annotations

import contextlib
import numbers
import warnings

import torch

from . import autocast, compiler, cuda, devices, host, modules, operators, private, rnn
from .errors import SimulatorUnavailable, reader_traceback
from .ledger import Ledger
from .tensor import SimulatedTensor

__all__ = [
    "Ledger", "SimulatedTensor", "Simulation", "SimulatorUnavailable", "reader_traceback",
    "simulate_gpus", "simulated",
]

_simulation: Simulation | None = None


class Simulation:
    """What `simulate_gpus` returns: `n` devices with `memory` bytes each. As a context manager it stops when the block ends."""

    def __init__(self, n: int, memory: int):
        self.n, self.memory = n, memory
        self._machine = devices.Machine(n, memory)
        self._undo = contextlib.ExitStack()

    @property
    def ledger(self) -> Ledger:
        """The `Ledger` of everything since the start."""
        return self._machine.books.whole

    def record(self):
        """A context manager that gives the `Ledger` of what happens in its block."""
        return self._machine.books.record()

    def stop(self):
        """End the simulation and restore torch.  Its tensors refuse to work from then on."""
        global _simulation
        self._undo.close()
        if _simulation is self:
            _simulation = None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.stop()

    def __repr__(self):
        state = "running" if _simulation is self else "stopped"
        return f"<Simulation of {_numbers(self.n, self.memory)}, {state}>"

    def _start(self):
        global _simulation
        import torch._dynamo  # takes a second, so only now; its tables must see torch as it is

        torch.utils._device._device_constructors()  # caches of PyTorch's own: fill them with the
        torch.overrides.get_testing_overrides()  # real functions
        _simulation = self
        self._undo.callback(devices.put_in_force, None)
        devices.put_in_force(self._machine)
        cuda.prepare(self._machine)
        for owner, name, value in [
            *cuda.replacements(self._machine), *host.replacements(), *modules.replacements(),
            *compiler.replacements(),
        ]:
            self._replace(owner, name, value)
        compiler.watch(self._machine, self._undo)
        # torch.tensor(..., device="cuda") makes a host tensor, then copies it
        self._undo.callback(torch._C._set_only_lift_cpu_tensors, torch._C._only_lift_cpu_tensors())
        torch._C._set_only_lift_cpu_tensors(True)
        self._register_kernels()
        torch.cuda.manual_seed_all(torch.initial_seed())

    def _replace(self, owner, name, value):
        """Set an attribute until stop()."""
        original = vars(owner).get(name)
        if name in vars(owner):
            self._undo.callback(setattr, owner, name, original)
        else:
            self._undo.callback(delattr, owner, name)
        setattr(owner, name, value)
        script = torch.jit._builtins._get_builtin_table()  # TorchScript knows functions by identity
        if id(original) in script:
            script[id(value)] = script[id(original)]
            self._undo.callback(script.pop, id(value))

    def _register_kernels(self):
        library = self._undo.enter_context(torch.library._scoped_library("aten", "IMPL"))

        def implement(op, kernel, key, **options):
            library.impl(op, kernel, key, allow_override=True, **options)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "Overriding a previously registered kernel": indeed
            for module in (operators, rnn, autocast):
                module.register(implement)


def simulate_gpus(
    n: int = 2, memory: float = 16 * 2**30, *, hide_real_gpus: bool = False
) -> Simulation:
    """Give this process `n` CUDA devices with `memory` bytes each, until stop().

    Called again with the same numbers, as when a notebook's cell is run again, it returns the
    simulation in force.  Where there is a real GPU it refuses, since cuda:0 would no longer be
    that one; `hide_real_gpus=True` says that this is wanted.

    Raises TypeError or ValueError for numbers that make no device, RuntimeError beside another
    simulation or a real GPU, SimulatorUnavailable if this torch release lacks a private name.
    """
    if isinstance(n, bool) or not isinstance(n, numbers.Integral):
        raise TypeError(f"simulate_gpus: n={n!r} must be a whole number of devices, such as 2")
    if n < 1:
        raise ValueError(
            f"simulate_gpus: n={n} makes no device; ask for at least 1, or do not call it"
        )
    if isinstance(memory, bool) or not isinstance(memory, numbers.Real):
        raise TypeError(
            f"simulate_gpus: memory={memory!r} must be a number of bytes, such as 16 * 2**30"
        )
    if not 1 <= memory < float("inf"):
        raise ValueError(
            f"simulate_gpus: memory={memory!r} must be a positive number of bytes, such as 2**30"
        )
    n, memory = int(n), int(memory)
    if _simulation is not None:
        if (_simulation.n, _simulation.memory) == (n, memory):
            return _simulation
        raise RuntimeError(
            f"simulate_gpus: {_numbers(_simulation.n, _simulation.memory)} are simulated already, "
            f"and you ask for {_numbers(n, memory)}; call stop() on the first simulation before"
        )
    private.check()
    if torch.cuda.is_available() and not hide_real_gpus:
        raise RuntimeError(
            "simulate_gpus: this machine has a real GPU, which a simulation would hide; if you "
            "want that, say simulate_gpus(..., hide_real_gpus=True)"
        )
    simulation = Simulation(n, memory)
    try:
        simulation._start()
    except BaseException:
        simulation.stop()
        raise
    return simulation


def simulated() -> Simulation | None:
    """The simulation in force, or None."""
    return _simulation


def _numbers(n, memory):
    return f"{n} GPUs of {memory:,} bytes"
