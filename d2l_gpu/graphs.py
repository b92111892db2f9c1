"""A model of a CUDA graph that needs no GPU: what a block of code orders is recorded, and then done again on the same memory."""

import contextlib

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from .dispatch import Operators

_WAITS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::equal")
_READS = tuple(getattr(torch.Tensor, name) for name in ("__repr__", "__format__", "__array__", "tolist", "numpy", "cpu"))
_INDEXES = ("aten::index", "aten::index_put_", "aten::index_put", "aten::_index_put_impl_")


class GraphModel:
    """Records the operators of a block, and calls them again, with the same tensors, on `replay()`.

        graph = GraphModel()
        with graph.capture():
            Y = net(X)
        X.copy_(batch)
        graph.replay()          # Y holds net(batch)

    As in a CUDA graph, Python is not recorded: neither its `if` and `for`, nor its numbers. Each operator reads and writes
    the memory that it had during the recording, so inputs are copied into the recorded tensors, and results are where
    they were. What fetches a number raises RuntimeError with CUDA's words. Unlike a CUDA graph, the block is also run
    while it is recorded, its memory may be anywhere, and nothing becomes faster.

    `launches` is how many of the operators do something on a device: views and empty tensors do not.
    """

    def __init__(self):
        self.launches = 0
        self._orders = []

    @contextlib.contextmanager
    def capture(self):
        """Record what the block does. Raises RuntimeError where this graph holds a recording already."""
        if self._orders:
            raise RuntimeError("this graph is recorded already: make a new GraphModel")
        with _Reader(), _Recorder(self):
            yield self

    @torch.no_grad()
    def replay(self):
        """Do everything again. Raises RuntimeError where nothing was recorded."""
        if not self._orders:
            raise RuntimeError("nothing was recorded: call this after a `with graph.capture():` with operators in it")
        for function, args, kwargs, results in self._orders:
            for there, new in zip(results, _tensors(function(*args, **kwargs))):
                if not _same_memory(there, new):
                    there.copy_(new)


def _refuse(name):
    raise RuntimeError(f"operation not permitted when stream is capturing ({name} fetches from the device)")


class _Reader(TorchFunctionMode):
    """Refuses what reads a tensor without an operator, such as print."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in _READS:
            _refuse(f"Tensor.{function.__name__}")
        return function(*args, **(kwargs or {}))


class _Recorder(Operators):
    def __init__(self, graph):
        super().__init__()
        self.graph = graph

    def operator(self, function, args, kwargs):
        name = function._schema.name
        mask = name in _INDEXES and any(index.dtype == torch.bool for index in _tensors(args[1]))
        if name in _WAITS or mask:  # how many rows a mask picks is a value, too
            _refuse(name)
        results = function(*args, **kwargs)
        if function.namespace != "profiler":
            # Other tensors on the same memory: if this list held the gradients themselves, autograd would copy them
            self.graph._orders.append((function, args, kwargs, [result.detach() for result in _tensors(results)]))
            self.graph.launches += _does_something(function, (args, kwargs), results)
        return results


def _tensors(tree):
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _same_memory(a, b):
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def _does_something(function, given, results):
    if function._schema.is_mutable:
        return True
    if "empty" in function._schema.name:
        return False
    return not any(_same_memory(result, tensor) for result in _tensors(results) for tensor in _tensors(given))
