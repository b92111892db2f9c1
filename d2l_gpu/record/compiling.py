"""Two parts of a recording, those of chapter 15: torch.compile, and convolutions with the channels last."""

import os
import tempfile

import torch
from torch import nn

from .. import ladder as rungs
from ..compiling import compile_backend
from ..devices import try_gpu
from ..results import entry
from ..timing import Timer, compare
from .precision import training_step


def chain(x):
    """Eight operations on each number: one by one they read ten numbers and write eight."""
    return ((x * 2 + 1).sigmoid() * x - x.abs()).clamp(min=-3).square()


def compiled(plan):
    """The first call of what torch.compile makes, and the later ones beside the plain ones: a chain of operations, and a
    training step of the small MLP. The compiler finds none of its earlier results."""
    device = try_gpu()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder  # this process is the part's own
        watch = Timer([device])
        if compile_backend(device) != "inductor":
            yield {"note": "compile: torch.compile makes no kernels here"}
            return
        yield {"entry": entry("compile", "loading the compiler", device, [watch.stop()])}
        x = torch.randn(min(2**24, plan.largest**2), device=device)
        fast_chain = torch.compile(chain, dynamic=False)
        images = [torch.randn(rungs.BATCH, 1, 28, 28, device=device)]
        net = torch.compile(rungs.mlp(device), dynamic=False)
        for name, plain, fast, setting in (
                ("chain of 8 operations", lambda: chain(x), lambda: fast_chain(x), {"numbers": len(x)}),
                ("training step", training_step(rungs.mlp(device), images, None), training_step(net, images, None),
                 {"batch": rungs.BATCH})):
            if plan.left() < 5:
                yield {"cut": f"compile: no time for the {name}"}
                return
            watch.start()
            fast()
            yield {"entry": entry("compile", f"{name}, first compiled call", device, [watch.stop()], **setting)}
            both = compare(plain, fast)
            yield {"entry": entry("compile", name, device, both.slow.seconds, **setting)}
            yield {"entry": entry("compile", f"{name}, compiled", device, both.fast.seconds, **setting)}


def convolutions(width):
    """A network of three convolutions between many channels, for images of shape (N, 3, 32, 32)."""
    layers, channels = [], 3
    for _ in range(3):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


def channels_last(plan):
    """A training step of convolutions in both layouts, in float32 and under autocast."""
    device = try_gpu()
    width, batch = (256, 256) if device.type == "cuda" else (64, 16)
    width, batch = min(width, plan.largest), min(batch, plan.largest)
    native = device.type != "cuda" or torch.cuda.is_bf16_supported(including_emulation=False)
    for half in (None, torch.bfloat16 if native else torch.float16):
        if plan.left() < 2:
            yield {"cut": "channels last: no time for half precision"}
            return
        images = torch.randn(batch, 3, 32, 32, device=device)
        steps = [training_step(convolutions(width).to(device, memory_format=layout), [images.to(memory_format=layout)], half)
                 for layout in (torch.contiguous_format, torch.channels_last)]
        both = compare(*steps)
        setting = {"batch": batch, "width": width, "dtype": str(half or torch.float32)[6:]}
        yield {"entry": entry("channels last", "convolutions", device, both.slow.seconds, **setting)}
        yield {"entry": entry("channels last", "convolutions, channels last", device, both.fast.seconds, **setting)}
