"""Checkers for chapter 13, streams."""

import contextlib
import inspect
import random

import torch

from ..queues import QueueModel
from ..streams import watch_streams
from ..transfers import count_transfers
from . import Hint, call, exercise, some_devices


@exercise("streams-1")
def total(answer):
    for streams in (1, 2) * 6:
        copy, step, n = random.randrange(1, 9), random.randrange(1, 9), random.randrange(1, 7)
        model = QueueModel()
        copies, main = model.stream("copies"), model.stream("main")
        for _ in range(n):
            (copies if streams == 2 else main).put("copy", copy, "to the card")
            main.wait_stream(copies)
            main.put("step", step)
        got = call(answer, copy, step, n, streams)
        if isinstance(got, bool) or not isinstance(got, (int, float)):
            raise Hint(f"return a number of units, not {got!r}.")
        if got == model.end:
            continue
        if streams == 1:
            raise Hint(f"copy={copy}, step={step}, n={n} on one stream end at {model.end:g}, and you returned {got}. There everything "
                       "comes after everything before it.")
        if got in (n * max(copy, step), copy + n * step, n * copy + step, n * (copy + step)):
            raise Hint(f"copy={copy}, step={step}, n={n} on two streams end at {model.end:g}, and you returned {got}. The first copy has "
                       "no step beside it, nor the last step a copy; in between, the longer of the two sets the pace.")
        raise Hint(f"copy={copy}, step={step}, n={n} on two streams end at {model.end:g}, and you returned {got}. Draw it with "
                   "d2l.QueueModel.")


def _races(seen, advice):
    """Raise a hint for the first race, with the first advice whose key is in its words."""
    for race in seen.races:
        if "default stream" in str(seen):  # only an answer that asked for it has anything to do with it
            raise Hint(f"{race}. The current stream need not be the default one: ask for torch.cuda.current_stream(device).")
        raise Hint(f"{race}. " + next(words for key, words in advice.items() if key in race))


@contextlib.contextmanager
def _gpu():
    """A GPU, with a current stream that is not the default one: an answer should not take it for granted."""
    with some_devices() as devices:
        if not devices:
            raise Hint("this exercise needs a GPU, and this release of torch cannot simulate one.")
        with torch.cuda.stream(torch.cuda.Stream(devices[0])):
            yield devices[0]


@exercise("streams-2")
def beside(answer):
    with _gpu() as device:
        side, main = torch.cuda.Stream(device), torch.cuda.current_stream(device)
        n = random.randrange(3, 9)
        with watch_streams(**{"side": side, "current stream": main}) as seen, count_transfers() as used:
            x = torch.full((n, n), 2.0, device=device)
            before, waited = len(seen.orders), len(seen.waits)
            y = call(answer, x, side)
            after, waits = seen.orders[before:], seen.waits[waited:]
            current = torch.cuda.current_stream(device)
            if not isinstance(y, torch.Tensor) or y.device != device:
                raise Hint(f"return the sum as a tensor on {device}, not {y!r}.")
            result = y + 1  # what a caller may do: use the result, write into x, let go of both
            x.zero_()
            del x, y
            with torch.cuda.stream(side):
                torch.ones(n, device=device)
        if current != main:
            raise Hint("after the call the current stream is another one: put it back, with a `with` statement.")
        if waits or used.waits.total():
            raise Hint(f"the host waited ({', '.join(waits)}). Let one stream wait for the other instead.")
        if result.item() != 4.0 * n ** 3 + 1:
            raise Hint(f"for a {n} x {n} matrix of 2s, (x @ x).sum() is {4 * n ** 3}, and you returned {result.item() - 1:g}.")
        if not any(order.stream == "side" for order in after) or any(order.stream != "side" for order in after
                                                                     if "mm" in order.name or order.name == "sum"):
            raise Hint("the product and the sum should both be in the stream `side`: use `with torch.cuda.stream(side)`.")
        _races(seen, {"memory of": "Both streams use this tensor: tell the allocator, with record_stream.",
                      "(side) reads": "x may not be written yet: `side` has to wait for the current stream first.",
                      "may not have written": "The caller goes on in the current stream: that has to wait for `side`.",
                      "": "The current stream has to wait for `side` before the caller goes on."})


@exercise("streams-3")
def one_behind(answer):
    with some_devices() as devices, contextlib.ExitStack() as elsewhere:
        if devices:  # as in _gpu
            elsewhere.enter_context(torch.cuda.stream(torch.cuda.Stream(devices[0])))
        for device in [*devices[:1], torch.device("cpu")]:
            n = random.randrange(4, 8)
            values, steps = [k * k / 4 for k in range(n)], []

            def losses():
                for k, value in enumerate(values):
                    if k and device.type == "cuda" and seen.done(steps[k - 1]):
                        raise Hint(f"the host waited for loss {k - 1} before it took loss {k}: start the copy with non_blocking=True.")
                    loss = torch.full((), value, device=device) * 2
                    steps.append(seen.orders[-1] if loss.is_cuda else None)
                    yield loss

            with watch_streams() as seen, count_transfers() as used:
                got = []
                for value in _through(call(answer, losses())):
                    got.append(value)
                    if type(value) is not float:
                        raise Hint(f"yield Python floats, not {type(value).__name__}.")
                    if len(steps) > len(got) + 1:
                        raise Hint(f"float {len(got) - 1} came when {len(steps)} losses were taken already: take one more, not all.")
                    if device.type != "cuda":
                        continue
                    if len(steps) < min(len(got) + 1, n):
                        raise Hint(f"float {len(got) - 1} was read before loss {len(got)} was taken: meanwhile the card has nothing to "
                                   "do. Hold each loss back until you have taken the next.")
                    if len(got) < n and seen.done(steps[len(got)]):
                        raise Hint(f"to read float {len(got) - 1} the host waited for loss {len(got)} as well. Record an event after "
                                   "each copy, and wait for that event only.")
            wanted = [2 * value for value in values]
            if got != wanted:
                missing = got == wanted[:len(got)]
                raise Hint(f"{len(got)} floats for {n} losses: " + ("the last one is still to be read when the losses end."
                           if missing else "they are not the losses in their order."))
            if device.type == "cuda":
                _races(seen, {"(the host)": "The copy may still be on its way: wait for its event before you read."})
                if used.copies["D2H"] != n:
                    raise Hint(f"{used.copies['D2H']} copies for {n} losses: one for each is enough.")
                if len(seen.waits) < n:
                    raise Hint("a float was read without a wait for its copy: it may not have arrived.")
        if call(lambda: list(answer(iter([])))):
            raise Hint("without losses there is nothing to yield.")


