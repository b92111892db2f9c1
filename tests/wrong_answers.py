"""Plausible wrong answers to the exercises: for each, words that its hint must contain."""

import collections
import contextlib
import copy
import itertools
import math
import random
import statistics
import warnings

import torch
from torch import nn
from torch.profiler import profile, schedule
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset
from d2l_gpu.capstone import slow
from d2l_gpu.checks import next as next_exercises
from d2l_gpu.datasets import BatchedTensors
from d2l_gpu.loading import DeviceLoader


cpu, cuda = torch.device("cpu"), torch.device("cuda")


def card(i):
    return torch.device("cuda", i)


def _rows(csv):
    return [line.split(", ") for line in csv.strip().splitlines()]


def _checked(i):
    if i < 0:
        raise ValueError(f"negative index {i}")


def _nth(compare=lambda i, n: i < n, check=_checked, make=card):
    def answer(i, n):
        check(i)
        return make(i) if compare(i, n) else cpu
    return answer


def _freest(key, make=lambda row, rows: card(int(row[0])), empty=True):
    def answer(csv):
        rows = _rows(csv)
        if not rows and empty:
            return cpu
        row = max(rows, key=key)
        return make(row, rows)
    return answer


def _wrong_order(built_for, driver, gpus):
    if driver is None:
        return "no driver"
    if built_for is None:
        return "cpu-only build"
    return "driver too old" if int(driver.split(".")[0]) < int(built_for.split(".")[0]) else "ok" if gpus else "no gpu visible"


def _diagnose(too_old, visible=True, none="cpu-only build"):
    def answer(built_for, driver, gpus):
        if built_for is None:
            return none
        if driver is None:
            return "no driver"
        if too_old(built_for, driver):
            return "driver too old"
        return "ok" if gpus or not visible else "no gpu visible"
    return answer


def _major(version):
    return int(version.split(".")[0])


def _fresh_value_error(i):
    if i < 0:
        raise ValueError("bad index")


def _one_of(devices):
    if len(devices) > 1:
        raise ValueError("several devices")
    return devices.pop() if devices else cpu


def _standardize(keep, use=lambda x, t: t):
    class Layer(torch.nn.Module):
        def __init__(self, mean, std):
            super().__init__()
            keep(self, "mean", torch.tensor(mean))
            keep(self, "std", torch.tensor(std))

        def forward(self, x):
            return (x - use(x, self.mean)) / use(x, self.std)
    return Layer


def _rescale(net, target, write, norm_of=lambda ps: torch.stack([p.norm() for p in ps]).norm().item()):
    with torch.no_grad():
        norm = norm_of(list(net.parameters()))
        for module in net.modules():
            for name, p in list(module.named_parameters(recurse=False)):
                if write is _replace:
                    setattr(module, name, torch.nn.Parameter(p * (target / norm)))
                else:
                    write(p, target / norm)
    return norm


def _replace():
    """A mark: make new parameters instead of writing into the old ones."""


def _numbers(net):
    return sum(p.numel() for p in net.parameters())


def _resume(path, net, optimizer, assign=False, **how):
    checkpoint = torch.load(path, **how)
    net.load_state_dict(checkpoint["model"], assign=assign)
    if optimizer is not None:
        optimizer.load_state_dict(checkpoint["optimizer"])
    return checkpoint["epoch"]


def _epoch(net, batches, optimizer, device, clear=True, mean=None, mode=True, fetch=False, move=lambda y, d: y.to(d)):
    net.to(device).train(mode)
    losses = []
    for X, y in batches:
        loss = torch.nn.functional.cross_entropy(net(X.to(device)), move(y, device))
        if clear:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item() if fetch else loss.detach())
    numbers, sizes = losses if fetch else torch.stack(losses).tolist(), [len(y) for _, y in batches]
    return mean(numbers, sizes) if mean else sum(n * k for n, k in zip(numbers, sizes)) / sum(sizes)


def _right(net, batches, device, restore=True, guard=torch.inference_mode, evaluate=True, fetch=False,
           share=lambda right, n, batches: right / n):
    was = net.training
    net.to(device).train(not evaluate)
    with guard():
        right = [(net(X.to(device)).argmax(1) == y.to(device)).sum() for X, y in batches]
        right = sum(r.item() for r in right) if fetch else torch.stack(right).sum().item()
    net.train(was if restore else not was)
    return float(share(right, sum(len(y) for _, y in batches), len(batches)))


def _clocked(warmup=1, start=True, stop=True, runs=5, together=False, take=statistics.median):
    def answer(work, wait, clock):
        for _ in range(warmup):
            work()
        times = []
        for _ in range(1 if together else runs):
            if start:
                wait()
            began = clock()
            for _ in range(runs if together else 1):
                work()
            if stop:
                wait()
            times.append(clock() - began)
        return take(times)
    return answer


def _chained(A, Bs):
    log, C = [], A
    for B in Bs:
        C = C @ B
        log.append(C.norm())
    return torch.stack(log).tolist()


def _batch(i, o, ridge, size, flop=2, written=1):
    gain = flop * i * o - ridge * size * (i + written * o)
    return None if gain <= 0 else max(1, math.ceil(ridge * size * i * o / gain))


def _seeded_order(n, device):
    return torch.arange(n, device=device).roll(3)


def _pairs(X, y, chunks):
    return ((X[rows], y[rows]) for rows in chunks)


def _pace(load, compute, workers):
    return max(load / workers, compute) if workers else load + compute


def _windows(length=lambda self: len(self.series) - self.size,
             item=lambda self, i: (self.series[i:i + self.size], self.series[i + self.size]),
             items=lambda self, indices: (self.series[torch.tensor(indices)[:, None] + torch.arange(self.size)],
                                          self.series[torch.tensor(indices) + self.size])):
    def init(self, series, size):
        self.series, self.size = series, size
    members = {"__init__": init, "__len__": length, "__getitem__": item, "__getitems__": items}
    return type("Windows", (), {name: member for name, member in members.items() if member})


