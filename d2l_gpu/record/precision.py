"""One part of a recording, that of chapter 11: training steps in float32, in TF32, under autocast and in small batches."""

import torch
from torch import nn

from .. import ladder as rungs
from ..devices import try_gpu
from ..results import entry
from ..timing import compare, time_it

PART = "mixed precision"
PIECES = 4


def mixed_precision(plan):
    """A training step in float32 and under autocast, of a small MLP, a CNN and a wide MLP, the memory it adds, and
    the wide one's batch in four pieces, whose gradients add up."""
    device = try_gpu()
    width, batch = (4096, 4096) if device.type == "cuda" else (1024, 256)
    width, batch = min(width, plan.largest), min(batch, plan.largest)
    native = device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)
    half = torch.bfloat16 if native else torch.float16
    small, images = rungs.BATCH, torch.randn(rungs.BATCH, 1, 28, 28, device=device)
    wide, X = _wide(width).to(device), torch.randn(batch, width, device=device)
    for name, net, inputs, setting in (("small network", rungs.mlp(device), images, {"batch": small}),
                                       ("CNN", _cnn().to(device), images, {"batch": small}),
                                       ("wide network", wide, X, {"batch": batch, "width": width})):
        if plan.left() < 2:
            yield {"cut": f"mixed precision: no time for the {name}"}
            return
        steps = [training_step(net, [inputs], None), training_step(net, [inputs], half)]
        both = compare(*steps, pairs=7)
        for step, side, dtype in zip(steps, (both.slow, both.fast), ("float32", str(half)[6:])):
            yield _times(f"training step, {name}", side, device, dtype=dtype, **setting)
            if device.type == "cuda":
                yield _memory(name, net, step, device, dtype=dtype, **setting)
    if plan.left() < 2:
        yield {"cut": "mixed precision: no time for TF32 and for batches in pieces"}
        return
    setting = {"batch": batch, "width": width}
    if device.type == "cuda" and torch.cuda.is_tf32_supported():
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        yield _times("training step, wide network", time_it(training_step(wide, [X], None)), device, dtype="tf32", **setting)
        torch.set_float32_matmul_precision(before)
    both = compare(training_step(wide, X.chunk(PIECES), None), training_step(wide, [X], None), pairs=7)
    yield _times(f"training step, wide network, in {PIECES} pieces", both.slow, device, dtype="float32", **setting)
    yield _times("training step, wide network, in one piece", both.fast, device, dtype="float32", **setting)


def _wide(width):
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


def _cnn():
    return nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 14 * 14, 10))


def training_step(net, batches, half):
    """A function that makes one step with the examples of all `batches`: under autocast in `half`, or in float32."""
    device = batches[0].device
    pairs = [(X, torch.arange(len(X), device=device) % 10, len(X) / sum(map(len, batches))) for X in batches]
    loss, optimizer = nn.CrossEntropyLoss(), torch.optim.Adam(net.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler(device.type, enabled=half is torch.float16)

    def step():
        optimizer.zero_grad()
        for X, y, share in pairs:
            with torch.autocast(device.type, dtype=half or torch.bfloat16, enabled=half is not None):
                value = loss(net(X), y) * share
            scaler.scale(value).backward()
        scaler.step(optimizer)
        scaler.update()
    return step


def _times(name, measurement, device, **setting):
    return {"entry": entry(PART, name, device, measurement.seconds, **setting)}


def _memory(name, net, step, device, **setting):
    """What a step adds to weights and optimizer state at its peak: gradients, activations, copies in half precision."""
    net.zero_grad()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    step()
    peak = torch.cuda.max_memory_allocated(device) - before
    return {"entry": entry(PART, f"memory a step adds, {name}", device, [peak], "B", **setting)}
