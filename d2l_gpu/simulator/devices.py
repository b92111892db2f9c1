"""The simulated devices: their number, their memory, and which of them is current.

`start` in __init__.py makes one Machine and puts it in force; everything else asks running().
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections import Counter, deque
from types import SimpleNamespace

import torch

from .ledger import Books

_BLOCK = 512  # CUDA's allocator rounds every request up to a multiple of this many bytes
_COUNTED = ("allocated_bytes", "allocation", "reserved_bytes")


class Gpu:
    """One simulated device and its memory."""

    def __init__(self, machine: Machine, index: int, memory: int):
        self.machine, self.index, self.capacity = machine, index, memory
        self.fraction = 1.0  # of the capacity, that this process may use
        self.device = torch.device("cuda", index)
        self.name = str(self.device)
        self.in_cpp = torch.device("meta", index)  # what C++ takes the device for
        self.generator = None  # set by cuda.py once its Generator class is in force
        self.properties = SimpleNamespace(
            name="Simulated GPU", major=8, minor=0, total_memory=memory,
            multi_processor_count=1, warp_size=32,
        )
        self._out_of_memory = 0
        self._stats = {name: Counter() for name in _COUNTED}
        self._freed = deque()  # sizes of dead blocks, still to be entered
        self._lock = threading.Lock()

    def allocate(self, nbytes: int) -> Block:
        """Reserve memory for one storage, or raise torch.OutOfMemoryError as CUDA does."""
        nbytes = -(-nbytes // _BLOCK) * _BLOCK
        with self._lock:
            self._require(nbytes)
            used = self._stats["allocated_bytes"]["current"] + nbytes
            self._count("allocated_bytes", nbytes)
            self._count("allocation", 1)
            # Freed memory stays with the caching allocator until empty_cache().
            self._count("reserved_bytes", max(0, used - self.reserved))
        return Block(self, nbytes)

    def require(self, nbytes: int):
        """Raise torch.OutOfMemoryError unless `nbytes` are free, before the host makes them."""
        with self._lock:
            self._require(nbytes)

    def _require(self, nbytes):
        self._enter_freed()
        used = self._stats["allocated_bytes"]["current"]
        allowed = int(self.fraction * self.capacity)
        if used + nbytes > allowed:
            self._out_of_memory += 1
            limit = f"{_size(allowed)} allowed; " if allowed < self.capacity else ""
            raise torch.OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate {_size(nbytes)}. GPU {self.index} has a "
                f"total capacity of {_size(self.capacity)} of which {_size(self.capacity - used)} "
                f"is free. {limit}Of the allocated memory {_size(used)} is allocated by PyTorch, and "
                f"{_size(self.reserved - used)} is reserved by PyTorch but unallocated."
            )

    def free(self, nbytes: int):
        """Give memory back.

        The garbage collector calls this at any moment, also in the middle of _count(), so it only
        leaves a note (one atomic operation, no lock); the next to ask enters it in the books.
        """
        self._freed.append(nbytes)

    def _enter_freed(self):
        while self._freed:
            self._count("allocated_bytes", -self._freed.popleft())
            self._count("allocation", -1)

    def _count(self, name: str, amount: int):
        stat = self._stats[name]
        stat["current"] += amount
        stat["allocated" if amount > 0 else "freed"] += abs(amount)
        stat["peak"] = max(stat["peak"], stat["current"])

    @property
    def reserved(self) -> int:
        """Bytes that the caching allocator holds."""
        return self._stats["reserved_bytes"]["current"]

    def empty_cache(self):
        """Return the memory that no tensor uses."""
        with self._lock:
            self._enter_freed()
            self._count("reserved_bytes", self._stats["allocated_bytes"]["current"] - self.reserved)

    def reset_peak(self):
        """Let the peaks start again from what is in use now."""
        with self._lock:
            self._enter_freed()
            for stat in self._stats.values():
                stat["peak"] = stat["current"]

    def memory_stats(self) -> dict:
        """What torch.cuda.memory_stats() is made of; what is not tracked is zero."""
        with self._lock:
            self._enter_freed()
            zero = dict.fromkeys(("current", "peak", "allocated", "freed"), 0)
            untracked = {"segment": {}, "inactive_split": {}, "inactive_split_bytes": {}}
            stats = {
                name: {"all": zero | stat, "large_pool": zero, "small_pool": zero}
                for name, stat in (untracked | self._stats).items()
            }
        return stats | {
            "active": stats["allocation"],
            "active_bytes": stats["allocated_bytes"],
            "requested_bytes": stats["allocated_bytes"],
            "num_ooms": self._out_of_memory,
            "num_alloc_retries": 0,
            "oversize_allocations": zero,
            "oversize_segments": zero,
        }


class Block:
    """The memory of one storage on a device, given back when the last tensor using it is gone."""

    def __init__(self, gpu: Gpu, nbytes: int):
        self.gpu, self.nbytes = gpu, nbytes

    def __del__(self):
        self.gpu.free(self.nbytes)


def _size(nbytes: int) -> str:
    """A size as PyTorch's allocator prints it."""
    for unit, power in (("bytes", 0), ("KiB", 10), ("MiB", 20)):
        if nbytes <= 2 ** (power + 10):
            return f"{nbytes} bytes" if power == 0 else f"{nbytes / 2**power:.2f} {unit}"
    return f"{nbytes / 2**30:.2f} GiB"


