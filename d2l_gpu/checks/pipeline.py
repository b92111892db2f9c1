"""Checkers for chapter 08, the data pipeline."""

import itertools
import random

import torch
from torch.overrides import TorchFunctionMode

from ..transfers import count_transfers
from . import Hint, call, exercise, some_devices


def _kind(value):
    return f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__


def _tensors(value, count):
    return isinstance(value, (tuple, list)) and len(value) == count and all(isinstance(part, torch.Tensor) for part in value)


class _Indexing(TorchFunctionMode):
    """Counts in `count` how often a tensor is indexed."""
    count = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.count += function is torch.Tensor.__getitem__
        return function(*args, **(kwargs or {}))


@exercise("pipeline-1")
def speed_up(answer):
    def step(load, compute, workers):
        return max(load / workers, compute) if workers else load + compute

    cases = [(30, 10, 0, 2), (30, 10, 1, 2), (10, 30, 1, 2), (30, 10, 4, 2), (20, 15, 2, 3), (10, 30, 0, 2)]
    cases += [(random.randint(5, 40), random.randint(5, 40), random.randint(0, 4), random.randint(2, 5)) for _ in range(20)]
    for load, compute, workers, faster in cases:
        want = step(load, compute, workers) / step(load, compute / faster, workers)
        got = call(answer, load, compute, workers, faster)
        if isinstance(got, bool) or not isinstance(got, (int, float)):
            raise Hint(f"return a number, how many times as many batches an hour; you returned {_kind(got)}.")
        if abs(got - want) < 1e-6:
            continue
        case = f"load {load}, compute {compute}, {workers} workers, a GPU {faster} times as fast: "
        if abs(got * want - 1) < 1e-6:
            raise Hint(f"{case}you returned {got:.3g}, the new time over the old. More batches an hour is the old over the new.")
        if not workers:
            raise Hint(f"{case}expected {want:.3g}, got {got:.3g}. Without workers loading and computing take turns, and their "
                       "times add up; a faster GPU shortens one of the two.")
        if workers > 1 and abs(got - max(load, compute) / max(load, compute / faster)) < 1e-6:
            raise Hint(f"{case}expected {want:.3g}, got {got:.3g}, which is right for one worker. {workers} of them make {workers} "
                       "batches at once.")
        if load / workers >= compute:
            raise Hint(f"{case}expected {want:.3g}, got {got:.3g}. The loading sets the pace here, before and after.")
        raise Hint(f"{case}expected {want:.3g}, got {got:.3g}. The slower side sets the pace, and with a faster GPU that may become "
                   "the loading.")


@exercise("pipeline-2")
def windows(answer):
    n, size = random.randint(12, 20), random.randint(3, 5)
    series = torch.rand(n)
    data = call(answer, series, size)
    if data is None or not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
        raise Hint("the answer should be a class whose objects have __len__ and __getitem__.")
    count = call(data.__len__)
    if count != n - size:
        raise Hint(f"a series of {n} has {n - size} windows of {size} that another value follows; len() says {count}.")
    for i in (0, random.randrange(1, n - size), n - size - 1):
        got = call(data.__getitem__, i)
        if not _tensors(got, 2):
            raise Hint(f"sample {i} should be a pair of tensors, the window and the value after it; it is {_kind(got)}.")
        if got[0].shape != (size,) or not torch.equal(got[0], series[i:i + size]):
            raise Hint(f"sample {i} should have the window series[{i}:{i + size}], of {size} values.")
        if got[1].shape != () or not torch.equal(got[1], series[i + size]):
            raise Hint(f"the target of sample {i} should be series[{i + size}], the value right after the window, without "
                       "dimensions.")
    if not hasattr(data, "__getitems__"):
        raise Hint("there is no __getitems__ yet, so a DataLoader would fetch one window at a time.")
    rows, fetched = random.sample(range(n - size), 4), []
    single = type(data).__getitem__
    try:
        type(data).__getitem__ = lambda self, i: fetched.append(i) or single(self, i)
        with _Indexing() as indexing:
            got = call(data.__getitems__, rows)
    finally:
        type(data).__getitem__ = single
    if isinstance(got, list) and not _tensors(got, 2):
        raise Hint("__getitems__ returned a list of samples, which would still have to be joined. Return the batch itself: a pair "
                   "of tensors.")
    if not _tensors(got, 2):
        raise Hint(f"__getitems__ should return a pair of tensors, and returned {_kind(got)}.")
    if got[0].shape != (4, size) or got[1].shape != (4,):
        raise Hint(f"for 4 indices __getitems__ should return shapes (4, {size}) and (4,), and returned {tuple(got[0].shape)} and "
                   f"{tuple(got[1].shape)}.")
    if not torch.equal(got[0], torch.stack([series[i:i + size] for i in rows])):
        raise Hint(f"the windows of __getitems__({rows}) are not those of these indices, in this order.")
    if not torch.equal(got[1], series[torch.tensor(rows) + size]):
        raise Hint(f"the targets of __getitems__({rows}) are not those of these indices, in this order.")
    way = "Make one matrix of positions, the indices down and 0, 1, ... across, and index the series once."
    if len(fetched) >= 4:
        raise Hint(f"__getitems__ called __getitem__ {len(fetched)} times for 4 indices. {way}")
    if indexing.count >= 4:
        raise Hint(f"__getitems__ indexed tensors {indexing.count} times for 4 indices, window by window. {way}")


