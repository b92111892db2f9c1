"""What limits a training loop: the loader, the copy to the device, or the step."""

import contextlib
import itertools
import multiprocessing
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from torch.utils.data import DataLoader, IterableDataset

from .devices import _count, try_gpu
from .loading import DeviceLoader
from .machine import _cores
from .pipeline import expected_step
from .results import format_time
from .timing import _say_if_simulated, synchronize
from .training import to

_MOST = 1000  # batches that one measurement takes
_WORTH_IT = 1.1  # gain by workers from which they are advised: less may be noise


@dataclass
class Bottleneck:
    """What `find_bottleneck` found; printing it gives the times, what limits, what to expect and what to try.

    `load`, `copy`, `step` and `together` are seconds a batch, `first` the seconds until the loader's first batch, and
    `workers` its number of workers. `limit` is "loader", "copy" or "step". By the number of workers, `expected` gives
    the seconds a batch that overlap could reach (`expected_step`), and `measured` those that the whole loop took;
    `best_workers` is the fastest number measured, None if none was. `advice` is a list of sentences.
    """

    load: float
    copy: float
    step: float
    together: float
    first: float
    workers: int
    limit: str
    expected: dict = field(default_factory=dict)
    measured: dict = field(default_factory=dict)
    best_workers: int | None = None
    advice: list = field(default_factory=list)

    def __str__(self):
        rows = (("loader alone", self.load), ("copy alone", self.copy), ("step alone", self.step),
                ("all together", self.together))
        lines = [f"{name:14}{format_time(seconds):>9} a batch" for name, seconds in rows]
        lines[0] += f", with {_count(self.workers, 'worker')}; the first one after {format_time(self.first)}"
        lines.append(f"the {self.limit} limits")
        for n, seconds in self.expected.items():
            got = f", measured: {format_time(self.measured[n])}" if n in self.measured else ""
            lines.append(f"{_count(n, 'worker'):>11}: expected {format_time(seconds)}{got}")
        if self.best_workers is not None:
            lines.append(f"fastest of those measured: {_count(self.best_workers, 'worker')}")
        return "\n".join(lines + [textwrap.fill(sentence, 80, initial_indent="- ", subsequent_indent="  ")
                                  for sentence in self.advice])

    __repr__ = __str__


def find_bottleneck(loader, step, device=None, *, seconds=10.0, workers=None, clock=time.perf_counter):
    """Time the loader alone, the copy alone, the step alone and all together, and say which of the three limits.

    `loader` is a DataLoader, a DeviceLoader, or anything that gives batches each time it is iterated. `step(batch)`
    makes one training step with a batch on `device` (by default `try_gpu()`), to which `d2l.to` moves it. The steps are
    real: the model is another one afterwards. Copy and step are timed on one batch over and over.

    With workers, loading goes on beside the rest, so the loader limits if it takes longer than copy and step together;
    without, the longest of the three limits. If it is the loader, and a DataLoader that more workers could share, the
    whole loop is measured with the numbers in `workers` (by default 0, 1, 2, 4 ... up to the usable cores) as long as
    there is time. `seconds` is the time for everything; a batch that takes longer is not cut short.

    All workers that it started are stopped when it returns or raises, also by an interrupt, and so are workers that
    the loader kept. Returns a `Bottleneck`. Raises ValueError if the loader gives fewer than two batches, TypeError
    for a generator, which can be iterated only once, and for a step that is no function. `clock` returns seconds; a
    test can put its own there.
    """
    if not callable(step):
        raise TypeError(f"step should be a function of one batch that makes a training step, not {type(step).__name__}")
    if isinstance(loader, Iterator) or not hasattr(loader, "__iter__"):
        raise TypeError(f"the loader is iterated several times, and {type(loader).__name__} cannot be: give a DataLoader, a "
                        "list of batches, or an object whose __iter__ starts anew each time")
    _say_if_simulated()
    device = try_gpu() if device is None else device
    workers_now, end, last = getattr(loader, "num_workers", 0), clock() + seconds, {}

    def keep(batch):
        last["loaded"] = batch

    def move(batch):
        last["moved"] = to(batch, device)

    def train(batch):
        step(to(batch, device))

    def timed(batches, use, share, lead):
        return _per_batch(batches, use, device, clock, share * seconds, lead)

    first, load = timed(loader, keep, 0.15, workers_now)
    _, copy = timed(itertools.repeat(last["loaded"]), move, 0.1, 3)
    _, alone = timed(itertools.repeat(last["moved"]), step, 0.15, 3)
    _, together = timed(loader, train, 0.2, max(3, workers_now))
    limit = max(("loader", load), ("copy", copy), ("step", alone), key=lambda pair: pair[1])[0]
    if workers_now and limit == "loader" and load < copy + alone:
        limit = "copy" if copy > alone else "step"
    found = Bottleneck(load, copy, alone, together, first, workers_now, limit)
    counts = _counts(workers, workers_now) if _can_share(loader) else []
    found.expected = {n: expected_step(load * max(1, workers_now), alone, n, copy) for n in counts}
    if limit == "loader":
        for k, n in enumerate(counts):
            share = (end - clock()) / seconds / (len(counts) - k)
            if share <= 0:
                break
            try:
                found.measured[n] = timed(_with_workers(loader, n), train, share, max(3, n))[1]
            except Exception as error:  # the data set may not reach workers, or main memory not suffice
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                found.advice.append(f"{_count(n, 'worker')} failed: {type(error).__name__}: {reason}")
        found.best_workers = min(found.measured, key=found.measured.get, default=None)
    found.advice += _advice(found, loader)
    return found


