"""Operators with a rule of their own: copies, waits, pinned memory, creation.

Some are met in dispatch() (see SPECIAL there).  Others never see a SimulatedTensor among their
arguments, or are taken apart by autograd before dispatch(): for those, Python kernels are
registered with torch.library while a simulation runs.
"""

from __future__ import annotations

import functools

import torch

from . import placement
from .devices import Gpu, gpu_of, running
from .errors import boundary
from .tensor import (
    SimulatedTensor, decomposed, dispatch, finish, host_value, run_kernel, set_value, special,
    traits_of, where, wrap,
)

aten = torch.ops.aten


# ---------------------------------------------------------------------------- copies and waits
def _enter_copy(src: torch.Tensor, gpu: Gpu | None, dtype, non_blocking):
    """Enter the copy of `src` to `gpu` (None: the host)."""
    books, source = running().books, where(src)
    if source is gpu:
        return books.computed(gpu.name)
    kind = "H2D" if source is None else "D2H" if gpu is None else "D2D"
    # Whoever sends converts for a device, so the bytes on the way have the new type; what comes
    # back to the host is converted there.
    itemsize = src.element_size() if kind == "D2H" else dtype.itemsize
    overlaps = kind == "D2D" or (non_blocking and (kind == "D2H" or _is_pinned(src)))
    books.copied(kind, src.numel() * itemsize, None if overlaps else kind)


@special(aten._to_copy.default)
def _to_copy(func, src, *, device=None, non_blocking=False, pin_memory=None, **kwargs):
    gpu = src._gpu if device is None else gpu_of(device)
    value = func(host_value(src), device="cpu" if gpu else device, **kwargs)
    _enter_copy(src, gpu, value.dtype, non_blocking)
    return wrap(value, gpu) if gpu else value


@special(aten.copy_.default)
def _copy_(func, dst, src, non_blocking=False):
    # Here ends every copy from the host: C++ has made an empty tensor on the device and fills it.
    if isinstance(dst, SimulatedTensor) and dst.shape == src.shape:
        dst._blank = False
    func(host_value(dst), host_value(src))
    _enter_copy(src, where(dst), dst.dtype, non_blocking)
    return dst


@special(aten._local_scalar_dense.default)
def _item(func, tensor):
    running().books.copied("D2H", tensor.element_size(), "item")
    return func(host_value(tensor))


@special(aten.is_pinned.default)
def _pinned(func, tensor, device=None):
    return _is_pinned(tensor)


def _is_pinned(tensor):
    return where(tensor) is None and tensor.untyped_storage() in running().pinned


@special(aten._pin_memory.default)
def _pin_memory(func, tensor, device=None):
    if where(tensor):
        raise RuntimeError(
            f"cannot pin '{placement.type_name(tensor)}' only dense CPU tensors can be pinned"
        )
    pinned = tensor.clone()
    running().pinned.add(pinned.untyped_storage())
    return pinned


@special(aten.set_.source_Tensor)
def _set_(func, tensor, source):
    """Tensor.set_(): both share one memory from now on."""
    if where(tensor) is not where(source):
        raise RuntimeError(
            f"Attempted to set the storage of a tensor on device \"{tensor.device}\" to a storage "
            f"on different device \"{source.device}\".  This is no longer allowed; the devices "
            "must match."
        )
    set_value(tensor, source.detach())
    return tensor


def _instead(operator):
    return lambda func, tensor: dispatch(operator, (tensor,), {})


# Conjugation and negation are lazy in PyTorch, a mark on the tensor.  Below __torch_dispatch__ the
# CPU's kernels would ignore the mark on a wrapped tensor, so here they are done at once.
special(aten._conj.default)(_instead(aten._conj_physical.default))
special(aten._neg_view.default)(_instead(aten.neg.default))


# ------------------------------------------------------------------------------------ creation
@functools.cache
def _factories():
    """The operators that make a tensor of nothing but numbers, on a device of the caller's choice:
    empty, ones, arange, rand, ..."""
    found = []
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        if namespace != "aten" or rest.startswith("__"):
            continue
        base, _, overload = rest.partition(".")
        op = getattr(getattr(aten, base, None), overload or "default", None)
        if op is None:
            continue
        arguments = {argument.name: str(argument.type) for argument in op._schema.arguments}
        if {"device", "pin_memory"} <= set(arguments) and "Tensor" not in str(arguments.values()):
            found.append(op)
    return found


def _create(op, device, args, kwargs):
    gpu = gpu_of(device)
    if op is aten._efficientzerotensor.default:
        op = aten.zeros.default  # its memoryless value would need a key that is excluded below
    value = run_kernel(op, gpu, args, kwargs | {"device": "cpu"})
    return finish(op, traits_of(op), args, kwargs, value, gpu)


def _factory_kernel(op, original):
    @boundary
    def kernel(keys, *args, device=None, pin_memory=None, **kwargs):
        if original and device.index is None:  # a meta tensor of the program's own
            return original.call_boxed(
                keys, *args, device=device, pin_memory=pin_memory, **kwargs
            )
        return _create(op, device, args, kwargs)

    return kernel


# Composite operators whose C++ code checks devices and names them in its error.
_NAMES_DEVICES = (
    aten.scaled_dot_product_attention.default, aten.tensor_split.tensor_indices_or_sections,
    aten.take_along_dim.default, aten.inner.default,
)


def _taken_apart(op):
    return boundary(lambda *args, **kwargs: decomposed(op, args, kwargs))


def register(implement):
    """Register the kernels of this module: `implement(operator, kernel, key, **options)`."""
    for op in _factories():
        original = torch.library.get_kernel(op, "Meta")
        implement(op, _factory_kernel(op, None), "CUDA", with_keyset=True)
        implement(op, _factory_kernel(op, original), "Meta", with_keyset=True)
    implement(aten.is_pinned.default, functools.partial(_pinned, None), "CPU")
    implement(aten._pin_memory.default, boundary(functools.partial(_pin_memory, None)), "CPU")
    for op in _NAMES_DEVICES:
        implement(op, _taken_apart(op), "AutogradMeta")
