"""Checkers for chapter 12, GPU memory."""

import gc
import math
import random
import weakref

import torch
from torch import nn

from ..transfers import count_transfers
from . import Hint, call, exercise, some_devices


@exercise("memory-1")
def fixed_bytes(answer):
    states = {"sgd": 0, "momentum": 1, "adam": 2}
    width = random.randint(3, 30)
    plain = nn.Sequential(nn.Linear(width, 7), nn.Linear(7, 3))
    half = nn.Linear(width, 5).half()
    frozen = nn.Sequential(nn.Linear(width, 8), nn.Linear(8, 2))
    frozen[0].requires_grad_(False)
    tied = nn.Sequential(nn.Linear(width, width), nn.Linear(width, width))
    tied[1].weight = tied[0].weight
    for net, what in ((plain, "a network in float32"), (half, "a network in float16"), (frozen, "a network with a frozen layer"),
                      (tied, "a network of which two layers share a weight"),
                      (nn.BatchNorm1d(width, affine=False), "a network without parameters")):
        for name, n in states.items():
            want = sum((2 + n if p.requires_grad else 1) * p.nbytes for p in net.parameters())
            got = call(answer, net, name)
            if got is None:
                raise Hint("your function returned nothing. Is a return missing?")
            if got == want:
                continue
            numbers = sum(p.numel() for p in net.parameters())
            if got == (2 + n) * numbers:
                raise Hint("that is the number of numbers. How many bytes does one take?")
            if got == (2 + n) * 4 * numbers and net is half:
                raise Hint("a float16 takes 2 bytes. p.nbytes knows.")
            if net is frozen:
                raise Hint(f"{what}, {name}: expected {want:,} bytes, got {got:,}. A frozen parameter has no gradient and no state.")
            raise Hint(f"{what}, {name}: expected {want:,} bytes, that is {2 + n} times the weights, and got {got:,}.")
    try:
        got = call(answer, plain, "adagrad")
    except ValueError as error:
        if not all(name in str(error) for name in states):
            raise Hint(f"the message {str(error)!r} does not name the three optimizers that are known.")
    except KeyError:
        raise Hint("an optimizer that is not known is a KeyError. Raise a ValueError that names the three.")
    else:
        raise Hint(f"'adagrad' is none of the three, and you returned {got!r}. Raise a ValueError that names them.")


class _Twice(nn.Module):
    """Saves one tensor twice, and views of it."""

    def forward(self, x):
        h = x * 1.0
        return (h * h).sum() + (h[:2] ** 2).sum()


@exercise("memory-2")
def activation_bytes(answer):
    n, width = random.randint(20, 60), random.choice([16, 24, 40])
    X = torch.randn(n, width)
    relu = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 4))
    for net, x, want, what in (
            (nn.Linear(width, 8), X, X.nbytes, "one linear layer keeps its input"),
            (relu, X, X.nbytes + n * 32 * 4, "two linear layers with a ReLU between them: the ReLU's result and the second layer's input are "
                                             "one and the same memory"),
            (nn.Sequential(nn.Linear(width, 8), nn.Sigmoid(), nn.Flatten(0), nn.Unflatten(0, (n, 8)), nn.Linear(8, 1)), X,
             X.nbytes + n * 8 * 4, "views of one result are one piece of memory"),
            (_Twice(), X.clone().requires_grad_(), X.nbytes, "a tensor that is saved several times, and a view of it, are one piece"),
            (nn.Sequential(nn.Linear(width, 8), nn.Dropout(0.5)), X, None, "dropout keeps its mask")):
        modes, versions = [m.training for m in net.modules()], [p._version for p in net.parameters()]
        if want is None:
            state = torch.get_rng_state()
            want = _saved(net, x)
            torch.set_rng_state(state)
        got = call(answer, net, x)
        if got is None:
            raise Hint("your function returned nothing. Is a return missing?")
        if any(p.grad is not None for p in net.parameters()) or x.grad is not None:
            raise Hint("there are gradients now. The forward pass alone tells what is kept.")
        if [m.training for m in net.modules()] != modes or [p._version for p in net.parameters()] != versions:
            raise Hint("the network is not as it was: its mode or its parameters have changed.")
        if got == want:
            continue
        if got == _saved(net, x, with_parameters=True):
            raise Hint(f"{what}. Expected {want:,} bytes, got {got:,}: the parameters are there anyway and do not count.")
        if got == want - x.nbytes:
            raise Hint(f"{what}. Expected {want:,} bytes, got {got:,}: the input counts if it is kept.")
        raise Hint(f"{what}. Expected {want:,} bytes, got {got:,}.")


