"""What is measured, part by part. Each part is a generator of reports, run in a process of its own (recorder.py).

A report is a dict with one key: "entry" (a measurement, results.entry), "chapter" or "placement" (fields of a record), "note" (a
sentence) or "cut" (a sentence on what there was no time for). A part gets a `Plan` (reports.py) and ends before the plan's time does.
"""

import contextlib
import time
import warnings

import torch
from torch.profiler import profile

from .. import ladder as rungs
from ..devices import try_gpu
from ..prefetch import Prefetcher
from ..results import clean, entry
from ..timing import Timer, compare, time_it
from . import chapters, memory, placement
from .compiling import channels_last, compiled
from .operations import operations, training_steps
from .precision import mixed_precision, training_step
from .reports import devices, report


def products(plan):
    """Matrix products in float32: 3000 x 3000 cold, warm and with its copies, then sizes from 16 up."""
    size = min(3000, plan.largest)
    for device in devices():
        A, B = torch.randn(size, size), torch.randn(size, size)
        X, Y = A.to(device), B.to(device)
        warm = time_it(lambda: X @ Y, "product", warmup=1, repeats=5)
        setting = {"size": size, "dtype": "float32"}
        yield {"entry": entry("products", "product, first call", device, [warm.first], **setting)}
        yield report("products", warm, device, **setting)
        if device.type != "cpu":
            both = time_it(lambda: (A.to(device) @ B.to(device)).cpu(), "product with copies", warmup=1)
            yield report("products", both, device, **setting)
    for device in reversed(devices()):  # the slower one first: it tells from where on the GPU pays
        size, once = 16, 0.0
        while size <= min(plan.largest, 4096 if device.type == "cpu" else plan.largest):
            if 8 * once * 5 > plan.left() / 2:
                yield {"cut": f"products on {device}: no time for {size} x {size}"}
                break
            X, Y = torch.randn(size, size, device=device), torch.randn(size, size, device=device)
            measured = time_it(lambda: X @ Y, "product", warmup=1, repeats=7 if once < 0.02 else 3)
            once = measured.median
            yield report("products", measured, device, size=size, dtype="float32")
            size *= 2
        if device.type == "cuda" and plan.left() > 5:
            yield from _other_formats(device, plan)


def _other_formats(device, plan):
    X, Y = (torch.randn(plan.largest, plan.largest, device=device) for _ in range(2))
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield report("products", time_it(lambda: X @ Y, "product"), device, size=plan.largest, dtype="tf32")
    torch.set_float32_matmul_precision(before)
    for dtype in (torch.float16, torch.bfloat16):
        x, y = X.to(dtype), Y.to(dtype)
        yield report("products", time_it(lambda: x @ y, "product"), device, size=plan.largest, dtype=str(dtype)[6:])


def ladder(plan):
    """One pass over 60,000 images at each rung of the experiment (ladder.py)."""
    device = try_gpu()
    todo = rungs.ladder(device, plan.images)
    for k, rung in enumerate(todo):
        if plan.left() < 2:
            yield {"cut": f"no time for the rungs from {rung.name!r} on"}
            return
        share, seconds = plan.left() / (len(todo) - k), []
        start = time.monotonic()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # no accelerator to pin memory for: recorded as it is
                with rung.open() as train:
                    train(30)
                    while len(seconds) < 5:
                        seconds.append(train()[0])
                        if time.monotonic() - start + seconds[-1] > share:
                            break
        except (RuntimeError, ImportError, OSError) as error:
            yield {"note": f"rung {rung.name!r} failed: {clean(error)}"}
        if seconds:
            yield {"entry": entry("ladder", rung.name, device, seconds, images=rung.images_a_pass,
                                  batch=rungs.BATCH, workers=rung.workers)}


def copies(plan):
    """Copies by size: within main memory on a CPU; between it and a GPU, pageable and pinned, and pinning itself."""
    device = try_gpu()
    for kib in (4, 64, 1024, 16 * 1024, 256 * 1024):
        if plan.left() < 2:
            yield {"cut": f"copies: no time from {kib} KiB on"}
            return
        if kib * 1024 > plan.largest ** 2 * 4:
            return
        source, setting = torch.ones(kib * 256), {"bytes": kib * 1024}
        if device.type == "cpu":
            target = torch.empty_like(source)
            yield report("copies", time_it(lambda: target.copy_(source), "copy in main memory"), device, **setting)
            continue
        there = source.to(device)
        yield report("copies", time_it(lambda: there.copy_(source), "to the device, pageable"), device, **setting)
        yield report("copies", time_it(lambda: source.copy_(there), "to the host, pageable"), device, **setting)
        if device.type == "cuda":
            pinned = source.pin_memory()
            yield report("copies", time_it(lambda: there.copy_(pinned, non_blocking=True), "to the device, pinned"),
                         device, **setting)
            yield report("copies", time_it(lambda: pinned.copy_(there, non_blocking=True), "to the host, pinned"),
                         device, **setting)
            yield report("copies", time_it(source.pin_memory, "pinning"), device, **setting)


