"""What chapter 12 counts: the memory of a training step, part by part, and what the card spends besides tensors. CUDA only."""

import gc

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential

from ..devices import try_gpu
from ..results import entry

WIDTH, DEPTH, BATCH = 256, 12, 2048


def mlp():
    """The deep network of chapter 12: 784 inputs, 13 hidden layers of 256 numbers, 10 outputs."""
    layers = [nn.Flatten(), nn.Linear(784, WIDTH), nn.ReLU()]
    for _ in range(DEPTH):
        layers += [nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 10))


def part(plan):
    """Peak bytes of a step as it is, in four parts, with checkpoints, in bfloat16; what is reserved; what the process has."""
    device = try_gpu()
    if device.type != "cuda":
        yield {"note": "memory: needs CUDA"}
        return
    batch = min(BATCH, plan.largest)
    setting = {"batch": batch, "width": WIDTH}
    net = mlp().to(device)
    optimizer = torch.optim.Adam(net.parameters())
    X = torch.randn(batch, 1, 28, 28).to(device)
    y = (torch.arange(batch) % 10).to(device)

    def step(loss=lambda: F.cross_entropy(net(X), y).backward()):
        optimizer.zero_grad()
        loss()
        optimizer.step()

    def in_parts():
        for some, labels in zip(X.chunk(4), y.chunk(4)):
            (F.cross_entropy(net(some), labels) / 4).backward()

    def checkpointed():
        F.cross_entropy(checkpoint_sequential(net, 4, X, use_reentrant=False), y).backward()

    def half():
        with torch.autocast(device.type, torch.bfloat16):
            loss = F.cross_entropy(net(X), y)
        loss.backward()

    step()  # makes the optimizer's state, and what the libraries want for themselves
    for name, way in (("a step", step), ("a step in 4 parts", lambda: step(in_parts)),
                      ("a step with 4 checkpoints", lambda: step(checkpointed)), ("a step in bfloat16", lambda: step(half))):
        gc.collect()
        torch.cuda.reset_peak_memory_stats(device)
        way()
        yield _bytes(f"peak of {name}", torch.cuda.max_memory_allocated(device), device, setting)
    free, total = torch.cuda.mem_get_info(device)
    reserved = torch.cuda.memory_reserved(device)
    yield _bytes("reserved after these steps", reserved, device, setting)
    yield _bytes("in use beside what PyTorch reserved (context, libraries, other processes)", total - free - reserved, device, {})


def _bytes(name, nbytes, device, setting):
    return {"entry": entry("memory", name, device, [nbytes], "B", **setting)}
