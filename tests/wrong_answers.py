"""Plausible wrong answers to the exercises: for each, words that its hint must contain."""

import contextlib
import itertools
import math

import torch

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


def _seeded_order(n, device):
    return torch.arange(n, device=device).roll(3)


def _pairs(X, y, chunks):
    return ((X[rows], y[rows]) for rows in chunks)


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
