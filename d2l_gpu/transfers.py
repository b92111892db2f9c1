"""Counting what moves between devices, and how often the host waits for one."""

import contextlib
from collections import Counter

import torch

from .devices import _simulation
from .dispatch import Operators

_DIRECTIONS = {"H2D": "host to device", "D2H": "device to host", "D2D": "device to device"}


class Transfers:
    """What `count_transfers` counted; printing it gives a line for each direction that was used.

    `copies` and `bytes` are dicts with the keys "H2D" (host to device), "D2H" (device to host) and "D2D" (one
    device to another); `waits` counts how often the host stopped until a device was done, by cause.
    """

    def __init__(self):
        self.copies = Counter(dict.fromkeys(_DIRECTIONS, 0))
        self.bytes = Counter(dict.fromkeys(_DIRECTIONS, 0))
        self.waits = Counter()

    def __str__(self):
        lines = [f"{words}: {self.copies[key]:,} {'copy' if self.copies[key] == 1 else 'copies'}, {self.bytes[key]:,} bytes"
                 for key, words in _DIRECTIONS.items() if self.copies[key]]
        causes = ", ".join(f"{cause} {n:,}" for cause, n in sorted(self.waits.items()))
        waits = f"waits: {self.waits.total():,}" + (f" ({causes})" if causes else "")
        return "\n".join((lines or ["copies between devices: 0"]) + [waits])

    __repr__ = __str__


@contextlib.contextmanager
def count_transfers():
    """Count the copies between devices inside a `with` block, their bytes, and the waits of the host.

        with d2l.count_transfers() as used:
            y = x.to(device)
        used

    Gives a `Transfers`, complete when the block ends. On simulated GPUs it is read from their ledger. On real
    devices it watches PyTorch's operators in the calling thread: it sees copies, `.item()`, printing, operators
    whose result has a size that the host must know (`nonzero`, a boolean mask), indices on the host, and calls of
    `torch.cuda.synchronize()`. It does not see what a DataLoader does in threads of its own, nor the
    synchronization of events and streams. On a CPU alone everything is zero.

    A copy is a wait unless it runs on while the host goes on: device to device, or `non_blocking=True` with
    pinned host memory. With `non_blocking=True` and ordinary memory the cause is "staging": the host goes on when
    the driver has taken the bytes over. Source: ATen's copy kernel for CUDA; CUDA Runtime API, "API
    synchronization behavior".
    """
    used = Transfers()
    simulation = _simulation()
    if simulation is None:
        with _watched(used), _Watch(used):
            yield used
        return
    with simulation.record() as ledger:
        try:
            yield used
        finally:
            used.copies.update(ledger.copies)
            used.bytes.update(ledger.bytes)
            used.waits.update(ledger.syncs)


class _Watch(Operators):
    """Enters each operator that moves something, or that makes the host wait, in a `Transfers`."""

    def __init__(self, used):
        super().__init__()
        self.used = used

    def operator(self, func, args, kwargs):
        out = func(*args, **kwargs)
        name = func._schema.name
        if name == "aten::_to_copy":
            self.copied(args[0], out, kwargs.get("non_blocking", False))
        elif name == "aten::copy_":
            self.copied(args[1], args[0], len(args) > 2 and args[2] or kwargs.get("non_blocking", False))
        elif name in ("aten::index", "aten::index_put", "aten::index_put_"):
            self.indexed(args[0], args[1])
        elif name == "aten::_local_scalar_dense":
            if not _on_host(args[0]):
                self.count("D2H", args[0].element_size(), "item")
        elif torch.Tag.dynamic_output_shape in func.tags or torch.Tag.data_dependent_output in func.tags:
            if any(isinstance(t, torch.Tensor) and not _on_host(t) for t in args):
                self.used.waits[name.removeprefix("aten::")] += 1
        return out

    def copied(self, source, target, non_blocking):
        if source.device == target.device:
            return
        kind = "H2D" if _on_host(source) else "D2H" if _on_host(target) else "D2D"
        # a blocking copy changes the dtype on the host, a non-blocking one on the device (ATen's copy_kernel_cuda)
        converted_first = non_blocking != _on_host(source)
        nbytes = source.numel() * (target if converted_first else source).element_size()
        host = source if kind == "H2D" else target
        if kind == "D2D" or (non_blocking and host.is_pinned()):
            wait = None
        else:
            wait = "staging" if non_blocking and kind == "H2D" else kind
        self.count(kind, nbytes, wait)

    def indexed(self, tensor, indices):
        """A mask makes the host wait for its size; an index on the host is copied to the device."""
        for index in () if _on_host(tensor) else indices:
            if index is not None and index.dtype in (torch.bool, torch.uint8):
                self.used.waits["index"] += not _on_host(index)
            if index is not None and _on_host(index):
                self.count("H2D", index.nbytes, "H2D")

    def count(self, kind, nbytes, wait):
        self.used.copies[kind] += 1
        self.used.bytes[kind] += nbytes
        if wait:
            self.used.waits[wait] += 1


def _on_host(tensor):
    return tensor.device.type == "cpu"


@contextlib.contextmanager
def _watched(used):
    """Let a `_Watch` see what PyTorch hides from it: synchronize, printing, and `torch.tensor(..., device=)`."""
    synchronize, to_text = torch.cuda.synchronize, torch._tensor_str._str_intern
    lift = torch._C._only_lift_cpu_tensors()

    def watched_synchronize(device=None):
        used.waits["synchronize"] += 1
        return synchronize(device)

    def watched_text(*args, **kwargs):  # PyTorch prints with all modes off
        with _Watch(used):
            return to_text(*args, **kwargs)

    torch.cuda.synchronize, torch._tensor_str._str_intern = watched_synchronize, watched_text
    torch._C._set_only_lift_cpu_tensors(True)  # make a host tensor, then copy it: what happens anyway, in the open
    try:
        yield
    finally:
        torch.cuda.synchronize, torch._tensor_str._str_intern = synchronize, to_text
        torch._C._set_only_lift_cpu_tensors(lift)
