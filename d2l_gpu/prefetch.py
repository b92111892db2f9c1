"""A loader's batches on a GPU, copied ahead of their use: `Prefetcher`."""

import dataclasses
from collections.abc import Mapping

import torch

from .training import to


class Prefetcher:
    """The batches of `loader` on `device`, each copied on a stream of its own while the one before is in use.

        for X, y in d2l.Prefetcher(loader, device): ...

    Batches are tensors in tuples, lists, dictionaries or dataclasses (see `d2l.to`), in pinned memory for preference:
    DataLoader(pin_memory=True). From ordinary memory the host waits for each copy, while the device is at the batch before.
    Iterate as often as you like; the last batch is included, what the loader raises is raised. On a device other than CUDA it
    gives the batches there, without streams. Raises TypeError if a batch holds no tensor that it can see: one in an object of
    another kind would be copied too, but nothing would keep its memory.

    Source: PyTorch, "CUDA semantics", CUDA streams; `Tensor.record_stream`.
    """

    def __init__(self, loader, device):
        self.loader, self.device, self._side = loader, torch.device(device), None

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        if self.device.type != "cuda":
            yield from (to(batch, self.device) for batch in self.loader)
            return
        if self._side is None:  # kept from pass to pass: each further stream would hold on to memory of its own
            self._side = torch.cuda.Stream(self.device)
        side, coming = self._side, None
        for batch in self.loader:
            with torch.cuda.stream(side):
                batch = to(batch, self.device)
            copied = side.record_event()  # not wait_stream later on: that would wait for the next copy as well
            if coming is not None:
                yield self._hand_over(*coming)
            coming = batch, copied
        if coming is not None:
            yield self._hand_over(*coming)

    def _hand_over(self, batch, copied):
        stream = torch.cuda.current_stream(self._side.device)
        stream.wait_event(copied)
        there = [tensor for tensor in tensors_in(batch) if tensor.is_cuda]
        if not there:
            raise TypeError(f"a batch of type {type(batch).__name__} holds no tensor in tuples, lists, dictionaries or dataclasses; "
                            "have the loader give one of these (see collate_fn)")
        for tensor in there:
            tensor.record_stream(stream)
        return batch


def tensors_in(value):
    """All tensors in a batch, or in the arguments of an operator."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple, Mapping)) or dataclasses.is_dataclass(value):
        inside = value if isinstance(value, (list, tuple)) else value.values() if isinstance(value, Mapping) else vars(value).values()
        for item in inside:
            yield from tensors_in(item)
