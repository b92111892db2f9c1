"""Doors from the host to the devices: constructors, Tensor.to and its relatives.

C++ would ask the driver about three things that a program may write in Python: which device "cuda"
or 1 is, what pinned memory is, and what numbers a list of device scalars holds.  The functions
that take such arguments are replaced by ones that spell them out first.
"""

from __future__ import annotations

import functools

import torch

from .devices import cuda_gpu, gpu_of, running
from .errors import boundary, in_words_of_cuda, unsupported
from .tensor import SimulatedTensor, parse_type, refuse_layout

_BARE = ("cuda", torch.device("cuda"))


def _spell(value):
    """An argument as C++ can read it without a driver."""
    if type(value) in (str, torch.device):
        return running().gpu().device if value in _BARE else value
    if type(value) in (list, tuple) and any(isinstance(item, SimulatedTensor) for item in value):
        return [item.tolist() if isinstance(item, SimulatedTensor) else item for item in value]
    return value


def _spell_device(device):
    """The same for an argument that can only be a device, where a number is an index."""
    gpu = None if device is None else gpu_of(device)
    return gpu.device if gpu else device


def _spelling(function):
    """`function` (Tensor.to, Tensor.new_tensor) with its arguments spelled out."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        args = [_spell(value) for value in args]
        if len(args) > 1 and type(args[1]) is int:  # x.to(0)
            args[1] = _spell_device(args[1])
        if "device" in kwargs:
            kwargs["device"] = _spell_device(kwargs["device"])
        if args[0].layout is not torch.strided or args[0].is_nested or args[0].is_quantized:
            if any(type(v) is torch.device and v.type == "cuda" for v in (*args, *kwargs.values())):
                refuse_layout(args[0])
        return function(*args, **kwargs)

    return boundary(call)


def _constructor(function):
    """A constructor such as torch.zeros with its arguments spelled out."""

    @functools.wraps(function)
    def call(*args, pin_memory=False, **kwargs):
        if "device" in kwargs:
            kwargs["device"] = _spell_device(kwargs["device"])
        generator = kwargs.get("generator")
        if generator is not None and generator._cdata in running().generators:
            if kwargs.get("device") is None and torch.get_default_device().type == "cpu":
                raise RuntimeError(
                    "Expected a 'cpu' device type for generator but found 'cuda'"
                )
        out = function(*map(_spell, args), **kwargs)
        return out.pin_memory() if pin_memory else out

    return boundary(call)


def _strided_only(function, what):
    """A constructor of sparse or nested tensors, which no simulated device holds."""

    @functools.wraps(function)
    def call(*args, **kwargs):
        device = kwargs.get("device")
        if gpu_of(torch.get_default_device() if device is None else device) is not None:
            raise unsupported(f"a {what} tensor on a device")
        for value in (*args, *kwargs.values()):
            values = value if isinstance(value, (list, tuple)) else [value]
            if any(isinstance(item, SimulatedTensor) for item in values):
                raise unsupported(f"a {what} tensor on a device")
        return function(*args, **kwargs)

    return boundary(call)


@boundary
def cuda(self, device=None, non_blocking=False, memory_format=torch.preserve_format):
    """Tensor.cuda()"""
    return self.to(cuda_gpu(device).device, non_blocking=non_blocking, memory_format=memory_format)


@boundary
def _type(self, dtype=None, non_blocking=False, **kwargs):
    """Tensor.type() of a host tensor."""
    if dtype is not None and not isinstance(dtype, torch.dtype):
        device_type, parsed = parse_type(dtype)
        if device_type == "cuda":
            return self.to("cuda", parsed, non_blocking=non_blocking)
    return _host_type(self, dtype, non_blocking, **kwargs) if dtype is not None else _host_type(self)


_host_type = torch.Tensor.type
_get_grad, _set_grad = torch.Tensor.grad.__get__, torch.Tensor.grad.__set__


@boundary
def _assign_grad(self, grad):
    """`tensor.grad = grad`, whose checks stand in C++ and name devices."""
    try:
        _set_grad(self, grad)
    except RuntimeError as error:
        if not isinstance(self, SimulatedTensor) and not isinstance(grad, SimulatedTensor):
            raise
        raise in_words_of_cuda(error) from None


def _delete_grad(self):
    _set_grad(self, None)


@boundary
def _set_default_tensor_type(kind, original=torch.set_default_tensor_type):
    if "cuda" in str(kind) or isinstance(kind, type(torch.cuda.FloatTensor)) and kind.is_cuda:
        raise unsupported("torch.set_default_tensor_type with a type of CUDA (use "
                          "torch.set_default_device)")
    original(kind)


def _backward(engine):
    """The autograd engine's entry: gradients must be where their tensors are."""

    @functools.wraps(engine)
    def run(outputs, grads, *args, **kwargs):
        for output, grad in zip(outputs, grads):
            if isinstance(output, torch.Tensor) and isinstance(grad, torch.Tensor):
                if output.device != grad.device and grad.dim() > 0:
                    raise RuntimeError(
                        f"Function {type(output.grad_fn).__name__} returned an invalid gradient at "
                        f"index 0 - expected device {output.device} but got {grad.device}"
                    )
        return engine(outputs, grads, *args, **kwargs)

    return boundary(run)


def constructors():
    """(owner, name, function) of PyTorch's constructors, from its own list of them."""
    known = torch.utils._device._device_constructors()
    for owner in (torch, torch.fft, torch.nested):
        for name, function in vars(owner).items():
            if callable(function) and function in known:
                yield owner, name, function


def replacements():
    """(owner, name, stand-in) of every function in this module's charge."""
    for owner, name, function in list(constructors()):
        if name.startswith("sparse_"):
            yield owner, name, _strided_only(function, "sparse")
        elif owner is not torch.nested:
            yield owner, name, _constructor(function)
    for name in ("nested_tensor", "as_nested_tensor", "nested_tensor_from_jagged"):
        yield torch.nested, name, _strided_only(getattr(torch.nested, name), "nested")
    yield torch, "set_default_tensor_type", _set_default_tensor_type
    yield torch.Tensor, "to", _spelling(torch.Tensor.to)
    yield torch.Tensor, "new_tensor", _spelling(torch.Tensor.new_tensor)
    yield torch.Tensor, "cuda", cuda
    yield torch.Tensor, "type", _type
    yield torch.Tensor, "grad", property(_get_grad, _assign_grad, _delete_grad)
    parse = torch._C._nn._parse_to
    yield torch._C._nn, "_parse_to", boundary(
        lambda *args, **kwargs: parse(*_device_first(args), **_device_named(kwargs))
    )
    engine = torch.autograd.graph._engine_run_backward
    for owner in (torch.autograd.graph, torch.autograd):
        yield owner, "_engine_run_backward", _backward(engine)
    context = torch.utils._device.DeviceContext

    def enter_device(self, device, init=context.__init__):
        init(self, _spell_device(device))

    yield context, "__init__", boundary(enter_device)


def _device_first(args):
    return (_spell_device(args[0]), *args[1:]) if args and type(args[0]) is int else args


def _device_named(kwargs):
    return kwargs | {"device": _spell_device(kwargs["device"])} if "device" in kwargs else kwargs