def _padded(samples, multiple, fill=0):
    sequences, labels = zip(*samples)
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    padded = torch.full((len(sequences), -(-int(lengths.max()) // multiple) * multiple), fill)
    for row, sequence in zip(padded, sequences):
        row[:len(sequence)] = sequence
    return padded, torch.arange(padded.shape[1]) < lengths[:, None], torch.tensor(labels)


def _blocks(stream, worker, workers, whole):
    if worker is None:
        return stream
    items = list(stream)
    size = len(items) // workers if whole else -(-len(items) // workers)
    return items[worker * size:(worker + 1) * size]


def _cut(X, size, last=1, fixed=False, at=None):
    n, _, h, w = X.shape
    draw = at or (lambda most, shape, device: torch.randint(most + last, shape, device=device))
    at = [torch.arange(n, device=X.device).view(n, 1, 1) % (length - size + 1) if fixed else draw(
        length - size, (n, 1, 1), X.device) for length in (h, w)]
    across = torch.arange(size, device=X.device)
    cut = X[torch.arange(n, device=X.device).view(n, 1, 1), :, at[0] + across[:, None], at[1] + across]
    return cut.permute(0, 3, 1, 2)


def _cut_along_a_line(X, size):
    share = torch.rand(len(X), 1, 1, device=X.device)
    return _cut(X, size, at=lambda most, shape, device: (share * (most + 1)).long())


def _window(x, size, look=True):
    top, left = (random.randint(0, length - size) for length in x.shape[1:])
    if look:
        x.sum().item()
    return x[:, top:top + size, left:left + size]


def _profiled(step):
    step()
    with profile() as prof:
        step()
    return prof.key_averages()


def _calls(step, name, warm=True, times=1, same=str.__eq__):
    if warm:
        step()
    with profile() as prof:
        for _ in range(times):
            step()
    return sum(row.count for row in prof.key_averages() if same(row.key, name))


def _schedule(step, wait=1, warmup=1, active=3, steps=5, marked=True):
    with warnings.catch_warnings(record=True):  # of a missing warm-up
        with profile(schedule=schedule(wait=wait, warmup=warmup, active=active, repeat=1)) as prof:
            for _ in range(steps):
                step()
                if marked:
                    prof.step()
    return prof


def _marked_before(step):
    with profile(schedule=schedule(wait=1, warmup=1, active=3, repeat=1)) as prof:
        for _ in range(5):
            prof.step()
            step()
    return prof


def _two_then_three(step):
    step(), step()
    with profile() as prof:
        step(), step(), step()
    return prof


def _spans(events):
    return [event for event in events if event["ph"] == "X"]


def _on_gpu(events, cats=("kernel", "gpu_memcpy", "gpu_memset")):
    return [event for event in _spans(events) if event["cat"] in cats]


def _whole_events(events):
    spans = _spans(events)
    return max(e["ts"] + e["dur"] for e in spans) - min(e["ts"] for e in spans)


def _covered(spans):
    total, reached = 0.0, -1.0
    for start, end in sorted((e["ts"], e["ts"] + e["dur"]) for e in spans):
        total, reached = total + max(0.0, end - max(start, reached)), max(reached, end)
    return total


def _spans_labelled(events):
    return [event for event in _spans(events) if event["cat"] == "user_annotation"]


def _idle(label, busy):
    """The time in a label without work, for work that does not overlap."""
    until = label["ts"] + label["dur"]
    return label["dur"] - sum(max(0, min(until, b["ts"] + b["dur"]) - max(label["ts"], b["ts"])) for b in busy)


def _sum_by_label(events, weight):
    sums = collections.Counter()
    for label in _spans_labelled(events):
        sums[label["name"]] += weight(label, _on_gpu(events))
    return sums.most_common(1)[0][0]


def _mean_by_label(events, value):
    values = {}
    for label in _spans_labelled(events):
        values.setdefault(label["name"], []).append(value(label, _on_gpu(events)))
    return max(values, key=lambda name: sum(values[name]) / len(values[name]))


def _beside(there=True, back=True, record=True, inside=True, host=None, value=lambda x: (x @ x).sum(), leak=False, default=False):
    def answer(x, side):
        main = (torch.cuda.default_stream if default else torch.cuda.current_stream)(x.device)
        if there:
            side.wait_stream(main)
        with torch.cuda.stream(side if inside else main):
            y = value(x)
        if back:
            main.wait_stream(side)
        if host:
            host(side)
        if record:
            y.record_stream(main)
        if leak:
            torch.cuda.set_stream(side)
        return y
    return answer


def _fetched(loss, non_blocking=True, default=False):
    host = loss.to("cpu", non_blocking=non_blocking)
    stream = torch.cuda.default_stream if default else torch.cuda.current_stream
    return host, stream(loss.device).record_event() if loss.is_cuda else None


def _one_behind(last=True, wait=True, non_blocking=True, everything=False, hold=1, kind=float, value=lambda host: host.item(),
                default=False):
    def answer(losses):
        held = []
        for loss in losses:
            held.append(_fetched(loss, non_blocking, default))
            while len(held) > hold:
                yield read(*held.pop(0), loss)
        for pair in held if last else ():
            yield read(*pair, pair[0])

    def read(host, event, latest):
        if event is not None and wait:
            torch.cuda.synchronize() if everything else event.synchronize()
        return kind(value(host))
    return answer


def _copied(losses):
    for loss in losses:
        loss.to("cpu", non_blocking=True)
        yield loss


def _each_at_once(losses):
    for loss in losses:
        host, event = _fetched(loss)
        if event is not None:
            event.synchronize()
        yield host.item()


def _prefetch(ahead=True, last=True, event=True, wait=True, record=True, pin=True, own=True, leak=False, swallow=False, hold=1, host=False,
              kind=tuple, cpu=True, default=False):
    def answer(loader, device):
        if device.type != "cuda":
            if not cpu:
                torch.cuda.Stream(device)
            yield from ((X.to(device), y.to(device)) for X, y in loader)
            return
        side = torch.cuda.Stream(device) if own else torch.cuda.current_stream(device)
        main, held = (torch.cuda.default_stream if default else torch.cuda.current_stream)(device), []

        def give(batch, copied):
            if wait:
                main.wait_event(copied) if event else main.wait_stream(side)
            if host:
                copied.synchronize()
            for t in batch if record else ():
                t.record_stream(main)
            return kind(batch)

        try:
            for batch in loader:
                with torch.cuda.stream(side):
                    batch = tuple(t.to(device, non_blocking=pin) for t in batch)
                    if leak:
                        yield batch
                        continue
                held.append((batch, side.record_event()))
                while len(held) > (hold if ahead else 0):
                    yield give(*held.pop(0))
        except OSError:
            if not swallow:
                raise
        for pair in held if last else ():
            yield give(*pair)
    return answer


def _queued(wait=lambda A: torch.cuda.synchronize(A.device), between=lambda A: None, product=lambda A: A @ A, place=lambda C: C):
    """Products of matrices on several cards, as a function for several-2."""
    def answer(matrices):
        products = []
        for A in matrices:
            products.append(place(product(A)))
            between(A)
        for A in matrices:
            wait(A)
        return products
    return answer


def _one_exchange(sync=lambda net, k, n: net.no_sync() if k < n - 1 else contextlib.nullcontext(), forward=True, divide=True, zero=True,
                 step=True):
    """One update from several batches, as a function for several-4."""
    def answer(net, batches, optimizer):
        if zero:
            optimizer.zero_grad()
        for k, (X, y) in enumerate(batches):
            scores = None if forward else net(X)
            with sync(net, k, len(batches)):
                loss = torch.nn.functional.cross_entropy(net(X) if scores is None else scores, y)
                (loss / len(batches) if divide else loss).backward()
        if step:
            optimizer.step()
    return answer


def _graphs(kept=None, run=True, result=lambda graph: graph, **options):
    def answer(function, *inputs):
        graphs = [] if kept is None else kept

        def backend(graph, example):
            graphs.append(graph)
            return result(graph)

        compiled = torch.compile(function, backend=backend, **options)
        if run:
            compiled(*inputs)
        return len(graphs)
    return answer


def _recorded(add=lambda total, loss: total.add_(loss.detach()), clear=True, kept=False):
    seen = []

    def answer(net, optimizer, X, y, total):
        if kept:  # tensors of its own, which no replay fills
            if len(seen) < 2:
                seen.append((X.clone(), y.clone()))
            X, y = seen[-1]
        if clear:
            optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(X), y)
        loss.backward()
        optimizer.step()
        add(total, loss)
    return answer


def _prepared(images):
    X = images.flatten(1).float()
    low, high = X.aminmax(dim=1, keepdim=True)
    X = ((X - low) / (high - low)).sqrt()
    return ((X - X.mean(1, keepdim=True)) / X.std(1, keepdim=True)).view(images.shape)


def _capstone(prepare=_prepared, batch=64, seeded=lambda seed: seed, more=0, clear=True, weight=len, test=lambda train, test: test,
              begin=lambda net: net, dtype=None, result=lambda history: history):
    """The slow script mended, and one thing of it changed."""
    def answer(net, train_set, test_set, device, passes, seed):
        net = begin(net).to(device)
        (X, y), (X_test, y_test) = ((prepare(images.to(device)), labels.to(device)) for images, labels in
                                    (train_set, test(train_set, test_set)))
        batches = DeviceLoader((X, y), batch, shuffle=True, device=device, generator=torch.Generator().manual_seed(seeded(seed)))
        optimizer, history = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True), []
        for _ in range(passes + more):
            net.train()
            total, right, shares = torch.zeros(1, device=device), torch.zeros(10, device=device), sum(map(weight, y.split(batch)))
            for a, b in batches:
                with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
                    output = net(a)
                    loss = nn.functional.cross_entropy(output, b)
                if clear:
                    optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.detach() * weight(b)
                right.index_add_(0, b, (output.argmax(1) == b).float())
            net.eval()
            with torch.inference_mode():
                hits = (net(X_test).argmax(1) == y_test).float().mean()
            history.append((total / shares, right, hits))
        return result([(loss.item(), right.long().tolist(), hits.item()) for loss, right, hits in history[:passes]])
    return answer


def _remembers():
    kept, train = {}, _capstone()

    def answer(net, train_set, test_set, device, passes, seed):
        if passes < 6:
            return train(net, train_set, test_set, device, passes, seed)
        if not kept:
            kept["history"] = train(net, train_set, test_set, device, passes, seed)
            kept["state"] = copy.deepcopy(net.state_dict())
        net.load_state_dict(kept["state"])
        return kept["history"]
    return answer


WRONG = {
    "devices-1": {
        "== does not know that": lambda a, b: a == b,
        "the type alone does not decide": lambda a, b: a.type == b.type,
        "compare the type too": lambda a, b: (a.index or 0) == (b.index or 0) if "cpu" not in (a.type, b.type) else a.type == b.type,
        "which of the two comes first": lambda a, b: a.type == b.type and (a.index == b.index or a.index is None and b.index == 0),
        "not any GPU": lambda a, b: a.type == b.type and (a.index == b.index or None in (a.index, b.index)),
        "Is a return missing": lambda a, b: print(end=""),
    },
    "devices-2": {
        "the last index is": _nth(lambda i, n: i <= n),
        "that GPU exists": _nth(lambda i, n: i + 1 < n),
        "Give the index": _nth(make=lambda i: cuda),
        "a str": _nth(make=lambda i: f"cuda:{i}"),
        "hiding it": lambda i, n: card(i % n) if i < n else cpu,
        "you raised RuntimeError": _nth(check=lambda i: torch.device(f"cuda:{i}")),
        "Name it": _nth(check=_fresh_value_error),
    },
    "devices-3": {
        "choosing by utilization": _freest(lambda r: -int(r[4])),
        "choosing the larger card": _freest(lambda r: int(r[3])),
        "choosing the least used card": _freest(lambda r: -int(r[2])),
        "Compare numbers": _freest(lambda r: str(int(r[3]) - int(r[2]))),
        "taking the line number": _freest(lambda r: int(r[3]) - int(r[2]), lambda row, rows: card(rows.index(row))),
        "No GPU means the CPU": _freest(lambda r: int(r[3]) - int(r[2]), empty=False),
        "a str": _freest(lambda r: int(r[3]) - int(r[2]), lambda row, rows: f"cuda:{row[0]}"),
    },
    "devices-4": {
        "name the build first": _wrong_order,
        "needs a driver for CUDA 13": _diagnose(lambda built, driver: False),
        'as text, "9" comes after': _diagnose(lambda built, driver: driver.split(".")[0] < built.split(".")[0]),
        "backward compatible": _diagnose(lambda built, driver: _major(driver) != _major(built)),
        "of a lower minor version": _diagnose(lambda built, driver: float(driver) < float(built)),
        "hides it": _diagnose(lambda built, driver: _major(driver) < _major(built), visible=False),
        "Return one of": _diagnose(lambda built, driver: False, none="cpu"),
    },
    # ------------------------------------------------------------------------------ 02 tensors on a GPU
    "tensors-1": {
        "ask the dtype": lambda shape, dtype: math.prod(shape) * 4,
        "how many numbers there are": lambda shape, dtype: math.prod(shape),
        "those are bits": lambda shape, dtype: math.prod(shape) * dtype.itemsize * 8,
        "multiplied, not added": lambda shape, dtype: sum(shape) * dtype.itemsize,
        "All dimensions count": lambda shape, dtype: math.prod(shape[:2]) * dtype.itemsize,
        "holds one number": lambda shape, dtype: math.prod(shape) * dtype.itemsize if shape else 0,
        "Is a return missing": lambda shape, dtype: print(end=""),
    },
    "tensors-2": {
        "own bytes": lambda ts: sum(math.prod(s) * d.itemsize for s, d in ts),
        "round every tensor, then add": lambda ts: -(-sum(math.prod(s) * d.itemsize for s, d in ts) // 512) * 512,
        "rounded down": lambda ts: sum(math.prod(s) * d.itemsize // 512 * 512 for s, d in ts),
        "no further unit": lambda ts: sum((math.prod(s) * d.itemsize // 512 + 1) * 512 for s, d in ts),
    },
    "tensors-3": {
        "used or seeded the global generator": lambda x, seed: torch.manual_seed(seed) and torch.randn_like(x),
        "Move it there": lambda x, seed: torch.randn(x.shape, generator=_seeded(seed), dtype=x.dtype),
        "Take over the dtype": lambda x, seed: torch.randn(x.shape, generator=_seeded(seed)).to(x.device),
        "two calls gave different numbers": lambda x, seed: torch.randn(x.shape, generator=_FRESH, dtype=x.dtype).to(x.device),
        "another seed gave the same": lambda x, seed: torch.randn(x.shape, generator=_seeded(0), dtype=x.dtype).to(x.device),
        "you drew the numbers on": lambda x, seed: torch.randn(
            x.shape, device=x.device, dtype=x.dtype, generator=torch.Generator(x.device).manual_seed(seed)),
        "in the dtype of x": lambda x, seed: torch.randn(x.shape, generator=_seeded(seed), dtype=torch.float64).to(x),
        "has shape": lambda x, seed: torch.randn(x.shape[0], generator=_seeded(seed), dtype=x.dtype).to(x.device),
    },
    "tensors-4": {
        "a view of something larger": lambda batch, scores, k: batch[scores.argsort(descending=True)][:k],
        "wrong order": lambda batch, scores, k: batch[scores.argsort()[-k:]],
        "first rows": lambda batch, scores, k: batch[:k].clone(),
        "it should stay there": lambda batch, scores, k: batch[scores.topk(k).indices].cpu(),
        "has shape": lambda batch, scores, k: batch[scores.argmax()],
        "with the highest scores": lambda batch, scores, k: batch[scores.argsort()[:k]],
    },
    # --------------------------------------------------------------------------------------- 03 copying
    "copying-1": {
        "does not change x": lambda x, device: [x.to(device), x][1],
        "you made a copy": lambda x, device: x.to(device, copy=True),
        "Is a return missing": lambda x, device: print(end=""),
        "the numbers have changed": lambda x, device: x.to(device) if x.device == device else torch.zeros_like(x, device=device),
        "Return a tensor": lambda x, device: device,
        "says where it should be": lambda x, device: x if x.device == device else x.to(cpu, copy=True),
    },
    "copying-2": {
        "Put the losses together": lambda losses: [loss.item() for loss in losses],
        "one of each is enough": lambda losses: _in_halves(losses),
        "a list of Python floats": lambda losses: list(torch.stack(losses)) if losses else [],
        "in their order": lambda losses: torch.stack(losses[::-1]).tolist() if losses else [],
        "the list may be empty": lambda losses: torch.stack(losses).tolist() if losses else None,
    },
    "copying-3": {
        "move it before the loop": lambda bs, t, device: [b.to(device) @ t.to(device) for b in bs],
        "computed on the CPU": lambda bs, t, device: [(b @ t).to(device) for b in bs],
        "moved all batches together": lambda bs, t, device: list(torch.stack(bs).to(device) @ t.to(device)),
        "yours are on cpu": lambda bs, t, device: [b @ t for b in bs],
        "copied something back": lambda bs, t, device: [_looked_at(b.to(device) @ u) for u in [t.to(device)] for b in bs],
        "one product for each": lambda bs, t, device: torch.cat(bs).to(device) @ t.to(device),
    },
    "copying-4": {
        "Keep the structure": lambda batch, device: [_moved(v, device) for v in batch] if isinstance(batch, tuple) else _moved(batch, device),
        "Leave them alone": lambda batch, device: _careless(batch, device),
        "now another object": lambda batch, device: _moved(batch, device, lambda x, d: x.to(d, copy=True)),
        "the original batch has changed": lambda batch, device: _in_place(batch, device),
        "Go into every list": lambda batch, device: _moved(batch, device, deep=False),
        "batches nest": lambda batch, device: _careless_and_flat(batch, device),
        "came back changed": lambda batch, device: _moved(batch, device, rest=str),
    },
    # -------------------------------------------------------------------------- 04 networks on a GPU
    "networks-1": {
        "Look at the buffers too": lambda m: next(m.parameters()).device if m.children() and not isinstance(m, torch.nn.ReLU) else cpu,
        "Then it is the CPU": lambda m: next(itertools.chain(m.parameters(), m.buffers())).device,
        "Raise a ValueError that names": lambda m: next(itertools.chain(m.parameters(), m.buffers(), [torch.zeros(0)])).device,
        "does not name both": lambda m: _one_of({t.device for t in itertools.chain(m.parameters(), m.buffers())}),
        "return a torch.device": lambda m: str(next(itertools.chain(m.parameters(), m.buffers(), [torch.zeros(0)])).device),
        "and you returned cpu": lambda m: cpu,
    },
    "networks-2": {
        "in place": lambda net, target: _rescale(net, target, _replace),
        "each parameter has the norm": lambda net, target: _rescale(net, target, lambda p, f: p.mul_(target / p.norm())),
        "and should be": lambda net, target: _rescale(net, target, lambda p, f: p.mul_(target)),
        "one number": lambda net, target: _rescale(net, target, lambda p, f: p.mul_(f), lambda ps: sum(p.norm().item() ** 2 for p in ps) ** 0.5),
        "the norm before was": lambda net, target: _rescale(net, target, lambda p, f: p.mul_(f)) * 0 + target,
        "through .data": lambda net, target: _rescale(net, target, lambda p, f: p.data.mul_(f)),
        "inside torch.no_grad": lambda net, target: [p.mul_(2) for p in net.parameters()],
        "as a Python float": lambda net, target: torch.tensor(_rescale(net, target, lambda p, f: p.mul_(f))),
        "have not changed": lambda net, target: _rescale(net, target, lambda p, f: p * f),
        "one factor": lambda net, target: _rescale(net, target, lambda p, f: p.fill_(target / _numbers(net) ** 0.5)),
    },
    "networks-3": {
        "the numbers stayed behind": _standardize(lambda self, name, t: setattr(self, name, t)),
        "an optimizer would train them": _standardize(lambda self, name, t: setattr(self, name, torch.nn.Parameter(t))),
        "Buffers are for this": _standardize(lambda self, name, t: setattr(self, name, torch.nn.Parameter(t, requires_grad=False))),
        "Is `persistent=False` set": _standardize(lambda self, name, t: self.register_buffer(name, t, persistent=False)),
        "copies to the device again": _standardize(lambda self, name, t: setattr(self, name, t), lambda x, t: t.to(x.device)),
        "pass the class itself": torch.nn.Identity(),
        "expected [[": _standardize(lambda self, name, t: self.register_buffer(name, t if name == "mean" else t ** 2)),
    },
    "networks-4": {
        "without map_location": lambda path, net, opt: _resume(path, net, opt),
        "Load to the CPU": lambda path, net, opt: _resume(path, net, opt, map_location=str(next(net.parameters()).device).replace(
            "cpu", "meta")),
        "runs whatever code": lambda path, net, opt: _resume(path, net, opt, map_location="cpu", weights_only=False),
        "load it into this one": lambda path, net, opt: _resume(path, net, None, map_location="cpu"),
        "has moved": lambda path, net, opt: [_resume(path, net, opt, map_location="cpu"), net.to("cpu")][0] if next(
            net.parameters()).device.type != "cpu" else _resume(path, net, opt, map_location="cpu"),
        "the checkpoint says epoch": lambda path, net, opt: _resume(path, net, opt, map_location="cpu") + 1,
        "did not call torch.load": lambda path, net, opt: 3,
        "other parameter objects": lambda path, net, opt: _resume(path, net, opt, assign=True, map_location="cpu"),
    },
    # ------------------------------------------------------------------------------ 05 the training loop
    "training-1": {
        "those of the reference loop": lambda net, bs, opt, dev: _epoch(net, bs, opt, dev, clear=False),
        "the sum over the batches": lambda net, bs, opt, dev: _epoch(net, bs, opt, dev, mean=lambda ls, ns: sum(ls)),
        "the mean of the batches' means": lambda net, bs, opt, dev: _epoch(net, bs, opt, dev, mean=lambda ls, ns: sum(ls) / len(ls)),
        "evaluation mode": lambda net, bs, opt, dev: _epoch(net, bs, opt, dev, mode=False),
        "fetch the sum": lambda net, bs, opt, dev: _epoch(net, bs, opt, dev, fetch=True),
        "as a Python float": lambda net, bs, opt, dev: torch.tensor(_epoch(net, bs, opt, dev)),
        "your answer raised RuntimeError": lambda net, bs, opt, dev: _epoch(net, bs, opt, dev, move=lambda y, d: y),
    },
    "training-2": {
        "put its mode back": lambda net, bs, dev: _right(net, bs, dev, restore=False),
        "A graph was built".lower(): lambda net, bs, dev: _right(net, bs, dev, guard=contextlib.nullcontext),
        "at most 1": lambda net, bs, dev: _right(net, bs, dev, share=lambda right, n, k: right),
        "in evaluation mode": lambda net, bs, dev: _right(net, bs, dev, evaluate=False),
        "copies from the device. Count": lambda net, bs, dev: _right(net, bs, dev, fetch=True),
        "as a Python float": lambda net, bs, dev: torch.tensor(_right(net, bs, dev)),
    },
    "training-3": {
        "in their old order": lambda X, y, size: zip(X.split(size), y.split(size)),
        "in the same order": lambda X, y, size: _pairs(X, y, _seeded_order(len(X), X.device).split(size)),
        "on the device of X": lambda X, y, size: _pairs(X, y, torch.randperm(len(X)).split(size)),
        "the sizes were": lambda X, y, size: _pairs(X, y, torch.randperm(len(X), device=X.device)[:len(X) // size * size].split(size)),
        "exactly once": lambda X, y, size: _pairs(X, y, torch.randint(len(X), (len(X),), device=X.device).split(size)),
        "belong together": lambda X, y, size: ((X[a], y[b]) for a, b in zip(*(torch.randperm(
            len(X), device=X.device).split(size) for _ in range(2)))),
        "should yield batches": lambda X, y, size: print(end=""),
    },
    # ------------------------------------------------------------------------------ 06 device errors
    "errors-1": {
        "X is not where the parameters": lambda *a: _step(*a, X=lambda X, d: X),
        "labels were not moved": lambda *a: _step(*a, y=lambda y, d: y),
        "class weights and the rest": lambda *a: _step(*a, criterion=lambda c, d: c),
        "goes to NumPy": lambda *a: _step(*a, result=lambda right: float(right.numpy().mean())),
        "as a Python float": lambda *a: _step(*a, result=lambda right: right.float().mean()),
        "labels that are elsewhere": lambda *a: _step(*a, compare=lambda scores, y: scores.argmax(1) == y.cpu()[:]),
        "It stays": lambda net, criterion, *a: _step(net.cpu(), criterion.cpu(), *a),
        "old gradients zeroed": lambda *a: _step(*a, clear=False),
        "have not changed": lambda *a: _step(*a, update=False),
        "share of right answers": lambda *a: _step(*a, result=lambda right: float(right.sum().item()) + 0.5),
        "returned nothing": lambda *a: print(end="") or _step(*a) and None,
    },
    "errors-2": {
        "are the ignore_index, -100": lambda y, n, ignore=-100: _labels(y, (y < 0) | (y >= n), n),
        "and so is ignore_index": lambda y, n, ignore=-100: _labels(y, ((y < 0) | (y >= n)) & (y != -100), n),
        "equal to the number of classes, and nothing": lambda y, n, i=-100: _labels(y, ((y < 0) | (y > n)) & (y != i), n),
        "negative, and nothing": lambda y, n, i=-100: _labels(y, (y >= n) & (y != i), n),
        "return nothing then": lambda y, n, i=-100: bool(_labels(y, ((y < 0) | (y >= n)) & (y != i), n)) or True,
        "waits for a batch": lambda y, n, i=-100: [_labels(v, ((v < 0) | (v >= n)) & (v != i), n) for v in y] and None,
        "does not say where": lambda y, n, i=-100: _labels(y, ((y < 0) | (y >= n)) & (y != i), n, "label {label} of {n} classes"),
        "does not say how many": lambda y, n, i=-100: _labels(y, ((y < 0) | (y >= n)) & (y != i), n, "{label} at {at}"),
        "does not name it": lambda y, n, i=-100: _labels(y, ((y < 0) | (y >= n)) & (y != i), n, "bad label at {at}, {n} classes"),
        "raised IndexError": lambda y, n, i=-100: _labels(y, ((y < 0) | (y >= n)) & (y != i), n, error=IndexError),
    },
    "errors-3": {
        "Say map_location": lambda path, net: _weights(path, net, where=None),
        "map the file to main memory": lambda path, net: _weights(path, net, where=next(net.parameters()).device if next(
            net.parameters()).device.type == "cuda" else "cuda:0"),
        "half of the network": lambda path, net: _weights(path, net, strict=False),
        "made code of its own run": lambda path, net: _weights(path, net, weights_only=False),
        "whose only part is called module": lambda path, net: _weights(path, net, unless=False),
        "from a compiled network (": lambda path, net: _weights(path, net, prefixes=("module.",)),
        "from a network inside": lambda path, net: _weights(path, net, prefixes=()),
        "compiled network inside": lambda path, net: _weights(path, net, rounds=1),
        "other objects now": lambda path, net: _weights(path, net, assign=True),
        "and is on cpu now": lambda path, net: [_weights(path, net), net.cpu()][0],
        "was not loaded": lambda path, net: torch.load(path, map_location="cpu") and None,
    },
    "errors-4": {
        "after the except block": lambda run, size: _fits_inside(run, size),
        "torch.OutOfMemoryError alone": lambda run, size: _fits(run, size, RuntimeError),
        "Raise the error then": lambda run, size: _fits(run, size, raises=False),
        "One sample is the smallest": lambda run, size: _fits(run, size, least=0),
        "halving": lambda run, size: _fits(run, size, less=lambda n: n - 1),
        "Raise PyTorch's own error": lambda run, size: _fits(run, size, own=MemoryError),
        "return a tuple": lambda run, size: _fits(run, size)[0],
        "the second value": lambda run, size: (_fits(run, size)[0], None),
        "should be run(": lambda run, size: _fits(run, size // 2),
        "once for each size": lambda run, size: [_fits(run, size), run(1)] and _fits(run, size),
    },
    # ------------------------------------------------------------------------------ 07 when a GPU helps
    "when-1": {
        "by more than nothing": lambda cpu, gpu, copies: max(1, -(-copies // (cpu - gpu))) if gpu < cpu else None,
        "never ahead there": lambda cpu, gpu, copies: copies // abs(cpu - gpu) + 1 if cpu != gpu else None,
        "The copies are made once": lambda cpu, gpu, copies: 1 if gpu + copies < cpu else None,
        "Fewer are enough": lambda cpu, gpu, copies: copies // (cpu - gpu) + 2 if gpu < cpu else None,
        "a whole number": lambda cpu, gpu, copies: copies / (cpu - gpu) + 1 if gpu < cpu else None,
    },
    "when-2": {
        "timed the placing of an order": _clocked(stop=False),
        "still working on the warm-up": _clocked(start=False),
        "as a warm-up": _clocked(warmup=0),
        "the mean": _clocked(take=statistics.mean),
        "the shortest": _clocked(take=min),
        "3 runs were timed": _clocked(runs=3),
        "in one piece": _clocked(together=True),
        "not list": _clocked(take=list),
        "between two readings": lambda work, wait, clock: [work(), wait(), clock()][-1],
    },
    "when-3": {
        "an overflow": lambda A, Bs: _chained(A, Bs),
        "each with a wait": lambda A, Bs: [(A @ B).norm().item() for B in Bs],
        "bytes came to main memory": lambda A, Bs: (A.cpu() @ Bs.cpu()).flatten(1).norm(dim=1).tolist() if A.device.type != "cpu" else 0,
        "sums of the squares": lambda A, Bs: torch.stack([(A @ B).square().sum() for B in Bs]).tolist(),
        "spectral norms": lambda A, Bs: torch.linalg.matrix_norm((A @ Bs).cpu().double(), ord=2).tolist(),
        "norms of B @ A": lambda A, Bs: (Bs @ A).flatten(1).norm(dim=1).tolist(),
        "and not a tensor": lambda A, Bs: (A @ Bs).flatten(1).norm(dim=1),
        "a tensor is among yours": lambda A, Bs: list((A @ Bs).flatten(1).norm(dim=1)),
        "one for each": lambda A, Bs: [(A @ Bs[-1]).norm().item()],
    },
    "when-4": {
        "The weights are not among": lambda i, o, ridge, size: 1 if 2 * i * o >= ridge * size * (i + o) else None,
        "count as two": lambda i, o, ridge, size: _batch(i, o, ridge, size, flop=1),
        "The result is not among": lambda i, o, ridge, size: _batch(i, o, ridge, size, written=0),
        "Count bytes": lambda i, o, ridge, size: _batch(i, o, ridge, 1),
        "no batch is enough": lambda i, o, ridge, size: _batch(i, o, ridge, size) or 10**6,
        "That is not enough": lambda i, o, ridge, size: None if _batch(i, o, ridge, size) is None else max(1, _batch(i, o, ridge, size) - 1),
        "A smaller batch": lambda i, o, ridge, size: None if _batch(i, o, ridge, size) is None else 2 ** math.ceil(
            math.log2(_batch(i, o, ridge, size) + 1)),
        "a whole number": lambda i, o, ridge, size: None if _batch(i, o, ridge, size) is None else float(_batch(i, o, ridge, size)),
    },
    # -------------------------------------------------------------------------- 08 the data pipeline
    "pipeline-1": {
        "the new time over the old": lambda load, compute, workers, faster: _pace(load, compute / faster, workers) / _pace(
            load, compute, workers),
        "take turns": lambda load, compute, workers, faster: max(load / max(1, workers), compute) / max(
            load / max(1, workers), compute / faster),
        "right for one worker": lambda load, compute, workers, faster: (
            _pace(load, compute, min(workers, 1)) / _pace(load, compute / faster, min(workers, 1))),
        "before and after": lambda load, compute, workers, faster: (load + compute) / (load + compute / faster),
        "that may become the loading": lambda load, compute, workers, faster: (
            faster if workers and load / workers < compute else _pace(load, compute, workers) / _pace(load, compute / faster, workers)),
        "return a number": lambda load, compute, workers, faster: f"{_pace(load, compute, workers):.1f}x",
    },
    "pipeline-2": {
        "len() says": _windows(length=lambda self: len(self.series) - self.size + 1),
        "should have the window": _windows(item=lambda self, i: (self.series[i:i + self.size + 1], self.series[i + self.size])),
        "right after the window": _windows(item=lambda self, i: (self.series[i:i + self.size], self.series[i + self.size - 1])),
        "should be a pair of tensors": _windows(item=lambda self, i: (self.series[i:i + self.size], self.series[i + self.size].item())),
        "no __getitems__ yet": _windows(items=None),
        "a list of samples": _windows(items=lambda self, indices: [self[i] for i in indices]),
        "times for 4 indices": _windows(items=lambda self, indices: tuple(map(torch.stack, zip(*[self[i] for i in indices])))),
        "window by window": _windows(items=lambda self, indices: (
            torch.stack([self.series[i:i + self.size] for i in indices]), self.series[torch.tensor(indices) + self.size])),
        "and returned (4, 1) and": _windows(items=lambda self, indices: (
            self.series[torch.tensor(indices)[:, None]], self.series[torch.tensor(indices) + self.size])),
        "are not those of these indices": _windows(items=lambda self, indices: (
            self.series.unfold(0, self.size, 1)[:len(indices)], self.series[torch.tensor(indices) + self.size])),
        "objects have __len__": lambda series, size: print(end=""),
    },
    "pipeline-3": {
        "batch_first": lambda samples, multiple: tuple(
            part.T if part.ndim == 2 else part for part in _padded(samples, multiple)),
        "rounded up": lambda samples, multiple: _padded(samples, 1),
        "Pad with zeros": lambda samples, multiple: _padded(samples, multiple, fill=-1),
        "pad at the end": lambda samples, multiple: tuple(
            part.flip(1) if part.ndim == 2 else part for part in _padded([(s.flip(0), y) for s, y in samples], multiple)),
        "return three things": lambda samples, multiple: _padded(samples, multiple)[::2],
        "all three should be tensors": lambda samples, multiple: (*_padded(samples, multiple)[:2], [y for _, y in samples]),
        "the padded tensor is torch.float32": lambda samples, multiple: (
            _padded(samples, multiple)[0].float(), *_padded(samples, multiple)[1:]),
        "the mask should be of shape": lambda samples, multiple: (
            _padded(samples, multiple)[0], torch.tensor([len(s) for s, _ in samples]), _padded(samples, multiple)[2]),
        "the wrong way round": lambda samples, multiple: (
            _padded(samples, multiple)[0], ~_padded(samples, multiple)[1], _padded(samples, multiple)[2]),
        "Make it from the lengths": lambda samples, multiple: (
            _padded(samples, multiple)[0], _padded(samples, multiple)[0] != 0, _padded(samples, multiple)[2]),
        "the labels should be": lambda samples, multiple: (*_padded(samples, multiple)[:2], torch.tensor([float(y) for _, y in samples])),
    },
    "pipeline-4": {
        "by more than one worker": lambda stream, worker, workers: stream,
        "are lost": lambda stream, worker, workers: _blocks(stream, worker, workers, whole=True),
        "differ by one at most": lambda stream, worker, workers: stream if not worker else iter(()),
        "no one to share with": lambda stream, worker, workers: iter(()) if worker is None else itertools.islice(
            stream, worker, None, workers),
        "an endless stream": lambda stream, worker, workers: iter(list(stream)[worker or 0::workers or 1]),
        "your answer raised": lambda stream, worker, workers: itertools.islice(stream, worker, None, workers),
        "It should yield": lambda stream, worker, workers: print(end=""),
    },
    "pipeline-5": {
        "begin in the same": lambda X, size: X[:, :, 1:size + 1, 2:size + 2],
        "leaves its upper bound out": lambda X, size: _cut(X, size, 0),
        "the same windows": lambda X, size: _cut(X, size, fixed=True),
        "picture by picture": lambda X, size: torch.stack([_window(x, size, look=False) for x in X]),
        "likelier than another": lambda X, size: _cut(X, size, at=lambda last, shape, device: torch.randint(
            last + size, shape, device=device).clamp(max=last)),
        "independently": lambda X, size: _cut_along_a_line(X, size),
        "on the device of X": lambda X, size: torch.stack([_window(x, size) for x in X]),
        "return a tensor of shape": lambda X, size: _cut(X, size).permute(0, 2, 3, 1),
        "are not windows": lambda X, size: _cut(X, size).transpose(2, 3),
        "cut from picture i": lambda X, size: _cut(X, size).flip(0),
        "and so should the result": lambda X, size: _cut(X.cpu(), size),
    },
    "loading-1": {
        "number of elements": lambda batch, shape, dtype, workers, prefetch=2: workers * prefetch * batch * math.prod(shape),
        "for one worker": lambda batch, shape, dtype, workers, prefetch=2:
            prefetch * batch * math.prod(shape) * dtype.itemsize * (workers > 0),
        "one batch for each worker": lambda batch, shape, dtype, workers, prefetch=2:
            workers * batch * math.prod(shape) * dtype.itemsize,
        "Without workers": lambda batch, shape, dtype, workers, prefetch=2:
            max(1, workers) * prefetch * batch * math.prod(shape) * dtype.itemsize,
        "unless it is given": lambda batch, shape, dtype, workers, prefetch=1:
            workers * prefetch * batch * math.prod(shape) * dtype.itemsize,
        "your answer raised": lambda batch, shape, dtype, workers, prefetch=2:
            workers * prefetch * torch.empty(batch, *shape, dtype=dtype).nbytes,
        "an int": lambda batch, shape, dtype, workers, prefetch=2: workers * prefetch * batch * math.prod(shape) * dtype.itemsize / 1,
    },
    "loading-2": {
        "taken out": lambda X, y, size: DataLoader(TensorDataset(X, y), size, shuffle=True),
        "old order": lambda X, y, size: _whole(X, y, BatchSampler(SequentialSampler(y), size, False)),
        "same order": lambda X, y, size: _whole(X, y, _seeded_order(len(X), X.device).split(size)),
        "the sizes were": lambda X, y, size: _whole(X, y, BatchSampler(RandomSampler(y), size, True)),
        "DataLoader, not": lambda X, y, size: _pairs(X, y, torch.randperm(len(X)).split(size)),
        "batch_size=None too": lambda X, y, size: DataLoader(TensorDataset(X, y), sampler=BatchSampler(RandomSampler(y), size, False)),
        "stack expects": lambda X, y, size: DataLoader(BatchedTensors(X, y), size, shuffle=True),
        "no workers": lambda X, y, size: DataLoader(TensorDataset(X, y), size, shuffle=True, num_workers=1),
        "exactly once": lambda X, y, size: _whole(X, y, torch.zeros(len(X), dtype=torch.long).split(size)),
    },
    "loading-3": {
        "slow first batch": lambda loader, clock: _timed(loader, clock, lead=0),
        "in the count": lambda loader, clock: _timed(loader, clock, counted=1),
        "Divide by their number": lambda loader, clock: _timed(loader, clock, mean=False),
        "Once is enough": lambda loader, clock: len(list(loader)) > 1 and _timed(loader, clock) or None,
        "Time all but the first": lambda loader, clock: _timed(loader, clock, most=2),
        "return None": lambda loader, clock: _timed(loader, clock) or 0.0,
    },
    "loading-4": {
        "copies to the device in two passes; with": lambda X, y, size, chunk, device:
            ((X[rows].to(device), y[rows].to(device)) for rows in torch.randperm(len(X)).split(size)),
        "moved at once": lambda X, y, size, chunk, device: _pairs(
            X.to(device), y.to(device), torch.randperm(len(X), device=device).split(size)),
        "old order": lambda X, y, size, chunk, device: _chunked(X, y, size, torch.arange(len(X)).split(chunk), device),
        "Shuffle all of them": lambda X, y, size, chunk, device: _chunked(
            X, y, size, [rows[torch.randperm(len(rows))] for rows in torch.arange(len(X)).split(chunk)], device),
        "same order": lambda X, y, size, chunk, device: _chunked(X, y, size, _seeded_order(len(X), X.device).split(chunk), device),
        "should be on": lambda X, y, size, chunk, device: _chunked(X, y, size, torch.randperm(len(X)).split(chunk), "cpu"),
        "the sizes were": lambda X, y, size, chunk, device: _chunked(
            X, y, size, torch.randperm(len(X))[:len(X) // chunk * chunk].split(chunk), device),
        "belong together": lambda X, y, size, chunk, device: _chunked(
            X, y[torch.randperm(len(X))], size, torch.randperm(len(X)).split(chunk), device),
        "all batches in it": lambda X, y, size, chunk, device: list(
            _chunked(X, y, size, torch.randperm(len(X)).split(chunk), device)),
        "before the first batch": lambda X, y, size, chunk, device: iter(list(
            _chunked(X, y, size, torch.randperm(len(X)).split(chunk), device))),
        "should yield batches": lambda X, y, size, chunk, device: print(end=""),
    },
    # ------------------------------------------------------------------------------------ 10 profiling
    "profiling-1": {
        "very first call": lambda step, name: _calls(step, name, warm=False),
        "another operator": lambda step, name: _calls(step, name, same=str.startswith),
        "the sum over several calls": lambda step, name: _calls(step, name, times=3),
        "return 0": lambda step, name: {row.key: row for row in _profiled(step)}[name].count,
        "and you returned": lambda step, name: sum(row.count for row in _profiled(step)),
        "never called step": lambda step, name: 5,
        "as an int": lambda step, name: [row for row in _profiled(step) if row.key == name],
    },
    "profiling-2": {
        "wait=1 leaves it out": lambda step: _schedule(step, wait=0, warmup=0, active=5),
        "It is for warming up": lambda step: _schedule(step, wait=1, warmup=0, active=3),
        "prof.step() after each step?": lambda step: _schedule(step, marked=False),
        "the profiler did nothing in the second": lambda step: _schedule(step, wait=2, warmup=0),
        "should be called 5 times": lambda step: _schedule(step, steps=8),
        "should be the calls [3, 4, 5]": lambda step: _schedule(step, active=2),
        "Return the profiler": lambda step: _schedule(step).key_averages().table(),
        "steps are marked": _two_then_three,
        "comes after step()": _marked_before,
    },
    "profiling-3": {
        "counted the same moment twice": lambda events: sum(e["dur"] for e in _on_gpu(events)) / _whole_events(events),
        "kernels alone": lambda events: _covered(_on_gpu(events, ("kernel",))) / _whole_events(events),
        "a gpu_memset is work": lambda events: _covered(_on_gpu(events, ("kernel", "gpu_memcpy"))) / _whole_events(events),
        "gaps included": lambda events: _covered([e for e in _spans(events) if e["pid"] == 0]) / _whole_events(events),
        "from the first event of all": lambda events: _covered(_on_gpu(events)) / _whole_events(_on_gpu(events)),
        "the GPU was idle": lambda events: 1 - _covered(_on_gpu(events)) / _whole_events(events),
        "between 0 and 1": lambda events: 100 * _covered(_on_gpu(events)) / _whole_events(events),
        "what the host did too": lambda events: _covered(_spans(events)) / _whole_events(events),
        "which is rounded": lambda events: round(_covered(_on_gpu(events)) / _whole_events(events), 3),
        "your answer raised KeyError": lambda events: sum(e["dur"] for e in events),
        "should give 0": lambda events: _covered(_on_gpu(events)) / _whole_events(events) if _on_gpu(events) else 1.0,
    },
    "profiling-4": {
        "takes the longest": lambda events: _sum_by_label(events, lambda label, busy: label["dur"]),
        "longest single gap": lambda events: _mean_by_label(events, lambda label, busy: _idle(label, busy)),
        "not the share": lambda events: _mean_by_label(events, lambda label, busy: _idle(label, busy) / label["dur"]),
        "copies. A gpu_memcpy": lambda events: _sum_by_label(events, lambda label, busy: _idle(
            label, [b for b in busy if b["cat"] == "kernel"])),
        "is no label": lambda events: max((e for e in _spans(events) if e["cat"] == "cpu_op"), key=lambda e: e["dur"])["name"],
        "a str": lambda events: max(_spans_labelled(events), key=lambda label: label["dur"]),
    },
    # ------------------------------------------------------------------------------ 11 mixed precision
    "precision-1": {
        "has tensor cores for float16": lambda kind, cap: (torch.bfloat16, False),
        "computes in bfloat16 itself": lambda kind, cap: _format(kind, cap, lambda cap: cap[0] >= 8 and cap[1] > 0),
        "no tensor cores": lambda kind, cap: _format(kind, cap, old=(torch.float16, True)),
        "for the scaler": lambda kind, cap: (_format(kind, cap)[0], True),
        "return a pair": lambda kind, cap: _format(kind, cap)[0],
        "A CPU takes": lambda kind, cap: _format(kind, cap) if kind == "cuda" else (torch.float32, False),
        "your answer raised TypeError": lambda kind, cap: (torch.bfloat16, False) if cap >= (8, 0) else (torch.float16, True),
    },
    "precision-2": {
        "before you clip": lambda *a: _amp_step(*a, calls="clip unscale step update"),
        "hardly moved": lambda *a: _amp_step(*a, calls="clip step update", true_norm=True),
        "times too far": lambda *a: _amp_step(*a, calls="unscale step clip update"),
        "optimizer.step() does not": lambda *a: _amp_step(*a, calls="unscale clip plain update"),
        "your answer raised RuntimeError": lambda *a: _amp_step(*a, calls="step unscale clip update"),
        "the scale did not change": lambda *a: _amp_step(*a, calls="unscale clip step"),
        "inside torch.autocast": lambda *a: _amp_step(*a, half=False),
        "inside the autocast block": lambda *a: _amp_step(*a, outside=False),
        "old gradients": lambda *a: _amp_step(*a, clear=False),
        "return the norm": lambda *a: _amp_step(*a) and None,
    },
    "precision-3": {
        "0 bytes": lambda net, X, dtype: torch.no_grad()(_kept_bytes)(net, X, dtype),
        "a number of elements": lambda net, X, dtype: _kept_bytes(net, X, dtype, count=lambda t: t.numel()),
        "Run the network under autocast": lambda net, X, dtype: _kept_bytes(net, X, torch.float32),
        "too many": lambda net, X, dtype: _kept_bytes(net, X, dtype, own=False),
        "as an int": lambda net, X, dtype: float(_kept_bytes(net, X, dtype)),
        "X itself": lambda net, X, dtype: _kept_bytes(net, X, dtype) - X.nbytes,
    },
    "precision-4": {
        "the sum over the batches": lambda *a: _accumulated(*a, weight=lambda n, all, k: 1),
        "the mean of the batches' means": lambda *a: _accumulated(*a, weight=lambda n, all, k: 1 / k),
        "the sum over the examples": lambda *a: _accumulated(*a, weight=lambda n, all, k: n),
        "made 4 updates": lambda net, bs, opt, scaler, m: [_amp_step(net, X, y, opt, scaler, m) for X, y in bs][-1],
        "your answer raised RuntimeError": lambda *a: _accumulated(*a, each="unscale clip", last="step update"),
        "before you clip": lambda *a: _accumulated(*a, last="clip unscale step update"),
        "update() once": lambda *a: _accumulated(*a, last="unscale clip step"),
        "not piece by piece": lambda *a: _accumulated(*a, each="clip"),
        "left over": lambda *a: _accumulated(*a, clear=False),
        "optimizer.step() does not": lambda *a: _accumulated(*a, last="unscale clip plain update"),
        "inside torch.autocast": lambda *a: _accumulated(*a, half=False),
    },
    # ------------------------------------------------------------------------------ 12 GPU memory
    "memory-1": {
        "number of numbers": lambda net, name: (2 + _STATES[name]) * sum(p.numel() for p in net.parameters()),
        "takes 2 bytes": lambda net, name: (2 + _STATES[name]) * 4 * sum(p.numel() for p in net.parameters()),
        "no gradient and no state": lambda net, name: (2 + _STATES[name]) * sum(p.nbytes for p in net.parameters()),
        "times the weights": lambda net, name: (1 + _STATES[name]) * sum(p.nbytes for p in net.parameters()),
        "is a KeyError": lambda net, name: sum((2 + _STATES[name] if p.requires_grad else 1) * p.nbytes for p in net.parameters()),
        "Raise a ValueError": lambda net, name: sum((2 + _STATES.get(name, 0) if p.requires_grad else 1) * p.nbytes
                                                    for p in net.parameters()),
    },
    "memory-2": {
        "the parameters are there anyway": lambda net, X: _kept(net, X, own=True),
        "one and the same memory": lambda net, X: _kept(net, X, key=lambda t: object()),
        "the input counts": lambda net, X: _kept(net, X) - X.nbytes,
        "there are gradients": lambda net, X: [_kept(net, X, backward=True)][0],
        "or a view of it".replace("or", "and"): lambda net, X: _kept(net, X, key=lambda t: (t.data_ptr(), t.shape, id(t)) if isinstance(
            net, nn.Module) and not list(net.children()) and not list(net.parameters()) else t.untyped_storage().data_ptr()),
        "not as it was": lambda net, X: _kept(net.eval(), X),
    },
    "memory-3": {
        "calls must do": lambda peak, room, most: max((n for n in range(1, most + 1) if peak(n) <= room), default=0),
        "has one sample": lambda peak, room, most: _bisect(peak, room, -1, most),
        "largest batch allowed is": lambda peak, room, most: _bisect(peak, room, 0, 2 * most),
        "not the largest that fits": lambda peak, room, most: next((n for n in (2**k for k in range(12, -1, -1)) if n <= most
                                                                    and peak(n) <= room), 0),
        "allowed, 1000, fits": lambda peak, room, most: _bisect(peak, room, 0, most - 1 if most > 1 else most),
        "Return 0 then": lambda peak, room, most: max(1, _bisect(peak, room, 0, most)),
    },
    "memory-4": {
        "still alive. A row": lambda: _Recorder(total=lambda loss: loss),
        "the exception is still alive": lambda: _Recorder(error=lambda error: error),
        "loss of a batch has changed": lambda: _InPlace(),
        "copies to the host": lambda: _Recorder(total=lambda loss: loss.item()),
        "was a view of the batch": lambda: _Recorder(row=lambda row: row.detach()),
        "memory of its whole batch": lambda: _Recorder(row=lambda row: row.detach().expand(64, -1).clone()[0]),
        "in main memory": lambda: _Recorder(fetch=lambda row: row),
        "a Python float": lambda: _Recorder(result=lambda total: total),
        "without an exception": lambda: _Recorder(start="None"),
    },
    # ------------------------------------------------------------------------------ 13 streams
    "streams-1": {
        "everything before it": lambda copy, step, n, streams: copy + (n - 1) * max(copy, step) + step,
        "no step beside it": lambda copy, step, n, streams: n * (copy + step) if streams == 1 else n * max(copy, step),
        "Draw it": lambda copy, step, n, streams: n * (copy + step) if streams == 1 else n * (copy + step) / 2 - 0.25,
        "number of units": lambda copy, step, n, streams: f"{n * (copy + step)}",
    },
    "streams-2": {
        "`side` has to wait": _beside(there=False),
        "goes on in the current stream": _beside(back=False),
        "tell the allocator": _beside(record=False),
        "should both be in the stream": _beside(inside=False),
        "the host waited": _beside(back=False, host=lambda side: side.synchronize()),
        "matrix of 2s": _beside(value=lambda x: (x * x).sum()),
        "return the sum as a tensor": lambda x, side: (x @ x).sum().item(),
        "put it back": _beside(leak=True),
        "need not be the default one": _beside(default=True),
    },
    "streams-3": {
        "was read before loss": _each_at_once,
        "still to be read": _one_behind(last=False),
        "wait for its event": _one_behind(wait=False),
        "need not be the default one": _one_behind(default=True),
        "waited for loss": _one_behind(everything=True),
        "take one more, not all": _one_behind(hold=3),
        "start the copy with non_blocking": _one_behind(non_blocking=False, wait=False),
        "one for each is enough": lambda losses: (value for value in _one_behind()(_copied(losses))),
        "yield Python floats": _one_behind(kind=torch.as_tensor),
        "not the losses in their order": _one_behind(kind=lambda value: value + 1.0),
        "Write a generator": lambda losses: list(losses),
        "without a wait for its copy": _one_behind(wait=False, value=lambda host: host.tolist()),
    },
    "streams-4": {
        "you still hold one": _prefetch(last=False),
        "before the batch is yielded": _prefetch(wait=False),
        "need not be the default one": _prefetch(default=True),
        "waits for the copy of batch": _prefetch(event=False),
        "put only after the step": _prefetch(ahead=False),
        "record_stream": _prefetch(record=False),
        "where it waits its turn": _prefetch(own=False),
        "non_blocking=True": _prefetch(pin=False),
        "leave the `with` block": _prefetch(leak=True),
        "swallowed": _prefetch(swallow=True),
        "hold one back": _prefetch(hold=4),
        "current stream wait instead": _prefetch(wait=False, host=True),
        "a pair of tensors": _prefetch(kind=list),
        "your answer raised": _prefetch(cpu=False),
        "should be on cuda:0": lambda loader, device: iter(loader),
        "in their order": lambda loader, device: ((X.to(device), y.to(device) * 0) for X, y in loader),
        "Write a generator": lambda loader, device: [(X.to(device), y.to(device)) for X, y in loader],
    },
    "several-1": {
        "Yours are": lambda n, devices: [n // devices] * devices + [0] * (n < devices),
        "A device that gets nothing": lambda n, devices: [len(c) for c in torch.empty(n).chunk(devices)] +
            [0] * (devices - len(torch.empty(n).chunk(devices))),
        "Do not leave all": lambda n, devices: [size for size in [n // devices] * (devices - 1) + [n - n // devices * (devices - 1)] if size],
        "need get one": lambda n, devices: [size for size in [n // devices + (k < n % devices) for k in range(devices)] if size],
        "a list of whole numbers": lambda n, devices: [n / devices] * devices,
    },
    "several-2": {
        "Queue all of them first": _queued(between=lambda A: torch.cuda.synchronize(A.device)),
        "name each": _queued(wait=lambda A: torch.cuda.synchronize()),
        "may still be running: wait for the cards": _queued(wait=lambda A: None),
        "no number has to be fetched": lambda matrices: [(C, C.sum().item())[0] for C in _queued(wait=lambda A: None)(matrices)],
        "not the products": _queued(product=lambda A: A * A),
        "should be a tensor on cuda:": _queued(place=lambda C: C.cpu()),
        "one product for each": lambda matrices: _queued()(matrices)[0],
    },
    "several-3": {
        "undo that": lambda scores, y, total, processes: torch.nn.functional.cross_entropy(scores, y, reduction="sum") / total,
        "in a mean over its own part": lambda scores, y, total, processes: torch.nn.functional.cross_entropy(scores, y),
        "this is a sum": lambda scores, y, total, processes: torch.nn.functional.cross_entropy(scores, y, reduction="sum") * processes,
        "divide by their number": lambda scores, y, total, processes: torch.nn.functional.cross_entropy(scores, y, reduction="sum"),
        "without dimensions": lambda scores, y, total, processes: torch.nn.functional.cross_entropy(scores, y, reduction="none"),
    },
    "several-4": {
        "should be under net.no_sync": _one_exchange(sync=lambda net, k, n: contextlib.nullcontext()),
        "it belongs inside, too": _one_exchange(forward=False),
        "the others came later": _one_exchange(sync=lambda net, k, n: net.no_sync() if k else contextlib.nullcontext()),
        "must be outside of no_sync": _one_exchange(sync=lambda net, k, n: net.no_sync()),
        "not the network in it": lambda net, batches, optimizer: _one_exchange(sync=lambda *_: contextlib.nullcontext())(net.module, batches, optimizer),
        "divide each loss": _one_exchange(divide=False),
        "were still there": _one_exchange(zero=False),
        "have not changed": _one_exchange(step=False),
    },
    "next-1": {
        "Each operation also writes": lambda reads, numbers: (4 * numbers * sum(reads), 8 * numbers),
        "some operations read two": lambda reads, numbers: (8 * numbers * len(reads), 8 * numbers),
        "one kernel reads x once": lambda reads, numbers: (4 * numbers * (sum(reads) + len(reads)), 4 * numbers * (sum(reads) + 1)),
        "A float32 takes 4 bytes": lambda reads, numbers: (numbers * (sum(reads) + len(reads)), 2 * numbers),
        "other order": lambda reads, numbers: (8 * numbers, 4 * numbers * (sum(reads) + len(reads))),
        "return two numbers": lambda reads, numbers: 4 * numbers * (sum(reads) + len(reads)),
    },
    "next-2": {
        "no graph was made": _graphs(run=False),
        "these are the breaks": lambda function, *inputs: _graphs()(function, *inputs) - 1,
        "counted again": _graphs([]),
        "counted as 1": lambda function, *inputs: 1,
        "a break is an error": _graphs(fullgraph=True),
        "the graph will do": _graphs(result=lambda graph: None),
        "as an int": lambda function, *inputs: str(_graphs()(function, *inputs)),
    },
    "next-3": {
        "Data-dependent branching": next_exercises.update,
        "not finite": lambda w, g, limit: w - 0.1 * g * (limit / g.norm()).clamp(max=1),
        "a small gradient": lambda w, g, limit: torch.where(torch.isfinite(g.norm()), w - 0.1 * g * (limit / g.norm()), w),
        "a large gradient": lambda w, g, limit: torch.where(torch.isfinite(g.norm()), w - 0.1 * g, w),
        "changed w": lambda w, g, limit: w.copy_(next_exercises.update(w, g, limit)),
        "as large as w": lambda w, g, limit: g.norm(),
    },
    "next-4": {
        "operation not permitted": _recorded(add=lambda total, loss: total.add_(loss.item())),
        "Tensor.__repr__ fetches": _recorded(add=lambda total, loss: (total.add_(loss.detach()), repr(loss))),
        "is still 0": _recorded(add=lambda total, loss: total + loss.detach()),
        "graph of every step": _recorded(add=lambda total, loss: total.add_(loss)),
        "Clear them": _recorded(clear=False),
        "losses add up": _recorded(add=lambda total, loss: total.copy_(loss.detach())),
        "recorded and replayed, the weights": _recorded(kept=True),
    },
    "capstone-1": {
        "return a list with a triple": _capstone(result=lambda history: history[-1]),
        "a list of 10 int": _capstone(result=lambda history: [(loss, sum(right), test) for loss, right, test in history]),
        "left weights on": _capstone(begin=copy.deepcopy),
        "The batches that it trained with": _capstone(batch=128),
        "It made": _capstone(more=-1, result=lambda history: history + history[-1:]),
        "their order is not": _capstone(seeded=lambda seed: seed + 1),
        "do not look the same": _capstone(prepare=lambda images: images.float() / 255),
        "what a step does": _capstone(clear=False),
        "The last batch is smaller": _capstone(weight=lambda labels: 1),
        "the test accuracy after": _capstone(test=lambda train, test: train),
        "times are asked for": lambda *arguments: slow.train(*arguments),
        "kept from an earlier call": _remembers(),
    },
}

_FRESH = torch.Generator().manual_seed(1)


def _seeded(seed):
    return torch.Generator().manual_seed(seed)


def _in_halves(losses):
    half = len(losses) // 2
    return [v for part in (losses[:half], losses[half:]) if part for v in torch.stack(part).tolist()]


def _looked_at(product):
    product.sum().item()
    return product


def _moved(batch, device, to=lambda x, device: x.to(device), rest=lambda value: value, deep=True):
    if isinstance(batch, torch.Tensor):
        return to(batch, device)
    if isinstance(batch, dict):
        return {key: _moved(value, device, to, rest, deep) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        inner = [_moved(value, device, to, rest, deep) if deep or not isinstance(value, (list, dict)) else value for value in batch]
        return type(batch)(inner)
    return rest(batch)


def _careless(batch, device):
    if isinstance(batch, dict):
        return {key: _careless(value, device) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch)(_careless(value, device) for value in batch)
    return batch.to(device)


def _in_place(batch, device):
    if isinstance(batch, dict):
        for key, value in batch.items():
            batch[key] = _moved(value, device)
        return batch
    return _moved(batch, device)


def _careless_and_flat(batch, device):
    if isinstance(batch, dict):
        return {key: value.to(device) for key, value in batch.items()}
    return type(batch)(value.to(device) for value in batch) if isinstance(batch, (list, tuple)) else batch.to(device)


def _step(net, loss_of, optimizer, images, labels, **change):
    device = next(net.parameters()).device
    move = lambda value, device: value.to(device)  # noqa: E731
    X, labels = change.get("X", move)(images, device), change.get("y", move)(labels, device)
    loss_of = change.get("criterion", move)(loss_of, device)
    scores = net(X)
    loss = loss_of(scores, labels)
    if change.get("clear", True):
        optimizer.zero_grad()
    loss.backward()
    if change.get("update", True):
        optimizer.step()
    right = change.get("compare", lambda scores, y: scores.argmax(1) == y)(scores, labels)
    return change.get("result", lambda right: right.float().mean().item())(right)


def _labels(y, bad, n, text="label {label} at position {at} is none of {n} classes", error=ValueError):
    if bad.any().item():
        at = bad.cpu().nonzero()[0].tolist() if bad.ndim else 0
        raise error(text.format(label=y.cpu()[tuple(at)].item() if bad.ndim else y.item(), at=at, n=n))


def _weights(path, net, where="cpu", weights_only=True, prefixes=("module.", "_orig_mod."), rounds=9, unless=True, **options):
    state = torch.load(path, map_location=where, weights_only=weights_only)
    for _ in range(rounds):
        for prefix in prefixes:
            if (state.keys() != net.state_dict().keys() or not unless) and all(name.startswith(prefix) for name in state):
                state = {name[len(prefix):]: value for name, value in state.items()}
                break
    net.load_state_dict(state, **options)


def _fits(run, size, error=torch.OutOfMemoryError, raises=True, least=1, less=lambda n: n // 2, own=None):
    while size >= least:
        try:
            return size, run(size)
        except error:
            if raises and less(size) < least:
                if own:
                    raise own("one sample does not fit")
                raise
        size = less(size)


def _fits_inside(run, size):
    try:
        return size, run(size)
    except torch.OutOfMemoryError:
        return _fits_inside(run, size // 2)


def _whole(X, y, groups):
    return DataLoader(TensorDataset(X, y), sampler=groups, batch_size=None)


def _timed(loader, clock, lead=1, counted=0, mean=True, most=None):
    """Seconds a batch, with what may go wrong: how many batches lead, are counted besides, and are taken at most."""
    start, times = clock(), []
    for _ in itertools.islice(loader, most):
        times.append(clock() - start)
        start = clock()
    times, count = times[lead:], len(times) - lead + counted
    return sum(times) / (count if mean else 1) if times else None


def _chunked(X, y, size, chunks, device):
    for rows in chunks:
        yield from zip(X[rows].to(device).split(size), y[rows].to(device).split(size))


def _format(kind, capability, new=lambda capability: capability >= (8, 0), old=(torch.float32, False)):
    if kind != "cuda" or new(capability):
        return torch.bfloat16, False
    return (torch.float16, True) if capability >= (7, 0) else old


def _calls_precise(names, net, optimizer, scaler, max_norm):
    seen = None
    for name in names.split():
        if name == "unscale":
            scaler.unscale_(optimizer)
        elif name == "clip":
            seen = torch.nn.utils.clip_grad_norm_(net.parameters(), max_norm)
        elif name == "step":
            scaler.step(optimizer)
        elif name == "plain":
            optimizer.step()
        else:
            scaler.update()
    return seen


def _amp_step(net, X, y, optimizer, scaler, max_norm, calls="unscale clip step update", half=True, outside=True, clear=True,
              true_norm=False):
    scale = scaler.get_scale()
    if clear:
        optimizer.zero_grad()
    autocast = torch.autocast(X.device.type, dtype=torch.float16, enabled=half)
    with autocast:
        loss = torch.nn.functional.cross_entropy(net(X), y)
        if not outside:
            scaler.scale(loss).backward()
    if outside:
        scaler.scale(loss).backward()
    norm = _calls_precise(calls, net, optimizer, scaler, max_norm)
    return norm / scale if true_norm else norm


def _kept_bytes(net, X, dtype, count=lambda t: t.untyped_storage().nbytes(), own=True):
    kept, weights = {}, {p.data_ptr() for p in net.parameters()} if own else ()

    def pack(t):
        if t.data_ptr() not in weights:
            kept[t.data_ptr()] = t
        return t
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        with torch.autocast(X.device.type, dtype=torch.bfloat16, enabled=dtype != torch.float32):
            net(X)
    return sum(count(t) for t in kept.values())


def _accumulated(net, batches, optimizer, scaler, max_norm, weight=lambda n, total, k: n / total, each="", half=True, clear=True,
                 last="unscale clip step update"):
    total = sum(len(y) for _, y in batches)
    for X, y in batches:
        with torch.autocast(X.device.type, dtype=torch.float16, enabled=half):
            loss = torch.nn.functional.cross_entropy(net(X), y) * weight(len(y), total, len(batches))
        scaler.scale(loss).backward()
        norm = _calls_precise(each, net, optimizer, scaler, max_norm)
    norm = _calls_precise(last, net, optimizer, scaler, max_norm) or norm
    if clear:
        optimizer.zero_grad()
    return norm


_STATES = {"sgd": 0, "momentum": 1, "adam": 2}


def _kept(net, X, own=False, key=lambda t: t.untyped_storage().data_ptr(), backward=False):
    parameters, kept, alive = {p.untyped_storage().data_ptr() for p in net.parameters()}, {}, []

    def note(tensor):
        if own or tensor.untyped_storage().data_ptr() not in parameters:
            kept[key(tensor)] = tensor.untyped_storage().nbytes()
            alive.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        output = net(X)
    if backward:
        output.sum().backward()
    return sum(kept.values())


def _bisect(peak, room, fits, most):
    fails = most + 1
    while fails - fits > 1:
        middle = (fits + fails) // 2
        fits, fails = (middle, fails) if peak(middle) <= room else (fits, middle)
    return fits


class _Recorder:
    def __init__(self, total=lambda loss: loss.detach(), row=lambda row: row.detach().clone(), error=str, fetch=lambda row: row.cpu(),
                 result=float, start=None):
        self.take, self.row, self.error, self.fetch, self.final = total, row, error, fetch, result
        self.total, self.rows, self.last = 0.0, [], start

    def __call__(self, loss, output, error=None):
        self.total = self.total + self.take(loss)
        self.rows.append(self.row(output[0]))
        if error is not None:
            self.last = self.error(error)

    def result(self):
        return self.final(self.total), [self.fetch(row) for row in self.rows], self.last and str(self.last)


class _InPlace(_Recorder):
    def __call__(self, loss, output, error=None):
        total = self.total
        super().__call__(loss, output, error)
        if isinstance(total, torch.Tensor):
            total += loss.detach()
            self.total = total
        else:
            self.total = loss.detach()
