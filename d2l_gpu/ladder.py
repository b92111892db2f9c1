"""One training experiment, rung by rung: an MLP on 28 x 28 images, from reading pictures one by one to a CUDA graph.

    rungs = ladder(d2l.try_gpu())
    for rung in rungs:
        with rung.open() as train:
            seconds, loss = train()     # of one pass over 60,000 images

The model (784-128-64-10), Adam with rate 1e-3 and the batch of 64 are those of the experiment that chapter 09 takes
over. Only time is measured: the 60,000 images are the embedded sample drawn with repetition.
"""

import contextlib
import time
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from .data import load_images
from .datasets import BatchedPictures, BatchedTensors, Pictures, as_it_is, normalized
from .loading import DeviceLoader
from .machine import _cores
from .timing import synchronize

BATCH = 64
STEPS_PER_GRAPH = 16


def sixty_thousand(count=60_000):
    """The embedded sample drawn with repetition: `count` images (uint8, (count, 1, 28, 28)) and labels."""
    images, labels = load_images("sample")
    times = -(-count // len(labels))
    return images.repeat(times, 1, 1, 1)[:count], labels.repeat(times)[:count]


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
    compiled: bool = False    # the network goes through torch.compile
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
            return DeviceLoader((normalized(images.to(self.device)), labels), BATCH, shuffle=True, device=self.device)
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
        """A function that trains for one pass, or for so many steps, and returns the seconds and the mean loss."""
        batches, net = self.batches(), mlp(self.device)
        loss = nn.CrossEntropyLoss()
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=self.fused or None, capturable=bool(self.graph))
        if self.compiled:
            net = self._compiled(net)
        run = self._replay(batches, net, loss, optimizer) if self.graph else self._loop(batches, net, loss, optimizer)

        def timed(steps=None):
            synchronize([self.device])
            start = time.perf_counter()
            mean = run(steps)
            synchronize([self.device])
            return time.perf_counter() - start, mean
        try:
            yield timed
        finally:
            iterator = getattr(batches, "_iterator", None)  # workers that were kept
            if iterator is not None:
                iterator._shutdown_workers()

    def _compiled(self, net):
        """`net`, compiled and called with both sizes of a batch, so that no pass that is timed compiles anything."""
        net = torch.compile(net, dynamic=False)  # net.compile() leaves a Sequential as it is before torch 2.14
        for size in {min(BATCH, self.images), self.images % BATCH or BATCH}:
            net(torch.zeros(size, 1, 28, 28, device=self.device)).sum().backward()
        net.zero_grad()
        return net

    def _loop(self, batches, net, loss, optimizer):
        def run(steps):
            total, count = 0.0, 0
            for k, (X, y) in enumerate(batches):
                if k == steps:
                    break
                X, y = (t.to(self.device, non_blocking=self.pinned) for t in (X, y))
                optimizer.zero_grad()
                value = loss(net(X), y)
                value.backward()
                optimizer.step()
                total += (value.item() if self.fetch_loss else value.detach()) * len(y)
                count += len(y)
            return float(total) / count
        return run

    def _replay(self, data, net, loss, optimizer):
        """Whole steps, batch picking included, captured once in a CUDA graph and replayed.

        Source: "Whole-network capture" in PyTorch's CUDA notes. The last images of a pass, which fill no graph,
        are left out, and the time is not scaled up for them: `images_a_pass` says how many it is for.
        """
        chosen = torch.zeros(self.graph, BATCH, dtype=torch.long, device=self.device)
        total = torch.zeros((), device=self.device)
        X, y = data.tensors

        def step(indices):
            optimizer.zero_grad(set_to_none=True)
            value = loss(net(X[indices]), y[indices])
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
            order = torch.randperm(len(y), device=self.device)
            groups = order[:len(order) // per_graph * per_graph].view(-1, self.graph, BATCH)
            groups = groups[:None if steps is None else max(1, steps // self.graph)]
            total.zero_()
            for group in groups:
                chosen.copy_(group)
                graph.replay()
            return total.item() / (len(groups) * self.graph)
        return run


def ladder(device, images=60_000, workers=None):
    """The rungs in order, each the one before with one thing changed; CUDA graphs only on a CUDA device, and of the
    network as it is. The rung with torch.compile needs what that needs, and raises RuntimeError without, when it is opened.

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
    then("torch.compile", compiled=True)
    if device.type == "cuda":
        then("CUDA graph of one step", graph=1, compiled=False)
        then(f"CUDA graph of {STEPS_PER_GRAPH} steps", graph=STEPS_PER_GRAPH)
    return rungs
