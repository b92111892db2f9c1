"""One training experiment, rung by rung: an MLP on 28 x 28 images, from reading pictures one by one to a CUDA graph.

    rungs = ladder(d2l.try_gpu())
    for rung in rungs:
        with rung.open() as train: print(rung.name, train())     # seconds of one pass over 60,000 images

The model (784-128-64-10), Adam with rate 1e-3 and the batch of 64 are those of the experiment that chapter 09 takes
over. Only time is measured: the 60,000 images are the embedded sample drawn with repetition.
"""

import contextlib
import time
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from .data import load_images
from .machine import _cores
from .timing import synchronize

BATCH = 64
MEAN, STD = 0.1307, 0.3081  # of MNIST: the pair usually taken, and that of the experiment
STEPS_PER_GRAPH = 16


class Pictures(Dataset):
    """Images made into PIL pictures one at a time, as torchvision's MNIST does, and then transformed.

    `images`: uint8 of shape (N, 1, 28, 28); `labels`: int64 of shape (N,). An item is a float32 tensor of shape
    (1, 28, 28) and an int. Raises ImportError where torchvision is missing.
    """

    def __init__(self, images, labels):
        from torchvision import transforms
        self.images, self.labels = images, labels
        self.transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize((MEAN,), (STD,))])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        from PIL import Image
        return self.transform(Image.fromarray(self.images[i, 0].numpy())), int(self.labels[i])


class BatchedPictures(Pictures):
    """The same pictures, but a whole batch is fetched, stacked and normalized in one go.

    `__getitems__` returns one pair of tensors, so the loader needs `collate_fn=as_it_is`.
    """

    def __getitems__(self, indices):
        import numpy as np
        from PIL import Image
        pictures = [np.asarray(Image.fromarray(self.images[i, 0].numpy())) for i in indices]
        X = torch.from_numpy(np.stack(pictures)).unsqueeze(1).float().div_(255).sub_(MEAN).div_(STD)
        return X, self.labels[indices]


class BatchedTensors(TensorDataset):
    """A TensorDataset that fetches a whole batch at a time; the loader needs `collate_fn=as_it_is`."""

    def __getitems__(self, indices):
        return tuple(tensor[indices] for tensor in self.tensors)


def as_it_is(batch):
    """A collate_fn for data sets whose `__getitems__` returns a batch that is already one."""
    return batch


