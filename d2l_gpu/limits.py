"""What a machine allows: the least time of an operation, by the roofline model. It needs nothing, not even torch.

Source: S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for multicore
architectures", Communications of the ACM 52(4), 2009, https://doi.org/10.1145/1498765.1498785.
"""

from typing import NamedTuple


class Machine(NamedTuple):
    """The figures of a device: `peak` in FLOP/s, `bandwidth` of its memory and `bus` (one direction) in bytes/s,
    `overhead` of a launch in seconds."""
    peak: float
    bandwidth: float
    bus: float
    overhead: float


class Work(NamedTuple):
    """What an operation asks for: `flops`, `bytes` to and from the device's memory, `copied` bytes over the bus, and how
    often the host `launches` something."""
    flops: float
    bytes: float
    copied: float = 0
    launches: int = 1


MACHINES = {
    "T4": Machine(8.1e12, 320e9, 16e9, 10e-6),
    "RTX 4090": Machine(82.6e12, 1008e9, 32e9, 10e-6),
    "H200": Machine(67e12, 4800e9, 64e9, 10e-6),
}
"""Figures of three cards by name, for `roofline`: each has `peak` in FLOP/s (float32, no tensor cores), `bandwidth` of its
memory and `bus` (one direction) in bytes/s, and `overhead` of a launch in seconds.

Published figures, not measured ones. Source: peak and bandwidth, NVIDIA's data sheets of the T4 and the H200 SXM, and its
white paper on Ada for the RTX 4090; bus, PCI Express 3, 4 and 5 with 16 lanes; overhead, within the 5 to 20 µs that the
documentation of Holistic Trace Analysis calls usual.
"""


def product(n, copies=False):
    """The product of two float32 matrices of n × n; with `copies`, both are brought to the device and the result back."""
    return Work(2 * n**3, 3 * 4 * n**2, 3 * 4 * n**2 if copies else 0, 4 if copies else 1)


def addition(n):
    """The sum of two float32 matrices of n × n."""
    return Work(n**2, 3 * 4 * n**2)


def mlp_step(batch):
    """A training step of the MLP 784-128-64-10 in float32 with fused Adam: counted operator by operator, nothing cached.

    A matrix product of the forward pass comes back twice in the backward pass (once in the first layer: nobody asks for
    the gradient of the images). Adam reads four numbers a parameter, writes three, and computes about a dozen FLOP.
    """
    parameters, weights, units = 109_386, 109_184, 128 + 64 + 10
    flops = 2 * batch * (2 * weights + weights - 784 * 128) + 12 * parameters
    numbers = 9 * parameters + (weights - 784 * 128) + batch * (2 * 784 + 12 * units)
    return Work(flops, 4 * numbers, launches=22)


def mlp_pass(images=60_000, batch=64):
    """A pass of that training at its least: weights and state stay in a cache, each image is read from memory once, and
    `launches` counts only operations that wait for one another's results, eight a step: three layers forward, the loss,
    three levels backward, the update."""
    steps = -(-images // batch)
    return Work(steps * mlp_step(batch).flops, images * (784 * 4 + 8), launches=8 * steps)


class Roof(NamedTuple):
    """What `roofline` found: the least `seconds`; `bound`, the name of what takes them; `intensity` in FLOP/byte; the
    most FLOP/s that is attainable, `rate`; and `parts`, the seconds of each limit alone."""
    seconds: float
    bound: str
    intensity: float
    rate: float
    parts: dict


def roofline(flops, bytes, peak, bandwidth, overhead=0.0, copied=0, bus=float("inf")):
    """The least time that an operation takes on a device, and what sets it.

        d2l.roofline(flops=2 * n**3, bytes=3 * 4 * n**2, peak=8.1e12, bandwidth=320e9, overhead=10e-6)

    The device computes at most `peak` FLOP/s and moves at most `bandwidth` bytes/s to and from its memory. `overhead` is
    what the host spends on launching, in seconds, all launches together; `copied` bytes cross a bus of `bus` bytes/s. Each
    limit alone gives a time, in `parts`: "compute", "memory", "overhead", "bus". The operation takes at least the longest
    of them, `seconds`: that is when all overlap. Where nothing does, it takes at least `sum(parts.values())`.

    Gives a `Roof`. The ridge of a device, `peak / bandwidth`, is the intensity from which "compute" takes longer than
    "memory". Raises ValueError for an amount below zero or a speed that is not above zero.
    """
    for name, amount in dict(flops=flops, bytes=bytes, overhead=overhead, copied=copied).items():
        if not amount >= 0:
            raise ValueError(f"{name} must be 0 or more, not {amount}")
    for name, speed in dict(peak=peak, bandwidth=bandwidth, bus=bus).items():
        if not speed > 0:
            raise ValueError(f"{name} must be above 0, not {speed}")
    parts = {"compute": flops / peak, "memory": bytes / bandwidth, "overhead": overhead, "bus": copied / bus}
    bound = max(parts, key=parts.get)
    seconds = parts[bound]
    return Roof(seconds, bound, flops / bytes if bytes else float("inf"), flops / seconds if seconds else float("inf"), parts)


def least_time(work, machine):
    """`roofline` of a `Work` on a `Machine`: `least_time(product(4096), MACHINES["T4"])`."""
    return roofline(work.flops, work.bytes, machine.peak, machine.bandwidth, work.launches * machine.overhead,
                    work.copied, machine.bus)


def pass_bound(record, latency=3e-6):
    """The least seconds of a pass of the MLP over 60,000 images on the machine of a record (results.py); None if unknown.

    Peak and bandwidth are the best that the record itself holds for the device of its ladder, else those of MACHINES. On a
    GPU, operations that wait for one another are `latency` apart (an estimate for small kernels in a CUDA graph).
    """
    rows = record["measurements"]
    device = next((row["device"] for row in rows if row["part"] == "ladder"), None)
    mine = [row for row in rows if row["device"] == device]
    peaks = [2 * row["setting"]["size"] ** 3 / row["median"] for row in mine
             if row["part"] == "products" and row["name"] == "product" and row["setting"]["dtype"] == "float32"]
    bandwidths = [12 * row["setting"]["numbers"] / row["median"] for row in mine if row["name"] == "add many numbers"]
    known = [machine for name, machine in MACHINES.items() if name in record["machine"]]
    if device is None or not (peaks and bandwidths or known):
        return None
    peak, bandwidth = (max(peaks), max(bandwidths)) if peaks and bandwidths else known[0][:2]
    work = mlp_pass()
    return roofline(work.flops, work.bytes, peak, bandwidth, 0 if device == "cpu" else latency * work.launches).seconds