def _through(iterator):
    """What a generator of the answer gives; its errors are the answer's."""
    if not inspect.isgenerator(iterator):
        raise Hint(f"your function returned {type(iterator).__name__}. Write a generator, with `yield`.")
    end = object()
    with contextlib.closing(iterator):
        while (item := call(lambda: next(iterator, end))) is not end:
            yield item


class _Loader:
    """Batches in main memory, some of them read; it can be iterated again, and fails at batch `broken`."""

    def __init__(self, pin, broken=None):
        sizes = [4] * random.randrange(4, 7) + [random.randrange(1, 4)]
        self.batches = [(torch.full((size, 3), float(k + 1)), torch.full((size,), k)) for k, size in enumerate(sizes)]
        if pin:
            self.batches = [tuple(t.pin_memory() for t in batch) for batch in self.batches]
        self.broken, self.read = broken, 0

    def __iter__(self):
        self.read = 0
        for k, batch in enumerate(self.batches):
            if k == self.broken:
                raise OSError("batch 2 cannot be read")
            self.read += 1
            yield batch


@exercise("streams-4")
def prefetch(answer):
    _same_batches(answer, torch.device("cpu"), _Loader(False))
    with _gpu() as device:
        loader = _Loader(True)
        for _ in range(2):
            _same_batches(answer, device, loader)
        _order(answer, device, loader)
        try:
            for _ in call(answer, _Loader(True, broken=2), device):
                pass
        except OSError:
            pass
        else:
            raise Hint("the loader raised an error at batch 2, and your function swallowed it.")


def _same_batches(answer, device, loader):
    with contextlib.closing(_through(call(answer, loader, device))) as batches:
        _compare(batches, device, loader)


def _compare(batches, device, loader):
    results, n = [], len(loader.batches)
    main = torch.cuda.current_stream(device) if device.type == "cuda" else None
    for batch in batches:
        if not isinstance(batch, tuple) or len(batch) != 2 or any(not isinstance(t, torch.Tensor) for t in batch):
            raise Hint("each batch should be a pair of tensors, as the loader gives it.")
        if any(t.device != device for t in batch):
            raise Hint(f"the batch should be on {device}, and is on {', '.join(str(t.device) for t in batch)}.")
        if main is not None and torch.cuda.current_stream(device) != main:
            raise Hint("the loop's own work now goes into your side stream: leave the `with` block before you yield.")
        if loader.read > len(results) + 2:
            raise Hint(f"for batch {len(results)} you took {loader.read} from the loader: hold one back, not all.")
        results.append((batch[0][:, 0] * 2, batch[1] + 0))
    if main is not None and torch.cuda.current_stream(device) != main:
        raise Hint("after the loop the current stream is your side stream: put it back, with a `with` statement.")
    if len(results) != n:
        raise Hint(f"{len(results)} batches for {n}." + " When the loader ends you still hold one." * (len(results) == n - 1))
    for (X, y), (A, b) in zip(results, loader.batches):
        if not torch.equal(X.cpu() / 2, A[:, 0]) or not torch.equal(y.cpu(), b):
            raise Hint("these are not the loader's batches in their order.")


def _order(answer, device, loader):
    n, steps = len(loader.batches), []
    with watch_streams() as seen, count_transfers() as used:
        for X, y in call(answer, loader, device):
            (X * 2).sum() + y
            steps.append(seen.orders[-3])  # the first that needs the batch
            del X, y
    copies = [order for order in seen.orders if order.name.startswith("copy to")]
    if any(order.stream == steps[0].stream for order in copies):
        raise Hint("a copy is in the stream that computes, where it waits its turn. Use a torch.cuda.Stream of your own.")
    if used.waits["H2D"]:
        raise Hint(f"the host waited for {used.waits['H2D']} copies: say non_blocking=True.")
    if seen.waits:
        raise Hint(f"the host waited for {seen.waits[0]}. Let the current stream wait instead.")
    _races(seen, {"memory of": "A batch is made in one stream and used in another: record_stream.",
                  "": "The current stream has to wait for the copy before the batch is yielded."})
    if len(copies) != 2 * n:
        raise Hint(f"{len(copies)} copies for {n} batches of two tensors each.")
    for k in range(n - 1):
        if seen.orders.index(copies[2 * k + 2]) > seen.orders.index(steps[k]):
            raise Hint(f"the copy of batch {k + 1} is put only after the step on batch {k}: a loop that waits for its step would have "
                       "nothing under way. Start the next copy before you yield.")
        if steps[k].follows(copies[2 * k + 2]):
            raise Hint(f"the step on batch {k} waits for the copy of batch {k + 1} as well: wait_stream waits for all that was put until "
                       "then. Record an event after each copy, and wait for that.")
