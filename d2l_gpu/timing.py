"""How long something takes, measured so that the figure means what it says."""

import math
import statistics
import time
import timeit
from dataclasses import dataclass, field

import torch

from .devices import _say_once, _simulation
from .results import format_median, format_ratio, format_time, middle_half


def synchronize(devices=None):
    """Wait until `devices` (a list of devices, or of their names) have done everything that was queued on them.

    Without an argument: every GPU on which this process holds memory, and the current one. On a CPU there is
    nothing to wait for. Raises RuntimeError where a device that is named does not exist.
    """
    for device in _busy_devices() if devices is None else map(torch.device, devices):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        elif device.type == "mps":
            torch.mps.synchronize()
        elif device.type != "cpu":
            torch.accelerator.synchronize(device)


def _busy_devices():
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        current = torch.cuda.current_device()  # not every GPU: asking an unused one would take memory on it
        return [torch.device("cuda", i) for i in range(torch.cuda.device_count())
                if i == current or torch.cuda.memory_reserved(i)]
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return [] if accelerator is None or accelerator.type == "cuda" else [accelerator]


def _say_if_simulated():
    if _simulation() is not None:
        _say_once("The GPUs are simulated: the times are those of the CPU.")


# ------------------------------------------------------------------------------------------------- the figures
@dataclass
class Measurement:
    """What `time_it` found: `seconds`, a list with one time per repetition, each the time of one call.

    `median` and `spread` (first and third quartile) are in seconds, `first` is the time of the very first call,
    before anything was warm (None where it was not taken). Printing gives name, median, spread and unit.
    """

    name: str
    seconds: list = field(default_factory=list)
    first: float | None = None

    @property
    def median(self):
        return statistics.median(self.seconds)

    @property
    def spread(self):
        return middle_half(self.seconds)

    def __str__(self):
        return f"{self.name}: {format_median(self.median, self.spread, len(self.seconds))}"

    __repr__ = __str__


@dataclass
class Ratio:
    """What `compare` found: the times of both sides, and `ratios`, slow / fast for each pair of runs.

    `median` and `spread` are those of the ratios. Printing gives name, median and spread.
    """

    name: str
    slow: Measurement
    fast: Measurement

    @property
    def ratios(self):
        return [slow / fast for slow, fast in zip(self.slow.seconds, self.fast.seconds)]

    @property
    def median(self):
        return statistics.median(self.ratios)

    @property
    def spread(self):
        return middle_half(self.ratios)

    def __str__(self):
        return f"{self.name}: {format_median(self.median, self.spread, len(self.ratios), format_ratio, 'pair')}"

    __repr__ = __str__


# ------------------------------------------------------------------------------------------------- measuring
def _stopwatch(function, devices, clock):
    """A timeit.Timer of `function`: it keeps garbage collection out, and its clock waits for the devices first."""
    return timeit.Timer(function, timer=_synchronized(devices, clock))


def _synchronized(devices, clock):
    def now():
        synchronize(devices)
        return clock()
    return now


def _calls_per_run(once, shortest):
    return max(1, math.ceil(shortest / max(once, 1e-9)))


def _at_least_one(name, value):
    if value < 1:
        raise ValueError(f"{name} is a number of runs, at least 1: {value}")


def time_it(function, name=None, *, repeats=7, warmup=2, shortest=0.002, devices=None, clock=time.perf_counter):
    """The time that `function()` takes, as a `Measurement` in seconds.

    The function is called `warmup` times first (at least once), then `repeats` runs are timed. Every device
    involved is synchronized before and after each: `devices`, or else all on which this process holds memory. A
    run calls the function as often as it takes to last `shortest` seconds, and its time is divided by that number.
    `clock` returns seconds; a test can put its own there. Raises ValueError if `repeats` is less than 1.

    It stands on Python's timeit, as torch.utils.benchmark does, whose Timer waits for one device only, runs on one
    thread unless told otherwise, and calls the function two more times before each reading.
    """
    _at_least_one("repeats", repeats)
    _say_if_simulated()
    watch = _stopwatch(function, devices, clock)
    calls = [watch.timeit(1) for _ in range(max(1, warmup))]
    number = _calls_per_run(calls[-1], shortest)
    seconds = [watch.timeit(number) / number for _ in range(repeats)]
    return Measurement(name or _name(function), seconds, calls[0])


def compare(slow, fast, name=None, *, pairs=7, shortest=0.002, devices=None, clock=time.perf_counter):
    """How many times as long `slow()` takes as `fast()`, as a `Ratio`.

    Both are warmed up, then timed in turns, `pairs` times: what disturbs the machine for a while disturbs both.
    The ratio is the median over the pairs. The other arguments are those of `time_it`. Raises ValueError if
    `pairs` is less than 1.
    """
    _at_least_one("pairs", pairs)
    _say_if_simulated()
    watches = [_stopwatch(function, devices, clock) for function in (slow, fast)]
    numbers = [_calls_per_run([watch.timeit(1) for _ in range(2)][-1], shortest) for watch in watches]
    sides = [Measurement(_name(function)) for function in (slow, fast)]
    for _ in range(pairs):
        for watch, number, side in zip(watches, numbers, sides):
            side.seconds.append(watch.timeit(number) / number)
    return Ratio(name or f"{sides[0].name} / {sides[1].name}", *sides)


def _name(function):
    return getattr(function, "__name__", None) or type(function).__name__


class Timer:
    """A stopwatch for several runs; it starts when it is made. Times are in seconds, kept in `times`.

    Source: d2l.torch's `Timer`. Unlike it, it waits for the GPUs in use before it reads the clock, and its clock
    never runs backward.
    """

    def __init__(self, devices=None, clock=time.perf_counter):
        _say_if_simulated()
        self.times = []
        self._now = _synchronized(devices, clock)
        self.start()

    def start(self):
        """Start, or start anew."""
        self._started = self._now()

    def stop(self):
        """Stop, keep the time since the start in `times` and return it."""
        self.times.append(self._now() - self._started)
        return self.times[-1]

    def avg(self):
        """The mean time. Raises ValueError before the first `stop()`."""
        if not self.times:
            raise ValueError("no time was taken yet: call stop() first")
        return sum(self.times) / len(self.times)

    def sum(self):
        """The total of all times."""
        return sum(self.times)

    def cumsum(self):
        """The running totals, a list as long as `times`."""
        return [sum(self.times[:k + 1]) for k in range(len(self.times))]


class Benchmark:
    """Times the block of a `with` statement and prints the time, which is then in `seconds`.

    Source: d2l.torch's `Benchmark`; unlike it, it waits for the GPUs in use. One cold run: for a figure to rely
    on, use `time_it`.
    """

    def __init__(self, description="Done"):
        self.description = description

    def __enter__(self):
        self.timer = Timer()
        return self

    def __exit__(self, *error):
        self.seconds = self.timer.stop()
        print(f"{self.description}: {format_time(self.seconds)}")