class Machine:
    """The simulated hardware of this process."""

    def __init__(self, n: int, memory: int):
        self.books = Books()
        self.forked = False  # true in a child process, where CUDA does not work either
        self.hidden_from = None  # the thread that torch.compile keeps from seeing the devices
        self.gpus = [Gpu(self, index, memory) for index in range(n)]
        # Host storages, by address: the device memory they stand for, and those that are pinned.
        self.blocks: weakref.WeakValueDictionary[int, Block] = weakref.WeakValueDictionary()
        self.pinned: weakref.WeakSet = weakref.WeakSet()
        self.generators: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
        self._random_lock = threading.RLock()
        self.thread = threading.local()  # CUDA's current device belongs to the thread

    @property
    def hidden(self) -> bool:
        """Is the calling thread kept from seeing the devices?  (See compiler.py.)"""
        return self.hidden_from == threading.get_ident()

    @property
    def current(self) -> int:
        """Index of the calling thread's current device."""
        return getattr(self.thread, "device", 0)

    def exchange_device(self, index: int) -> int:
        """Make `index` current (a negative one changes nothing) and return the previous one."""
        previous = self.current
        if index >= 0:
            self.thread.device = self.gpu(index).index
        return previous

    def gpu(self, index: int | None = None) -> Gpu:
        """The device with this index, or the current one."""
        index = self.current if index is None else index
        if not 0 <= index < len(self.gpus):
            raise torch.AcceleratorError(_INVALID_ORDINAL)
        return self.gpus[index]

    def block(self, value: torch.Tensor, gpu: Gpu) -> Block:
        """The device memory behind the host tensor `value`, allocated if it is new or has grown."""
        storage = value.untyped_storage()
        block = self.blocks.get(storage._cdata)
        if block is None or block.nbytes < storage.nbytes():
            block = self.blocks[storage._cdata] = gpu.allocate(storage.nbytes())
        return block

    @contextlib.contextmanager
    def random_numbers(self, gpu: Gpu):
        """Let a kernel of the CPU draw from the device's generator instead of the host's."""
        host = torch.default_generator
        with self._random_lock:
            saved = host.get_state()
            host.set_state(gpu.generator.get_state())
            try:
                yield
            finally:
                gpu.generator.set_state(host.get_state())
                host.set_state(saved)


_LATE = """CUDA kernel errors might be asynchronously reported at some other API call, so the \
stacktrace below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""
_IN_A_FORK = "CUDA error: initialization error\n" + _LATE
_INVALID_ORDINAL = f"""CUDA error: invalid device ordinal
GPU device may be out of range, do you have enough GPUs?
{_LATE}"""

_machine: Machine | None = None


def put_in_force(machine: Machine | None):
    """Make `machine` the hardware of this process (None: no simulation)."""
    global _machine
    _machine = machine


def machine_or_none() -> Machine | None:
    """The machine in force, if any."""
    return _machine


def running(gpu: Gpu | None = None) -> Machine:
    """The machine in force, to which `gpu` must belong.

    No machine works in a forked child.  PyTorch says so itself where it would start CUDA, and
    leaves the word to CUDA in an operator on a tensor that was inherited, for which `gpu` is given.
    """
    if _machine is None or (gpu is not None and gpu.machine is not _machine):
        raise RuntimeError(
            "simulate_gpus: the simulation to which this tensor belongs has been stopped"
        )
    if _machine.forked:
        if gpu is not None:
            raise torch.AcceleratorError(_IN_A_FORK)
        raise RuntimeError(
            "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, "
            "you must use the 'spawn' start method"
        )
    return _machine


def _note_the_fork():
    if _machine is not None:
        _machine.forked = True


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(after_in_child=_note_the_fork)


def gpu_of(device) -> Gpu | None:
    """The simulated device that a device argument names; None for any other device.

    "cuda" is the current device, and so is a number an index of one (PyTorch reads it so where
    there is an accelerator).  C++ names cuda:i as meta:i, so that stands for it, too; the program's
    own meta tensors have no index.
    """
    if type(device) is int:
        return running().gpu(device)
    device = torch.device(device)
    if device.type == "cuda" or (device.type == "meta" and device.index is not None):
        return running().gpu(device.index)
    return None


def cuda_gpu(device=None) -> Gpu:
    """The simulated device that an argument of torch.cuda's functions names."""
    gpu = gpu_of("cuda" if device is None else device)
    if gpu is None:
        raise ValueError(f"Expected a cuda device, but got: {device}")
    return gpu


def default_device() -> torch.device:
    """Where a constructor without `device=` puts its tensor.

    (torch.get_default_device() fails in torch 2.9 once the default has been reset to None.)
    """
    return torch.empty(0).device
