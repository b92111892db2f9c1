"""Batches from data that lie on one device: no worker, no copy and no wait in a pass."""

import torch
from torch.utils.data import TensorDataset, default_collate

from .devices import try_gpu

_AT_ONCE = 1000  # items of a data set that are fetched before they go to the device


class DeviceLoader:
    """Batches of a data set that lies on one device as a whole, in a new order each pass if `shuffle`.

    `data` is a tuple or list of tensors with one row an example, such as `(images, labels)`, a TensorDataset, one
    tensor, or any data set with `len()` whose items are numbers and tensors of one shape. The items of the latter
    are fetched once, here: what is random in them is drawn once. Tensors keep their dtype, so bytes stay bytes;
    those that are on the device already are used as they are, the others are copied.

    A pass is one permutation of the rows, and a batch is a tuple of tensors of shape (batch_size, ...): copies of
    the picked rows, to do with as you like. As with a DataLoader, `batch_size`, `shuffle` and `drop_last` say how
    many there are, and `len()` counts them. `transform`, if given, is applied to the first tensor of each batch, on
    the device; what it draws at random, it draws once for the whole batch. The order comes from `generator`, or
    else from PyTorch's global one on the device. A generator on the CPU gives the same order on every device, and
    costs a pass one copy of 8 bytes for each example.

    Attributes: `tensors` (on the device), `device`, `nbytes` (of the tensors together).

    Raises torch.OutOfMemoryError, with the bytes asked for and those that are free, before anything is copied, if
    the data do not fit; `free` is a function of the device that tells the free bytes, or None if it cannot.
    Raises ValueError for a batch size below 1, data without examples, tensors of different length and items of
    different shapes, and TypeError for items that hold anything but numbers and tensors, and for a dict or arrays.

    Source: the loader of Keller Jordan's airbench, https://github.com/KellerJordan/cifar10-airbench, and
    torch.utils.data.DataLoader for the arguments.
    """

    def __init__(self, data, batch_size=1, shuffle=False, drop_last=False, device=None, transform=None, generator=None, *,
                 free=None):
        if batch_size < 1:
            raise ValueError(f"batch_size is at least 1, not {batch_size}")
        self.batch_size, self.shuffle, self.drop_last = batch_size, shuffle, drop_last
        self.transform, self.generator = transform, generator
        device = try_gpu() if device is None else torch.device(device)
        self.tensors = _placed(data, device, free or free_bytes)
        self.device = self.tensors[0].device
        self.nbytes = sum(t.nbytes for t in self.tensors)

    def __len__(self):
        n = len(self.tensors[0])
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)

    def __iter__(self):
        order = self._order()
        if self.drop_last:
            order = order[:len(self) * self.batch_size]
        for rows in order.split(self.batch_size) if len(order) else ():
            batch = [tensor.index_select(0, rows) for tensor in self.tensors]  # on a CPU faster than tensor[rows]
            if self.transform is not None:
                batch[0] = self.transform(batch[0])
            yield tuple(batch)

    def _order(self):
        n = len(self.tensors[0])
        if not self.shuffle:
            return torch.arange(n, device=self.device)
        drawn_on = self.device if self.generator is None else self.generator.device
        return torch.randperm(n, generator=self.generator, device=drawn_on).to(self.device)


def free_bytes(device):
    """The bytes that `device` has free, PyTorch's own reserve included; None where that cannot be found out."""
    if device.type == "cuda":
        reserve = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + reserve
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
    if device.type == "cpu":
        try:
            import psutil
            return psutil.virtual_memory().available
        except ImportError:
            return None
    return None


def _placed(data, device, free):
    """The data as a tuple of tensors on `device`."""
    if isinstance(data, TensorDataset):
        data = data.tensors
    tensors = (data,) if isinstance(data, torch.Tensor) else data
    columns = isinstance(tensors, (tuple, list)) and any(hasattr(t, "__array__") for t in tensors)  # tensors have it too
    if isinstance(data, dict) or columns and not all(isinstance(t, torch.Tensor) for t in tensors):
        raise TypeError(f"a {type(data).__name__} of {len(data)} that are not all tensors: give a tuple of tensors with one row "
                        "an example, such as (images, labels); torch.as_tensor makes one of an array or a list")
    if not columns:
        return _fetched(data, device, free)
    lengths = [len(t) if t.dim() else 0 for t in tensors]
    if len(set(lengths)) > 1:
        raise ValueError(f"the tensors have {' and '.join(map(str, lengths))} rows: each needs one row an example")
    if not lengths[0]:
        raise ValueError(f"there is no example in a tensor of shape {tuple(tensors[0].shape)}")
    _check_room(sum(t.nbytes for t in tensors if not _is_on(t, device)), device, free)
    return tuple(t.to(device) for t in tensors)


def _is_on(tensor, device):
    return tensor.device.type == device.type and device.index in (None, tensor.device.index)


def _fetched(dataset, device, free):
    """The items of a data set, fetched one by one, as a tuple of tensors on `device`."""
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise TypeError(f"{type(dataset).__name__} has no len() or no items by number: give the tensors themselves, or a "
                        "data set with __len__ and __getitem__")
    n, whole = len(dataset), None
    if not n:
        raise ValueError("there is no example in the data set")
    for start in range(0, n, _AT_ONCE):
        columns = _stacked([dataset[i] for i in range(start, min(n, start + _AT_ONCE))], start)
        if whole is None:
            _check_room(sum(c.nbytes // len(c) * n for c in columns), device, free)
            whole = tuple(torch.empty((n, *c.shape[1:]), dtype=c.dtype, device=device) for c in columns)
        if [c.shape[1:] for c in columns] != [t.shape[1:] for t in whole]:
            raise ValueError(f"{_ragged(start, len(columns[0]))}: those before were of another shape")
        for tensor, column in zip(whole, columns):
            tensor[start:start + len(column)] = column.to(device)
    return whole


def _stacked(items, start):
    try:
        columns = default_collate(items)
    except RuntimeError as error:
        raise ValueError(f"{_ragged(start, len(items))} ({str(error).splitlines()[0]})") from error
    columns = (columns,) if isinstance(columns, torch.Tensor) else columns
    if not isinstance(columns, (tuple, list)) or not all(isinstance(c, torch.Tensor) for c in columns):
        raise TypeError(f"item {start} of the data set is no tensor, number, or tuple of these: {str(items[0])[:80]}")
    return columns


def _ragged(start, count):
    return (f"items {start} to {start + count - 1} of the data set cannot be stacked; a DeviceLoader needs items of one "
            "shape (crop, resize or pad them)")


def _check_room(asked, device, free):
    available = free(device) if asked else None
    if available is not None and asked > available:
        raise torch.OutOfMemoryError(
            f"the data take {asked:,} bytes and {device} has {available:,} free. Keep bytes as bytes (uint8, and let "
            "`transform` convert each batch), take fewer examples, or load from main memory with a DataLoader")