# ------------------------------------------------------------------------------------------------- measuring
def _per_batch(batches, use, device, clock, budget, lead):
    """Seconds until the first batch, and seconds for each after the first `lead`, within `budget` seconds of those.

    The device is waited for twice, not in every step: a wait would keep the host from running ahead.
    """
    with contextlib.suppress(TypeError):  # no len()
        lead = min(lead, len(batches) - 1)
    lead, done, first = max(1, lead), 0, None
    began = clock()
    with _opened(batches) as iterator:
        for batch in iterator:
            use(batch)
            done += 1
            if done == 1:
                first = clock() - began
            if done == lead:
                synchronize([device])
                start = clock()
            elif done > lead and (done == lead + _MOST or clock() - start > budget):
                break
        if done <= lead:
            raise ValueError(f"batches that the loader gave: {done}; at least 2 are needed to time it")
        synchronize([device])
        return first, (clock() - start) / (done - lead)


@contextlib.contextmanager
def _opened(batches):
    """An iterator over `batches` whose worker processes are stopped at the end, whatever happens."""
    before = multiprocessing.active_children()
    try:
        iterator = iter(batches)
    except BaseException:  # an interrupt while the workers were starting: nobody else knows them
        for process in set(multiprocessing.active_children()) - set(before):
            process.terminate()
        raise
    try:
        yield iterator
    finally:
        if hasattr(iterator, "_shutdown_workers"):
            iterator._shutdown_workers()
        if getattr(batches, "_iterator", None) is iterator:  # persistent workers: the next pass starts new ones
            batches._iterator = None


# ------------------------------------------------------------------------------------------------- workers
def _can_share(loader):
    return isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset)


def _counts(workers, now):
    if workers is not None:
        return sorted(set(workers))
    cores = _cores()
    return sorted({0, now, cores, *(2**k for k in range(cores.bit_length()) if 2**k < cores)})


def _with_workers(loader, n):
    """A DataLoader like `loader`, with `n` workers."""
    options = {name: getattr(loader, name) for name in ("collate_fn", "pin_memory", "worker_init_fn", "generator")}
    if n:
        options |= {"timeout": loader.timeout, "multiprocessing_context": loader.multiprocessing_context,
                    "prefetch_factor": loader.prefetch_factor, "in_order": loader.in_order}
    if loader.batch_sampler is None:
        return DataLoader(loader.dataset, batch_size=None, sampler=loader.sampler, num_workers=n, **options)
    return DataLoader(loader.dataset, batch_sampler=loader.batch_sampler, num_workers=n, **options)


# ------------------------------------------------------------------------------------------------- advice
def _advice(found, loader):
    """What to try, as sentences."""
    if found.limit == "step":
        said = ["The step limits: more workers cannot help. Look inside it (profile it): fetched values such as .item(), many "
                "small operations (a fused optimizer, a larger batch, a CUDA graph), arithmetic (mixed precision)."]
        if not found.workers and found.expected and found.load > 0.1 * found.together:
            said.append(f"One worker could hide the loading, {format_time(found.load)} of {format_time(found.together)} a "
                        "batch, if handing over a batch costs less than that: try num_workers=1.")
        return said
    if found.limit == "copy":
        return ["The copy limits: send fewer bytes (bytes instead of floats, converted on the device), from pinned memory "
                "(pin_memory=True with workers, non_blocking=True), or keep the data on the device (DeviceLoader)."]
    if isinstance(loader, DeviceLoader):
        return ["The batches are picked and transformed on the device already: larger ones, or a cheaper transform."]
    said, gain = [], 1.0
    if found.best_workers is not None:
        gain = found.measured.get(found.workers, found.together) / found.measured[found.best_workers]
    if gain >= _WORTH_IT:
        said.append(f"num_workers={found.best_workers} made the loop {gain:.1f} times as fast as "
                    f"num_workers={found.workers}.")
    elif found.best_workers == 0:
        said.append("Workers do not help here: handing over a batch costs more than they save, or the cores are busy.")
    elif found.best_workers is not None:
        said.append("No other number of workers was clearly faster.")
    said.append("Make loading cheaper: fetch a batch at a time (__getitems__), decode and resize once and store the result, "
                "keep small data as a tensor or on the device (DeviceLoader).")
    if found.workers and not getattr(loader, "persistent_workers", False) and found.first > 10 * found.load:
        said.append(f"Each pass waits {format_time(found.first)} for its first batch: persistent_workers=True keeps the "
                    "workers.")
    return said
