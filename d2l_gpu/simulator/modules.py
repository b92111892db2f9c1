"""Modules, optimizers and files: how parameters move between devices and keep their identity."""

from __future__ import annotations

import functools
import sys
from multiprocessing.reduction import ForkingPickler

import torch
from torch import nn
from torch.nn.parallel import comm

from .devices import default_device, gpu_of, machine_or_none
from .errors import boundaries, boundary, unsupported
from .host import cuda
from .tensor import SimulatedTensor, host_value, like, set_value, where, wrap

_set_data, _get_data = torch.Tensor.data.__set__, torch.Tensor.data.__get__


@boundary
def _move_data(self, new):
    """`tensor.data = new`, by which Module.to() moves a parameter and keeps the Python object."""
    if new is self:
        return
    if where(self) and where(new):
        set_value(self, new)
    elif not where(self) and not where(new):
        _set_data(self, new)
    else:  # between host and device the C++ tensor behind the object is exchanged
        grad, new = self.grad, like(self, new.detach())
        self.__class__, new.__class__ = new.__class__, self.__class__
        self.__dict__, new.__dict__ = new.__dict__, self.__dict__
        torch._C._swap_tensor_impl(self, new)
        # A gradient beside its tensor, as autograd demands here; Module.to() then makes the real
        # copy and puts it in the place of this one, so this one is not entered in the books.
        if grad is not None:
            grad = host_value(grad).detach()
            self.grad = wrap(grad, where(self)) if where(self) else grad


def _may_move_in_place(tensor, new, original=torch._has_compatible_shallow_copy_type):
    """May Module.to() exchange the data of `tensor`?  Between host and devices it may; from the
    meta device of PyTorch, or to it, the parameter is replaced."""
    if not where(tensor) and not where(new):
        return original(tensor, new)
    return not any(t.is_meta for t in (tensor, new))


# ------------------------------------------------------------------------------- lazy modules
_materialize = nn.parameter.UninitializedTensorMixin.materialize


@boundaries
class _Lazy:
    """Methods for uninitialized parameters: remember the device until there is a shape."""

    @property
    def device(self):
        return self.__dict__.get("_device", torch.device("cpu"))

    def to(self, *args, **kwargs):
        device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
        if dtype not in (None, self.dtype):
            raise unsupported("changing the dtype of an uninitialized parameter")
        if device is not None:
            gpu = gpu_of(device)
            self.__dict__["_device"] = gpu.device if gpu else torch.device(device)
        return self

    def cpu(self):
        return self.to("cpu")

    def materialize(self, shape, device=None, dtype=None):
        device = device or self.__dict__.pop("_device", "cpu")
        _materialize(self, shape, "cpu", dtype)
        self.data = torch.empty_like(self, device=device)


def _lazy_new(original):
    def new(cls, *args, device=None, **kwargs):
        self = original(cls, *args, device="cpu", **kwargs)
        return self.to(default_device() if device is None else device)

    return boundary(new)


# ----------------------------------------------------------------------------- nn.DataParallel
def _broadcast(tensors, devices, buffer_size=None):
    return [[tensor.cuda(device) for tensor in tensors] for device in devices]


def _reduce_add(inputs, destination=None, buffer_size=None):
    return tuple(
        functools.reduce(torch.add, [tensor.cuda(destination) for tensor in group])
        for group in zip(*inputs)
    )


def _scatter(tensor, devices=None, chunk_sizes=None, dim=0, streams=None, *, out=None):
    chunks = tensor.split(chunk_sizes, dim) if chunk_sizes else tensor.chunk(len(devices), dim)
    return tuple(chunk.cuda(device) for chunk, device in zip(chunks, devices))


def _gather(tensors, dim=0, destination=None, *, out=None):
    moved = [t.cpu() if destination == "cpu" else t.cuda(destination) for t in tensors]
    return torch.cat(moved, dim)


def _scatter_forward(ctx, target_gpus, chunk_sizes, dim, input):
    """Scatter.forward without its background streams (the original asks C++ for an accelerator)."""
    ctx.dim = dim
    ctx.input_device = input.get_device() if input.is_cuda else -1
    return comm.scatter(input, target_gpus, chunk_sizes, dim)


# ------------------------------------------------------------------------------------- files
_load_tensor = torch._utils._rebuild_tensor


def _location_tag(storage):
    """The location of a CUDA storage, so that the file is the one a real GPU would have left."""
    machine = machine_or_none()
    block = machine.blocks.get(storage._cdata) if machine else None
    return block.gpu.name if block else None


def _restore_location(storage, location):
    machine = machine_or_none()
    if machine is None or not location.startswith("cuda"):
        return None
    index = torch.serialization._validate_device(location, "cuda").index or 0
    storage._simulated_gpu = machine.gpu(index)
    machine.books.copied("H2D", storage.nbytes(), "H2D")
    return storage


@boundary
def _rebuild_tensor(storage, *geometry):
    gpu = getattr(storage._untyped_storage, "_simulated_gpu", None)
    tensor = _load_tensor(storage, *geometry)
    return SimulatedTensor(tensor, gpu) if gpu else tensor


@boundary
def _refuse_sharing(tensor):
    raise unsupported("sharing a device tensor with another process")


# Both decline unless a simulation runs; a SimulatedTensor can never be shared.
torch.serialization.register_package(0, _location_tag, _restore_location)
ForkingPickler.register(SimulatedTensor, _refuse_sharing)


def _host_profile(init):
    """torch.profiler without the device's time line."""

    @functools.wraps(init)
    def start(self, *args, **kwargs):
        asked = kwargs.get("activities") or ()
        if kwargs.get("use_cuda") or kwargs.get("use_device") == "cuda" or (
            torch.profiler.ProfilerActivity.CUDA in asked
        ):
            raise unsupported(
                "ProfilerActivity.CUDA (there is no GPU time to show; the ledger counts the work)"
            )
        init(self, *args, **kwargs)

    return boundary(start)


def replacements():
    """(owner, name, stand-in) of every attribute in this module's charge."""
    yield torch.Tensor, "data", property(_get_data, _move_data)
    yield torch, "_has_compatible_shallow_copy_type", _may_move_in_place
    optimizer = sys.modules["torch.optim.optimizer"]
    yield optimizer, "_foreach_supported_types", [
        *optimizer._foreach_supported_types, SimulatedTensor
    ]
    for lazy in (nn.UninitializedParameter, nn.UninitializedBuffer):
        yield lazy, "__new__", _lazy_new(lazy.__new__)
    for name in ("device", "to", "cpu", "materialize"):
        yield nn.parameter.UninitializedTensorMixin, name, vars(_Lazy)[name]
    yield nn.parameter.UninitializedTensorMixin, "cuda", cuda
    for name, stand_in in (
        ("broadcast_coalesced", _broadcast), ("reduce_add_coalesced", _reduce_add),
        ("scatter", _scatter), ("gather", _gather),
    ):
        yield comm, name, boundary(stand_in)
    scatter = nn.parallel._functions.Scatter
    yield scatter, "forward", staticmethod(boundary(_scatter_forward))
    yield torch._utils, "_rebuild_tensor", _rebuild_tensor
    for profile in (torch.autograd.profiler.profile, torch.profiler._KinetoProfile):
        yield profile, "__init__", _host_profile(profile.__init__)
