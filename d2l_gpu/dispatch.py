"""Seeing every operator that a block of code runs: the base of what counts, orders and records them."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Operators(TorchDispatchMode):
    """`operator(func, args, kwargs)`, which a subclass defines, runs each operator and returns its result."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled() and func._can_decompose():  # arrives whole there: look inside
            with self:
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        return self.operator(func, args, kwargs)