@exercise("pipeline-3")
def collate(answer):
    for lengths, multiple in (([random.randint(2, 5) for _ in range(4)] + [9], 4), ([3, 3], 8), ([6, 1], 3), ([2], 1), ([9, 16], 8)):
        random.shuffle(lengths)
        samples = [(torch.randint(1, 100, (length,)), random.randint(0, 9)) for length in lengths]
        for sequence, _ in samples:
            sequence[-1] *= random.randint(0, 1)  # now and then a zero of its own
        got = call(answer, list(samples), multiple)
        if not isinstance(got, (tuple, list)) or len(got) != 3:
            raise Hint(f"return three things, the padded sequences, the mask and the labels; you returned {_kind(got)}.")
        if not _tensors(got, 3):
            raise Hint(f"all three should be tensors, and they are {', '.join(_kind(part) for part in got)}.")
        padded, mask, labels = got
        shape = (len(lengths), -(-max(lengths) // multiple) * multiple)
        if padded.shape == shape[::-1] and shape[0] != shape[1]:
            raise Hint(f"the padded tensor has shape {tuple(padded.shape)}: the samples should go down the rows (batch_first).")
        if padded.shape != shape:
            raise Hint(f"for lengths {lengths} and multiple={multiple} the padded tensor should have shape {shape}, the longest of "
                       f"this batch rounded up, and has {tuple(padded.shape)}.")
        if padded.dtype != torch.int64:
            raise Hint(f"the sequences are int64, and the padded tensor is {padded.dtype}.")
        for row, (sequence, _) in zip(padded, samples):
            if not torch.equal(row[:len(sequence)], sequence):
                raise Hint("a row does not begin with its sequence: keep the samples in their order, and pad at the end.")
            if row[len(sequence):].any():
                raise Hint(f"a sequence of {len(sequence)} is followed by {row[len(sequence):].tolist()}. Pad with zeros.")
        if mask.shape != shape or mask.dtype != torch.bool:
            raise Hint(f"the mask should be of shape {shape} and torch.bool, and is {tuple(mask.shape)} and {mask.dtype}.")
        for row, sequence, marked in zip(padded, (sequence for sequence, _ in samples), mask):
            want = [at < len(sequence) for at in range(len(row))]
            if marked.tolist() == [not here for here in want]:
                raise Hint("the mask is the wrong way round: True where a value comes from a sequence.")
            if marked.tolist() != want:
                raise Hint(f"the mask of the row {row.tolist()} has {sum(marked.tolist())} times True, and the sequence has "
                           f"{len(sequence)} values. Make it from the lengths: a sequence may contain zeros.")
        if labels.tolist() != [label for _, label in samples] or labels.dtype != torch.int64:
            raise Hint(f"the labels should be {[label for _, label in samples]} as int64, and are {labels.tolist()} as {labels.dtype}.")


@exercise("pipeline-4")
def share(answer):
    for workers in (1, 2, 3, random.randint(4, 6)):
        n = random.randint(20, 30)
        items = random.sample(range(100, 1000), n)  # not their positions, which a share must be made by
        parts = [call(lambda w=worker: list(_some(answer(iter(items), w, workers)))) for worker in range(workers)]
        everything = list(itertools.chain(*parts))
        if len(everything) > len(set(everything)):
            raise Hint(f"with {workers} workers a stream of {n} came out as {len(everything)} items: some were yielded by more than "
                       "one worker.")
        if set(everything) != set(items):
            lost = [at for at, item in enumerate(items) if item not in everything]
            raise Hint(f"with {workers} workers the items at {lost[:5]} of the {n} are lost. The number need not divide evenly."
                       if lost else "a worker yields what is not in the stream.")
        if max(map(len, parts)) - min(map(len, parts)) > 1:
            raise Hint(f"with {workers} workers the shares of {n} items are {[len(part) for part in parts]}. They should differ by "
                       "one at most.")
        if any(part != sorted(part, key=items.index) for part in parts):
            raise Hint("a worker yields its items in another order than that of the stream.")
    alone = call(lambda: list(_some(answer(iter(range(9)), None, 0))))
    if alone != list(range(9)):
        raise Hint(f"in the training process (worker None, workers 0) a stream of 9 came out as {alone}. It has no one to share "
                   "with.")
    read = []

    def endless():
        for i in itertools.count():
            if i > 1000:
                raise Hint("your function reads more than 1,000 items of an endless stream before it yields 5. Yield as you read, "
                           "and keep nothing.")
            read.append(i)
            yield i

    first = call(lambda: list(itertools.islice(_some(answer(endless(), 1, 3)), 5)))
    if first != sorted(set(first)) or len(first) < 5:
        raise Hint(f"of an endless stream worker 1 of 3 yielded {first} first.")


def _some(items):
    if items is None or not hasattr(items, "__iter__"):
        raise Hint(f"your function returned {items!r}. It should yield the items, or return an iterable.")
    return items


@exercise("pipeline-5")
def crops(answer):
    with some_devices() as devices:
        for device in [*devices[:1], torch.device("cpu")]:
            n, channels, height, width, size = 1000, 3, random.randint(9, 11), random.randint(12, 14), 6
            where = torch.arange(height * width, dtype=torch.float32).view(1, 1, height, width)
            X = (where + 1000 * torch.arange(channels).view(1, channels, 1, 1)
                 + 10_000 * torch.arange(n).view(n, 1, 1, 1)).to(device)  # a pixel says where it comes from
            with count_transfers() as used, _Indexing() as indexing:
                got = [call(answer, X, size) for _ in range(2)]
            for out in got:
                if not isinstance(out, torch.Tensor) or out.shape != (n, channels, size, size):
                    raise Hint(f"for X of shape {tuple(X.shape)} and size {size} return a tensor of shape {(n, channels, size, size)}, "
                               f"not {_kind(out)}.")
                if out.device != X.device:
                    raise Hint(f"the result is on {out.device}; X is on {X.device}, and so should the result be.")
            corners = [_corners(out.cpu(), height, width, size) for out in got]
            for tops, lefts in corners:
                for name, found, most in (("row", tops, height - size), ("column", lefts, width - size)):
                    if found.unique().numel() == 1:
                        raise Hint(f"all {n} windows begin in the same {name}. Draw one for each picture.")
                    if found.max() < most:
                        raise Hint(f"no window begins in {name} {most}, the last one possible: randint leaves its upper bound out.")
            if torch.equal(got[0], got[1]):
                raise Hint("two calls drew the same windows. Draw anew in each call.")
            for name, found, places in (("row", torch.cat([tops for tops, _ in corners]), height - size + 1),
                                        ("column", torch.cat([lefts for _, lefts in corners]), width - size + 1)):
                counts, fair = torch.bincount(found.long(), minlength=places), 2 * n / places
                if (counts - fair).abs().max() > 5 * fair ** 0.5:  # five standard deviations
                    raise Hint(f"of {2 * n:,} windows {', '.join(map(str, counts.tolist()))} begin in {name} 0, 1, ...: no place should "
                               "be likelier than another. Draw integers from the places that exist; do not round or clip.")
            pairs = {(top, left) for tops, lefts in corners for top, left in zip(tops.tolist(), lefts.tolist())}
            places = (height - size + 1) * (width - size + 1)
            if len(pairs) < places:
                raise Hint(f"there are {places} places for a window, and {2 * n:,} windows begin in only {len(pairs)} of them. Draw the "
                           "row and the column independently.")
            if used.copies.total() or used.waits.total():
                raise Hint(f"{used.copies.total()} copies and {used.waits.total()} waits in two calls. Draw and index on the device of "
                           "X, and let Python look at no value.")
            if indexing.count >= n:
                raise Hint(f"tensors were indexed {indexing.count:,} times in two calls, picture by picture. Draw all places at once, and "
                           "index X once, with the numbers of the pictures, the rows and the columns.")


def _corners(out, height, width, size):
    """Rows and columns where the windows begin, or a Hint if these are no windows."""
    n, channels = out.shape[:2]
    first = out[:, :1, :1, :1]
    image = torch.arange(n).view(n, 1, 1, 1)
    if not torch.equal(first // 10_000, image.float()):
        raise Hint("window i should be cut from picture i.")
    inside = (torch.arange(size).view(1, 1, size, 1) * width + torch.arange(size)
              + 1000 * torch.arange(channels).view(1, channels, 1, 1))
    corner = first - 10_000 * image
    if not torch.equal(out, first + inside):
        raise Hint("the results are not windows of the pictures: neighboring pixels, all channels from the same place.")
    return (corner // width).flatten(), (corner % width).flatten()