def _saved(net, x, with_parameters=False):
    own, kept = {p.untyped_storage().data_ptr() for p in net.parameters()}, {}

    def note(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        output = net(x)
    del output
    return sum(size for address, size in kept.items() if with_parameters or address not in own)


@exercise("memory-3")
def largest_batch(answer):
    for most, limit in ((1000, random.randint(2, 998)), (1000, 1000), (1000, 0), (1000, 1), (64, 63), (1, 1), (1, 0),
                        (4096, random.randint(2000, 4000))):
        asked = []

        def peak(n):
            asked.append(n)
            if len(asked) > 5000:
                raise RecursionError("peak was called more than 5000 times")
            return 10**6 * (n if n <= limit else n + 5000) + 100 * int(n ** 1.5)

        room = peak(limit) + 1 if limit else 10**6 - 1
        asked.clear()
        got = call(answer, peak, room, most)
        if got is None:
            raise Hint("your function returned nothing. Is a return missing?")
        if any(n < 1 for n in asked):
            raise Hint(f"peak({min(asked)}) was asked for. The smallest batch has one sample.")
        if any(n > most for n in asked):
            raise Hint(f"peak({max(asked)}) was asked for, and the largest batch allowed is {most}.")
        if got != limit:
            if limit == 0:
                raise Hint(f"not even one sample fits. Return 0 then, not {got!r}.")
            if limit == most:
                raise Hint(f"the largest batch allowed, {most}, fits, and you returned {got!r}.")
            more = "does not fit" if isinstance(got, int) and got > limit else "is not the largest that fits"
            raise Hint(f"of at most {most} samples {limit} fit; you returned {got!r}, which {more}.")
        if len(asked) > 2 + math.log2(most):
            raise Hint(f"right, with {len(asked)} calls of peak for at most {most} samples. Each halves what is left: "
                       f"{int(2 + math.log2(most))} calls must do.")


@exercise("memory-4")
def recorder(answer):
    if not callable(answer):
        raise Hint(f"the answer should be the class, and is {answer!r}.")
    with some_devices() as devices:
        for device in [*devices[:1], torch.device("cpu")]:
            _record(answer, device)


class _Big(Exception):
    pass


def _record(answer, device):
    recorder = call(answer)
    weight = torch.ones(50, 20, device=device, requires_grad=True)
    X = torch.randn(64, 50).to(device)
    losses, given, rows, graphs = [], [], [], []
    with count_transfers() as used:
        for k in range(4):
            output = (X + k) @ weight
            loss = output.pow(2).mean()
            graphs.append(weakref.ref(output))
            losses.append(loss.detach().clone())
            given.append(loss.detach())
            rows.append(output[0].detach().clone())
            error = None
            if k == 1:
                error = _Big("nan in batch 1")
                error.tensors = torch.ones(8)
                held = weakref.ref(error.tensors)
            call(recorder, loss, output, error)
            output[1:].detach().fill_(0.0)  # what the loop does later must not matter
            output[0].detach().fill_(-1.0)
            del output, loss, error
    if used.copies["D2H"] or used.waits.total():
        raise Hint(f"{used.copies['D2H']} copies to the host and {used.waits.total()} waits in four calls. Keep the numbers on the device "
                   "and fetch them in result().")
    gc.collect()
    if held() is not None:
        raise Hint("the exception is still alive, and with it its traceback, the frames and their tensors. Keep its text.")
    if any(graph() is not None for graph in graphs):
        raise Hint("the outputs of earlier batches are still alive. A row is a view of its batch, and a loss or a row with a graph keeps "
                   "what the backward pass needs: detach, and copy.")
    if any(not torch.equal(mine, true) for mine, true in zip(given, losses)):
        raise Hint("the loss of a batch has changed: += writes into the tensor that the loop gave you. Add with total = total + loss.")
    got = call(recorder.result)
    if not isinstance(got, tuple) or len(got) != 3:
        raise Hint(f"result() should return the sum, the rows and the text, and returned {got!r}.")
    total, kept, text = got
    if type(total) is not float:
        raise Hint(f"the sum should be a Python float, not {type(total).__name__}.")
    want = sum(loss.item() for loss in losses)
    if abs(total - want) > 1e-3 * max(1.0, abs(want)):
        raise Hint(f"the sum of the losses is {want:.4f}, and you returned {total:.4f}.")
    if len(kept) != 4 or any(not isinstance(row, torch.Tensor) for row in kept):
        raise Hint("there should be one row, a tensor, for each of the four batches.")
    if any(row.device.type != "cpu" for row in kept):
        raise Hint(f"the rows are on {kept[0].device}; result() should return them in main memory.")
    if any(row.requires_grad for row in kept):
        raise Hint("the rows require a gradient, so they still hold their graph.")
    if any(not torch.allclose(row, true.cpu()) for row, true in zip(kept, rows)):
        raise Hint("a row has changed after the call. It was a view of the batch, which the loop wrote into: copy it.")
    if any(row.untyped_storage().nbytes() > len(kept) * row.nbytes for row in kept):  # stacked rows are fine
        raise Hint("a row still holds the memory of its whole batch. .detach() alone gives a view: copy it.")
    if text != "nan in batch 1":
        raise Hint(f"the last exception said 'nan in batch 1', and result() says {text!r}.")
    if call(call(answer).result)[2] is not None:
        raise Hint("without an exception the third value is None.")
