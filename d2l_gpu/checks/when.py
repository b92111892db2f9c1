"""Checkers for chapter 07, when a GPU helps."""

import math
import random
import statistics

import torch

from ..transfers import count_transfers
from . import Hint, call, exercise, some_devices


def _whole(got, given):
    if got is not None and type(got) is not int:
        raise Hint(f"for {given} you returned {got!r}. The answer is a whole number (an int), or None.")


@exercise("when-1")
def copies_pay(answer):
    cases = []
    for _ in range(20):
        gpu, gain, times = random.randint(1, 9), random.randint(1, 9), random.randint(1, 30)
        cases += [(gpu + gain, gpu, gain * times), (gpu + gain, gpu, gain * times + random.randrange(gain)),
                  (gpu, gpu + gain, times)]
    cases += [(5, 5, 7), (6, 5, 0)]
    random.shuffle(cases)
    for cpu, gpu, copies in cases:
        got = call(answer, cpu, gpu, copies)
        given = f"{cpu} s on the CPU, {gpu} s on the GPU and {copies} s of copies"
        want = copies // (cpu - gpu) + 1 if gpu < cpu else None
        _whole(got, given)
        if want is None and got is not None:
            raise Hint(f"for {given} you returned {got}. The GPU is never ahead there: return None.")
        if want is not None and got is None:
            raise Hint(f"for {given} you returned None. The copies are made once, so each product gains {cpu - gpu} s, and with enough of "
                       "them the GPU is ahead.")
        if got != want:
            n = max(got, 0)
            raise Hint(f"for {given} you returned {got}: so many products take {n * cpu} s on the CPU and {n * gpu + copies} s on the "
                       "GPU. " + ("Fewer are enough." if got > want else "The GPU should be ahead there, and by more than nothing."))


class _Card:
    """A device with a queue and a clock of its own: orders are placed at once, and carried out one after another."""

    def __init__(self):
        self.now, self.busy, self.orders, self.events = random.uniform(1, 99), 0.0, 0, []
        base = random.uniform(2, 3)
        self.times = [base, 1.3 * base, 1.1 * base, 0.8 * base, 7.0 * base]  # any five in a row have one median

    def work(self):
        self.orders += 1
        self.busy = max(self.busy, self.now) + self.times[self.orders % 5] + 40.0 * (self.orders == 1)
        self.now += 1e-5
        self.events.append("work")

    def wait(self):
        self.now = max(self.now, self.busy)

    def clock(self):
        self.events.append("idle" if self.busy <= self.now else "busy")
        return self.now


@exercise("when-2")
def seconds(answer):
    card = _Card()
    got = call(answer, card.work, card.wait, card.clock)
    readings = [k for k, event in enumerate(card.events) if event != "work"]
    runs = [b - a - 1 for a, b in zip(readings, readings[1:]) if b - a > 1]  # how many orders between two readings
    times = card.times
    right = isinstance(got, float) and math.isclose(got, statistics.median(times), rel_tol=1e-3)
    if right and readings[:1] == [0] and len(runs) == 6 and runs[0] == 1:  # the warm-up was timed, then left out
        readings, runs = readings[2:], runs[1:]
    if not runs:
        raise Hint("no run of work() lies between two readings of clock().")
    if readings[0] == 0:
        raise Hint("the first call of all is among the timed ones. It pays for everything that is set up once: call work() before you "
                   "read the clock, as a warm-up.")
    if card.events[readings[0]] == "busy":
        raise Hint("the device was still working on the warm-up when you started the clock. Wait first.")
    if any(card.events[k] == "busy" for k in readings):
        raise Hint("the device was still working when you stopped the clock: you timed the placing of an order. Wait before you stop.")
    if max(runs) > 1:
        raise Hint(f"{max(runs)} runs were timed in one piece, so there is no median to take. Read the clock before and after each run.")
    if len(runs) != 5:
        raise Hint(f"{len(runs)} runs were timed, and there should be 5.")
    if not isinstance(got, float):
        raise Hint(f"return one number of seconds, a float, and not {type(got).__name__}.")
    for name, value in (("mean", statistics.mean(times)), ("sum", sum(times)), ("shortest", min(times)), ("longest", max(times))):
        if math.isclose(got, value, rel_tol=1e-3):
            raise Hint(f"this is the {name} of the five times. One run was disturbed and took far longer than the others: the median does "
                       "not mind.")
    if not right:
        raise Hint(f"the five runs took {', '.join(f'{t:.2f}' for t in sorted(times))} s, and you returned {got:.2f}.")


