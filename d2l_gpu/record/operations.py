"""Two parts of a recording, those of chapter 07: single operations, and training steps from tiny to large."""

import torch
from torch import nn
from torch.nn import functional as F

from ..timing import time_it
from .reports import devices, report


def operations(plan):
    """What an operation costs that does next to nothing, alone and with its result fetched, and what a large one
    reaches: the memory's bandwidth, by an addition into a tensor that is there."""
    for device in devices():
        if plan.left() < 2:
            yield {"cut": f"operations: no time on {device}"}
            return
        one = torch.ones(1, device=device)
        yield report("operations", time_it(lambda: one + one, "add 1 number"), device, numbers=1)
        yield report("operations", time_it(lambda: (one + one).item(), "add 1 number and fetch it"), device, numbers=1)
        numbers = min(2**26, plan.largest**2)
        x, y, out = (torch.ones(numbers, device=device) for _ in range(3))
        large = time_it(lambda: torch.add(x, y, out=out), "add many numbers")  # it moves 12 bytes for each
        yield report("operations", large, device, numbers=numbers)


def cnn(width, convolutions=1):
    """A CNN for images of shape (N, 1, 28, 28): with width 16 and one convolution it is that of chapter 05."""
    layers = [nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    for _ in range(convolutions - 1):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width * 14 * 14, 10))


def training_steps(plan):
    """A step of a linear regression with three parameters, and of CNNs over widths and batches."""
    for device in devices():
        if plan.left() < 2:
            yield {"cut": f"training steps: no time on {device}"}
            return
        for batch in (32, 32_000):
            X, y = torch.randn(batch, 2, device=device), torch.randn(batch, 1, device=device)
            net = nn.Linear(2, 1).to(device)
            step = _step(net, X, y, F.mse_loss, torch.optim.SGD(net.parameters(), lr=0.03))
            yield report("training steps", time_it(step, "regression"), device, batch=batch)
        for convolutions, width in ((1, 16), (1, 64), (1, 256), (3, 64)):
            name, once = f"CNN, {convolutions} convolution" + "s" * (convolutions > 1), 0.0
            for batch in (16, 64, 256):
                if width > plan.largest or batch > plan.images:
                    continue
                if 4 * once * 6 > plan.left() / 2:  # four times the images, called about six times
                    yield {"cut": f"training steps on {device}: no time for {name} at width {width}, batch {batch}"}
                    break
                X, y = torch.randn(batch, 1, 28, 28, device=device), torch.arange(batch, device=device) % 10
                net = cnn(width, convolutions).to(device)
                step = _step(net, X, y, F.cross_entropy, torch.optim.Adam(net.parameters(), lr=1e-3))
                found = time_it(step, name, warmup=1 if once > 0.1 else 2, repeats=3 if once > 0.02 else 7)
                once = found.median
                yield report("training steps", found, device, width=width, batch=batch)


def _step(net, X, y, loss, optimizer):
    def step():
        optimizer.zero_grad()
        loss(net(X), y).backward()
        optimizer.step()
    return step
