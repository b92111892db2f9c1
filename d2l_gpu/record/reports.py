"""What the parts share: how much is to be measured, on what, and how a figure is reported."""

import time
from dataclasses import dataclass

import torch

from ..devices import try_gpu
from ..results import entry


@dataclass
class Plan:
    """How much is to be measured: `seconds` for the part, `images` of a pass, the `largest` matrix."""

    seconds: float = 120.0
    images: int = 60_000
    largest: int = 8192

    def __post_init__(self):
        self.end = time.monotonic() + self.seconds

    def left(self):
        """The seconds that are left."""
        return self.end - time.monotonic()


def report(part, measurement, device, **setting):
    """The report of a `Measurement`."""
    return {"entry": entry(part, measurement.name, device, measurement.seconds, **setting)}


def devices():
    """The GPU, if there is one, and the CPU."""
    gpu = try_gpu()
    return [gpu, torch.device("cpu")] if gpu.type != "cpu" else [gpu]