@exercise("when-3")
def norms(answer):
    n = random.randrange(40, 60)
    with some_devices() as devices:
        for device in [*devices[:1], torch.device("cpu")]:
            torch.manual_seed(random.randrange(10_000))
            host, hosts = torch.randn(100, 100), torch.randn(n, 100, 100)
            products = host.double() @ hosts.double()
            A, Bs = host.to(device), hosts.to(device)
            with count_transfers() as used:
                got = call(answer, A, Bs)
            if not isinstance(got, list):
                raise Hint(f"return a list of Python floats, and not {_called(got)}.")
            strange = next((value for value in got if type(value) is not float), None)
            if strange is not None:
                raise Hint(f"return a list of Python floats; {_called(strange)} is among yours. `.tolist()` makes such a list.")
            if len(got) != n:
                raise Hint(f"{len(got)} norms for {n} products: return one for each.")
            bad = [k for k, value in enumerate(got) if not math.isfinite(value)]
            if bad:
                raise Hint(f"norm {bad[0] + 1} of {n} is {got[bad[0]]}: an overflow. Each product of such matrices has entries about ten "
                           "times as large, so a result that is multiplied again and again soon exceeds float32. Multiply A itself with "
                           "each B.")
            flat = products.flatten(1)
            if _close(got, flat.norm(dim=1) ** 2):
                raise Hint("these are the sums of the squares. The Frobenius norm is the root of that.")
            if _close(got, torch.linalg.matrix_norm(products, ord=2)):
                raise Hint("these are spectral norms, the largest singular values. The Frobenius norm is the root of the sum of the "
                           "squares of all entries.")
            if _close(got, (hosts.double() @ host.double()).flatten(1).norm(dim=1)):
                raise Hint("these are the norms of B @ A. The products are A @ B.")
            if not _close(got, flat.norm(dim=1)):
                raise Hint(f"the norms are not those of the products A @ B: the first should be {flat[0].norm():.1f} and is {got[0]:.1f}.")
            if used.bytes["D2H"] > 8 * n:
                raise Hint(f"{used.bytes['D2H']:,} bytes came to main memory. The products and the norms belong on {device}; only the "
                           f"{n} norms have to come.")
            if used.copies["D2H"] == n:
                raise Hint(f"{n} norms in {n} copies, each with a wait. Keep the log on the device, and fetch it once.")
            if used.copies.total() > 1 or used.waits.total() > 1:
                raise Hint(f"{used.copies.total()} copies and {used.waits.total()} waits, where one of each is enough.")


def _called(value):
    return "a tensor" if isinstance(value, torch.Tensor) else type(value).__name__


def _close(got, want):
    return torch.allclose(torch.tensor(got, dtype=torch.float64), want, rtol=1e-3)


def _smallest(inputs, outputs, ridge, size, flop=2, weights=True, read=True, written=True):
    """The smallest batch with an intensity of at least `ridge`, or None; all numbers are whole, so that it is exact."""
    gain = flop * inputs * outputs - ridge * size * (read * inputs + written * outputs)
    fixed = ridge * size * weights * inputs * outputs
    return None if gain <= 0 else max(1, -(-fixed // gain))


def _given(inputs, outputs, ridge, size):
    return f"a layer {inputs} -> {outputs}, a ridge of {ridge} FLOP/byte and {size} bytes a number"


_FORGOTTEN = {
    "The weights are not among your bytes: they are read once for each batch, and that is why a larger batch helps.": {"weights": False},
    "A multiplication and an addition count as two.": {"flop": 1},
    "The result is not among your bytes: it is written to memory.": {"written": False},
    "The inputs are not among your bytes.": {"read": False},
    "Count bytes, not numbers.": {"size": 1},
}


@exercise("when-4")
def enough_batch(answer):
    cases = []
    while len(cases) < 40:
        inputs, outputs = (random.randrange(8, 1025) for _ in range(2))
        case = inputs, outputs, random.randrange(5, 60), random.choice((2, 4))
        if (_smallest(*case) is None) == (len(cases) % 4 == 0):  # every fourth layer never gets there
            cases.append(case)
    cases.insert(random.randrange(5), (32, 16, 4, 4))  # exactly the ridge, at 32
    found = [call(answer, *case) for case in cases]
    for words, changes in _FORGOTTEN.items():
        others = [_smallest(*case[:3], **{"size": case[3]} | changes) for case in cases]
        if found == others:
            k = next(k for k, case in enumerate(cases) if found[k] != _smallest(*case))
            raise Hint(f"for {_given(*cases[k])} you returned {found[k]}. {words}")
    for case, got in zip(cases, found):
        inputs, outputs, ridge, size = case
        given, want = _given(*case), _smallest(*case)
        _whole(got, given)
        if got == want:
            continue
        if want is None:
            raise Hint(f"for {given} you returned {got}, and no batch is enough there: with ever larger ones the intensity comes close to "
                       f"{2 * inputs * outputs / size / (inputs + outputs):.2f}, and no higher. Return None.")
        if got is None:
            raise Hint(f"for {given} you returned None, but a batch of {want} is enough.")
        reached = 2 * got * inputs * outputs / size / (got * (inputs + outputs) + inputs * outputs) if got > 0 else 0
        raise Hint(f"for {given} you returned {got}, whose intensity is {reached:.3f} FLOP/byte. " +
                   ("A smaller batch is enough." if got > want else "That is not enough."))