def profiler(plan):
    """A training step of the small MLP, plain and under the profiler; operators (and, on CUDA, orders to the GPU) of a step."""
    device = try_gpu()
    step = training_step(rungs.mlp(device), [torch.randn(rungs.BATCH, 1, 28, 28, device=device)], None)

    def steps(context, count=20):
        with context:
            watch = Timer()
            for _ in range(count):
                step()
            return watch.stop() / count

    steps(profile(), 2)  # the first profile sets the profiler up
    plain, profiled = [], []
    while len(plain) < 7 and (plan.left() > 2 or not plain):
        plain.append(steps(contextlib.nullcontext()))
        profiled.append(steps(profile()))
    with profile() as one:
        step()
    rows = one.key_averages()
    setting = {"batch": rungs.BATCH, "operators": sum(row.count for row in rows if row.key.startswith("aten::"))}
    if device.type == "cuda":
        setting["launches"] = sum(row.count for row in rows if row.key.startswith(("cudaLaunchKernel", "cuLaunchKernel")))
    yield {"entry": entry("profiler", "training step", device, plain, **setting)}
    yield {"entry": entry("profiler", "training step, profiled", device, profiled, **setting)}


def streams(plan):
    """Products on one stream and on two; a copy and a product, and eight steps with their batches, in a row and at the same
    time. CUDA only."""
    device = try_gpu()
    if device.type != "cuda":
        yield {"note": "streams: need CUDA"}
        return
    one, two = torch.cuda.Stream(device), torch.cuda.Stream(device)
    for size, times in ((256, 50), (2000, 10), (4096, 4)):
        size = min(size, plan.largest)
        X, Y = (torch.randn(2, size, size, device=device) for _ in range(2))

        def work(*on):
            for _ in range(times):
                for k, stream in enumerate(on):
                    with torch.cuda.stream(stream):
                        X[k] @ Y[k]

        torch.cuda.synchronize(device)  # X and Y are there before another stream reads them
        yield from _pair(compare(lambda: work(one, one), lambda: work(one, two)), "two products on one stream",
                         "two products on two streams", device, size=size, times=times)
    if plan.left() < 2:
        yield {"cut": "streams: no time for copies beside products"}
        return
    size = min(8192, plan.largest)
    host = torch.ones(size, size).pin_memory()
    there, X = torch.empty(size, size, device=device), torch.randn(size, size, device=device)

    def copy_and_product(on):
        with torch.cuda.stream(on):
            there.copy_(host, non_blocking=True)
        with torch.cuda.stream(one):
            X @ X

    torch.cuda.synchronize(device)
    yield from _pair(compare(lambda: copy_and_product(one), lambda: copy_and_product(two)), "copy and product on one stream",
                     "copy and product on two streams", device, size=size, bytes=host.nbytes)
    size = min(4096, plan.largest)
    batches, W = [torch.ones(size, size).pin_memory()] * 8, torch.randn(size, size, device=device)

    def steps(loader):
        for X in loader:
            X @ W

    yield from _pair(compare(lambda: steps(X.to(device, non_blocking=True) for X in batches),
                             lambda: steps(Prefetcher(batches, device))), "8 steps, batches on the same stream",
                     "8 steps, batches prefetched", device, size=size, bytes=batches[0].nbytes)


def _pair(both, slow, fast, device, **setting):
    both.slow.name, both.fast.name = slow, fast
    yield report("streams", both.slow, device, **setting)
    yield report("streams", both.fast, device, **setting)


#: The parts in the order in which they are run, the most telling first, with the share of the time each may take.
PARTS = {"products": (products, 0.16), "ladder": (ladder, 0.40), "copies": (copies, 0.06),
         "operations": (operations, 0.03), "training steps": (training_steps, 0.06),
         "mixed precision": (mixed_precision, 0.06), "profiler": (profiler, 0.02), "streams": (streams, 0.04),
         "memory": (memory.part, 0.02), "compile": (compiled, 0.10), "channels last": (channels_last, 0.02),
         "placement": (placement.part, 0.10), "chapters": (chapters.part, 1.0)}
