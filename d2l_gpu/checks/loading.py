"""Checkers for chapter 09, faster loading."""

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import BatchSampler, DataLoader

from ..transfers import count_transfers
from . import Hint, call, exercise, some_devices


@exercise("loading-1")
def bytes_in_flight(answer):
    cases = [(64, (3, 32, 32), torch.uint8, 4, 2), (8, (1, 28, 28), torch.float32, 2, 3), (16, (5,), torch.float16, 0, 2),
             (100_000, (3, 100_000, 100_000), torch.float64, 64, 4)]
    cases += [(random.randint(1, 99), (3, random.randint(8, 99), 7), random.choice([torch.int64, torch.bfloat16]),
               random.randint(1, 9), random.randint(2, 5)) for _ in range(5)]
    for batch, shape, dtype, workers, prefetch in cases:
        got = call(answer, batch, shape, dtype, workers, prefetch)
        if not isinstance(got, int) or isinstance(got, bool):
            raise Hint(f"return the number of bytes, an int; you returned {got!r}.")
        images = batch * math.prod(shape)
        want, case = workers * prefetch * images * dtype.itemsize, (
            f"for {workers} workers, {prefetch} batches each, of {batch} images {shape} in {dtype}, ")
        if got == want:
            continue
        if not workers:
            raise Hint(f"{case}you returned {got:,}. Without workers nothing is handed over, and nothing waits: 0.")
        if got == workers * prefetch * images:
            raise Hint(f"{case}you returned {got:,}, the number of elements. Of how many bytes is one? dtype.itemsize tells.")
        if got == prefetch * images * dtype.itemsize:
            raise Hint(f"{case}you returned {got:,}, which is for one worker. Each of them has {prefetch} batches ahead.")
        if got == workers * images * dtype.itemsize:
            raise Hint(f"{case}you returned {got:,}, one batch for each worker. `prefetch` says how many there are.")
        raise Hint(f"{case}expected {want:,} bytes, got {got:,}.")
    if call(answer, 4, (2,), torch.uint8, 3) != 48:
        raise Hint("`prefetch` is 2 unless it is given, as in a DataLoader.")