class ResidentBatches:
    """Batches of tensors that lie on one device, in a new order each pass; nothing is copied from the host."""

    def __init__(self, X, y, batch=BATCH):
        self.X, self.y, self.batch = X, y, batch

    def __len__(self):
        return -(-len(self.y) // self.batch)

    def __iter__(self):
        for indices in torch.randperm(len(self.y), device=self.y.device).split(self.batch):
            yield self.X[indices], self.y[indices]


def sixty_thousand(count=60_000):
    """The embedded sample drawn with repetition: `count` images (uint8, (count, 1, 28, 28)) and labels."""
    images, labels = load_images("sample")
    times = -(-count // len(labels))
    return images.repeat(times, 1, 1, 1)[:count], labels.repeat(times)[:count]


def normalized(images):
    """Images of bytes as float32 with the mean and deviation that the pictures' transforms give them."""
    return images.float().div_(255).sub_(MEAN).div_(STD)


def mlp(device):
    """The experiment's network, 784-128-64-10 with ReLU, on `device`; it takes images of shape (N, 1, 28, 28)."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(),
                         nn.Linear(64, 10)).to(device)


# --------------------------------------------------------------------------------------------------- the rungs
@dataclass(frozen=True)
class Rung:
    """One step of the ladder: what the data are (`source`), how they are loaded, and how a step is made."""

    name: str
    device: torch.device
    images: int
    source: str = "pictures"
    workers: int = 0
    pinned: bool = False      # pin_memory in the loader and non_blocking copies
    persistent: bool = False  # workers are kept, each with four batches ahead
    fused: bool = False
    fetch_loss: bool = True   # loss.item() in every step
    graph: int = 0            # steps in one CUDA graph; 0: none

    @property
    def images_a_pass(self):
        """How many images one pass trains on: with graphs, those that fill whole graphs."""
        per_graph = max(1, self.graph) * BATCH
        return self.images // per_graph * per_graph if self.graph else self.images

    def batches(self):
        """An iterable of (X, y) for one pass after another."""
        images, labels = sixty_thousand(self.images)
        if self.source == "device":
            return ResidentBatches(normalized(images.to(self.device)), labels.to(self.device))
        data = {"pictures": Pictures, "batched pictures": BatchedPictures, "tensors": TensorDataset,
                "batched tensors": BatchedTensors}[self.source]
        if "tensors" in self.source:
            images = normalized(images)
        options = {"persistent_workers": True, "prefetch_factor": 4} if self.persistent else {}
        if "batched" in self.source:
            options["collate_fn"] = as_it_is
        return DataLoader(data(images, labels), BATCH, shuffle=True, num_workers=self.workers,
                          pin_memory=self.pinned, **options)

    @contextlib.contextmanager
    def open(self):
        """A function that trains for one pass (or for so many steps, if given a number) and returns the seconds."""
        batches, net = self.batches(), mlp(self.device)
        loss = nn.CrossEntropyLoss()
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=self.fused or None, capturable=bool(self.graph))
        run = self._replay(batches, net, loss, optimizer) if self.graph else self._loop(batches, net, loss, optimizer)

        def timed(steps=None):
            synchronize([self.device])
            start = time.perf_counter()
            run(steps)
            synchronize([self.device])
            return time.perf_counter() - start
        try:
            yield timed
        finally:
            iterator = getattr(batches, "_iterator", None)  # workers that were kept
            if iterator is not None:
                iterator._shutdown_workers()

    def _loop(self, batches, net, loss, optimizer):
        def run(steps):
            total = 0.0
            for k, (X, y) in enumerate(batches):
                if k == steps:
                    break
                X, y = (t.to(self.device, non_blocking=self.pinned) for t in (X, y))
                optimizer.zero_grad()
                value = loss(net(X), y)
                value.backward()
                optimizer.step()
                total += value.item() if self.fetch_loss else value.detach()
            return float(total)
        return run

    def _replay(self, data, net, loss, optimizer):
        """Whole steps, batch picking included, captured once in a CUDA graph and replayed.

        Source: "Whole-network capture" in PyTorch's CUDA notes. The last images of a pass, which fill no graph,
        are left out, and the time is not scaled up for them: `images_a_pass` says how many it is for.
        """
        chosen = torch.zeros(self.graph, BATCH, dtype=torch.long, device=self.device)
        total = torch.zeros((), device=self.device)

        def step(indices):
            optimizer.zero_grad(set_to_none=True)
            value = loss(net(data.X[indices]), data.y[indices])
            value.backward()
            optimizer.step()
            total.add_(value.detach())

        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            for _ in range(3):
                step(chosen[0])
        torch.cuda.current_stream(self.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for k in range(self.graph):
                step(chosen[k])

        def run(steps):
            per_graph = self.graph * BATCH
            order = torch.randperm(len(data.y), device=self.device)
            groups = order[:len(order) // per_graph * per_graph].view(-1, self.graph, BATCH)
            for group in groups[:None if steps is None else max(1, steps // self.graph)]:
                chosen.copy_(group)
                graph.replay()
            return total.item()
        return run


def ladder(device, images=60_000, workers=None):
    """The rungs in order, each the one before with one thing changed; CUDA graphs only on a CUDA device.

    `workers` is 8, as in the published experiment, or the number of usable cores where that is less.
    """
    device = torch.device(device)
    workers = min(8, _cores()) if workers is None else workers
    rungs = [Rung("pictures", device, images)]

    def then(name, **changes):
        rungs.append(replace(rungs[-1], name=name, **changes))

    then("workers", workers=workers)
    then("pinned, non_blocking", pinned=True)
    then("persistent workers, prefetch", persistent=True)
    then("batched fetch", source="batched pictures", workers=0, pinned=False, persistent=False)
    then("TensorDataset", source="tensors")
    then("TensorDataset, batched fetch", source="batched tensors")
    then("data on the device", source="device")
    then("fused Adam", fused=True)
    then("no .item() in the loop", fetch_loss=False)
    if device.type == "cuda":
        then("CUDA graph of one step", graph=1)
        then(f"CUDA graph of {STEPS_PER_GRAPH} steps", graph=STEPS_PER_GRAPH)
    return rungs
