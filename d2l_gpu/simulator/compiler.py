"""torch.compile: host work is compiled as always, device work is refused.

While PyTorch compiles, the compiling thread does not see the simulated devices: Inductor would
otherwise look for a driver and for Triton's GPU backend.
"""

from __future__ import annotations

import functools
import threading

import torch
from torch import nn

from .devices import Machine
from .errors import boundary, unsupported
from .tensor import SimulatedTensor


def _refuse_devices(tensors):
    if any(isinstance(tensor, SimulatedTensor) for tensor in tensors):
        raise unsupported("torch.compile of work on a device")


def _checked(function, module=None):
    @functools.wraps(function)
    def call(*args, **kwargs):
        _refuse_devices((*args, *kwargs.values()))
        if module is not None:
            _refuse_devices(module.parameters())
        return function(*args, **kwargs)

    return boundary(call)


def _compile(original):
    @functools.wraps(original)
    def compile(model=None, **options):
        if model is None:  # used as a decorator with options
            return functools.partial(compile, **options)
        compiled = original(model, **options)
        if not isinstance(compiled, nn.Module):
            return _checked(compiled)
        compiled.forward = _checked(compiled.forward, compiled)
        return compiled

    return boundary(compile)


def watch(machine: Machine, undo):
    """Hide the devices from a thread while it compiles, until `undo` is closed."""

    def start(args):
        machine.hidden_from = threading.get_ident()

    def end(args):
        machine.hidden_from = None

    handler = torch._dynamo.callback.callback_handler
    handler.register_start_callback(start)
    undo.callback(handler.remove_start_callback, start)
    handler.register_end_callback(end)
    undo.callback(handler.remove_end_callback, end)


def replacements():
    """(owner, name, stand-in) of torch.compile."""
    yield torch, "compile", _compile(torch.compile)