class _Ops(TorchDispatchMode):
    """Counts the calls of PyTorch's operators by name."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.counts[func._schema.name.removeprefix("aten::")] += 1
        return func(*args, **(kwargs or {}))


@exercise("loading-2")
def whole_batches(answer):
    n, size = random.randrange(25, 32), 8
    X, y = torch.arange(3 * n).view(n, 3), torch.arange(n)
    loader = call(answer, X, y, size)
    if not isinstance(loader, DataLoader):
        raise Hint(f"return a torch.utils.data.DataLoader, not {type(loader).__name__}.")
    if loader.num_workers:
        raise Hint("no workers, please: for data in memory they cost more than they save.")
    if loader.batch_size == 1 and isinstance(loader.sampler, BatchSampler):
        raise Hint("the sampler makes the batches already, so give batch_size=None too: unless told, a DataLoader puts one of "
                   "them into a batch of its own.")
    passes, ops = [], _Ops()
    for _ in range(2):
        with ops:
            passes.append(call(list, loader))
    orders = [_order(batches, n, size, 3) for batches in passes]
    if ops.counts["select"] or ops.counts["unbind"] or ops.counts["stack"]:
        raise Hint(f"in two passes over {n} examples single rows were taken out {ops.counts['select'] + ops.counts['unbind']} times, "
                   f"and {ops.counts['stack']} batches stacked. Give the data set the whole list of indices, by __getitems__, or "
                   "by a BatchSampler as `sampler` with batch_size=None.")
    picks = ops.counts["index"] + ops.counts["index_select"] + ops.counts["gather"]
    if picks > 2 * sum(map(len, passes)):
        raise Hint(f"{picks} indexings for {sum(map(len, passes))} batches of two tensors: one for each tensor is enough.")
    _check_orders(orders, n)


def _order(batches, n, size, width):
    """The labels of a pass in their order, if the batches are as they should be."""
    pairs = [batch for batch in batches if isinstance(batch, (tuple, list)) and len(batch) == 2
             and all(isinstance(t, torch.Tensor) for t in batch)]
    if len(pairs) != len(batches):
        raise Hint("each batch should be a pair of tensors, X and y. Does the default collation stack what is a batch already?")
    sizes = [len(b) for _, b in pairs]
    if sizes != [size] * (n // size) + [n % size] * (n % size > 0):
        raise Hint(f"for {n} examples in batches of {size} the sizes were {sizes}.")
    if any(a.shape != (len(b), width) for a, b in pairs):
        raise Hint(f"X should have the shape (examples, {width}) in a batch.")
    order = torch.cat([b for _, b in pairs]).tolist()
    if sorted(order) != list(range(n)):
        raise Hint("a pass should give every example exactly once.")
    if any(not torch.equal(a[:, 0].cpu(), width * b.cpu()) for a, b in pairs):
        raise Hint("X and y no longer belong together: use the same rows for both.")
    return order


def _check_orders(orders, n):
    if orders[0] == list(range(n)):
        raise Hint("the examples came in their old order. Shuffle.")
    if orders[0] == orders[1]:
        raise Hint("both passes came in the same order. Draw a new one for each pass.")


class _Slow:
    """A loader whose batches take these seconds, on a clock that moves with it."""

    def __init__(self, *seconds):
        self.seconds, self.now, self.passes = seconds, random.uniform(10, 99), 0

    def __iter__(self):
        self.passes += 1
        for seconds in self.seconds:
            self.now += seconds
            yield torch.zeros(2)

    def clock(self):
        return self.now


@exercise("loading-3")
def seconds_a_batch(answer):
    n = random.randrange(5, 9)
    for seconds in ((3.0, *(random.uniform(0.1, 0.9) for _ in range(n))), (4.0, 1.0), (2.0,), ()):
        loader = _Slow(*seconds)
        got = call(answer, loader, loader.clock)
        rest, count = sum(seconds[1:]), len(seconds) - 1
        if loader.passes > 1:
            raise Hint(f"the loader was iterated {loader.passes} times: each starts its workers anew. Once is enough.")
        if count < 1:
            if got is not None:
                raise Hint(f"with {len(seconds)} batches there is nothing to time after the first: return None, not {got!r}.")
            continue
        if isinstance(got, bool) or not isinstance(got, (int, float)):
            raise Hint(f"return the seconds as a number, not {got!r}.")
        if abs(got - rest / count) < 1e-6:
            continue
        if abs(got - sum(seconds) / len(seconds)) < 1e-6:
            raise Hint(f"you returned {got:.3f}, with the slow first batch in it. Start the clock when it has arrived.")
        if abs(got - rest / len(seconds)) < 1e-6:
            raise Hint(f"you returned {got:.3f}: the first batch is in the count, and its time is not. Divide by the others.")
        if abs(got - rest) < 1e-6:
            raise Hint(f"you returned {got:.3f}, the time of all batches together. Divide by their number.")
        raise Hint(f"you returned {got:.3f} for batches that took {', '.join(f'{s:.3f}' for s in seconds)}. Time all but the first: "
                   f"{rest / count:.3f} each.")


@exercise("loading-4")
def chunked_batches(answer):
    size, chunk, n = 4, 12, random.choice([25, 27, 30, 31])
    with some_devices() as devices:
        for device in [*devices[:1], torch.device("cpu")]:
            X, y = torch.arange(3 * n).view(n, 3), torch.arange(n)
            passes, copies, at_start = [], 0, 0
            for _ in range(2):
                with count_transfers() as first:
                    iterator = call(answer, X, y, size, chunk, device)
                    if iterator is None or not hasattr(iterator, "__iter__"):
                        raise Hint(f"your function returned {iterator!r}. It should yield batches.")
                    if not isinstance(iterator, Iterator):
                        raise Hint(f"your function returned a {type(iterator).__name__} with all batches in it, and they do not "
                                   "fit. Yield one after the other.")
                    begun = call(list, itertools.islice(iterator, 1))
                with count_transfers() as rest:
                    passes.append(begun + call(list, iterator))
                at_start = first.copies["H2D"]
                copies += at_start + rest.copies["H2D"]
            orders = [_order(batches, n, size, 3) for batches in passes]
            if any(t.device != device for batches in passes for pair in batches for t in pair):
                raise Hint(f"the batches should be on {device}.")
            _check_orders(orders, n)
            if all(set(order[:chunk]) == set(range(chunk)) for order in orders):
                raise Hint("each chunk holds the same examples in every pass, shuffled among themselves. Shuffle all of them.")
            if device.type == "cpu":
                continue
            needed = 2 * 2 * -(-n // chunk)
            if copies == 2 * 2:
                raise Hint("all examples were moved at once, and they do not fit. Move a chunk at a time.")
            if at_start == needed // 2:
                raise Hint("all chunks were on the device before the first batch came, and they do not fit. Move a chunk when "
                           "the one before is used up.")
            if copies > needed:
                raise Hint(f"{copies} copies to the device in two passes; with one for X and one for y for each chunk it "
                           f"is {needed}. Pick the rows of a chunk in main memory, move them together, and split them there.")
            if copies < needed:
                raise Hint(f"{copies} copies to the device in two passes, and {needed} chunks of X and y.")
