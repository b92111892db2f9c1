"""Data sets for DataLoader workers. They are here and not in a chapter because a worker process may have to import them.

On macOS and Windows, and on Linux from Python 3.14 on, a worker starts as a new Python that has run no notebook cell.
"""

import math
import mmap
import time
from pathlib import Path

import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info


def _worker():
    """The number of the worker this runs in, or -1 in the training process, and how many workers there are."""
    info = get_worker_info()
    return (-1, 0) if info is None else (info.id, info.num_workers)


class Probe(Dataset):
    """A data set that shows who fetched what: sample `i` is `(i, worker, draw)`.

    `worker` is the number of the worker process that fetched it, from 0, and -1 in the training process. `draw` is a
    random number between 0 and 1, drawn there, as a random transform would. A sample takes `seconds` to load, spent
    asleep: it stands for reading, and costs no core. `fetched` counts the samples that this copy of the data set gave. Raises IndexError for a sample that is not there.
    """

    def __init__(self, n, seconds=0.0):
        self.n, self.seconds, self.fetched = n, seconds, 0

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if not 0 <= i < self.n:
            raise IndexError(f"sample {i} of a data set of {self.n}")
        self.fetched += 1
        time.sleep(self.seconds)
        return i, _worker()[0], torch.rand(()).item()


class Stream(IterableDataset):
    """The numbers 0 to `n - 1` as a stream, which can be read from its beginning and in no other order.

    With `split`, worker `k` of `N` yields only the numbers k, k + N, k + 2N and so on, so that together they yield each
    once. Without it every worker yields all of them, as a stream does that does not know of workers.
    """

    def __init__(self, n, split=True):
        self.n, self.split = n, split

    def __iter__(self):
        worker, workers = _worker()
        if not self.split or worker < 0:
            worker, workers = 0, 1
        return iter(range(worker, self.n, workers))


class MappedImages(Dataset):
    """Images in one file of raw bytes, read one at a time: the file may be larger than main memory.

    `path` is a file of uint8 images of the given `shape`, such as (3, 32, 32), one after the other. `labels` is a tensor
    with one label an image. Sample `i` is `(image, label)`, the image being a uint8 tensor of that shape, or what
    `transform` makes of it. The file is mapped, not loaded: the system reads the pages that are touched, keeps them in
    its page cache as long as there is room, and shares them among the workers. Each worker maps it anew.

    Raises FileNotFoundError where there is no such file, ValueError if its size is not that of
    the images, and IndexError for an image that is not there.
    """

    def __init__(self, path, labels, shape, transform=None):
        self.path, self.labels, self.shape, self.transform = Path(path).resolve(), labels, tuple(shape), transform
        self.size = math.prod(self.shape)
        found, expected = self.path.stat().st_size, self.size * len(labels)
        if found != expected:
            raise ValueError(f"{self.path} has {found:,} bytes; {len(labels):,} images of shape {self.shape} are {expected:,}: "
                             "are the shape and the number of labels those of the file, and is it complete?")
        self._map = None

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        if not 0 <= i < len(self):
            raise IndexError(f"image {i} of a file of {len(self)}")
        if self._map is None:
            with open(self.path, "rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        pixels = bytearray(self._map[i * self.size:(i + 1) * self.size])  # copies this image's bytes, and no others
        image = torch.frombuffer(pixels, dtype=torch.uint8).view(self.shape)
        return image if self.transform is None else self.transform(image), self.labels[i]

    def __getstate__(self):  # a map cannot be sent to a worker that starts as a new Python
        return self.__dict__ | {"_map": None}
