"""Checkers for chapter 06, device errors."""

import contextlib
import random
import sys
import tempfile
import weakref
from pathlib import Path

import torch
from torch import nn, serialization

from ..transfers import count_transfers
from . import Hint, call, exercise, some_devices


@exercise("errors-1")
def step(answer):
    with some_devices() as devices:
        for device in [*devices, torch.device("cpu")]:
            for away in {torch.device("cpu"), device}:
                _one_step(answer, device, away)


def _one_step(answer, device, away):
    """One step of a network on `device` with a criterion on `away`, compared with the step that it should be."""
    X, y = torch.randn(9, 4), torch.randint(0, 3, (9,))
    net, criterion = nn.Linear(4, 3), nn.CrossEntropyLoss(weight=torch.rand(3) + 0.5)
    old, weights = [p.detach().clone() for p in net.parameters()], criterion.weight
    scores = net(X)
    grads = torch.autograd.grad(criterion(scores, y), list(net.parameters()))
    share = (scores.argmax(1) == y).float().mean().item()
    net.to(device)
    criterion = nn.CrossEntropyLoss(weight=weights).to(away)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net(X.to(device)).sum().backward()  # a gradient of an earlier step, which must not count
    where = f"with the network on {device} and the criterion on {away}, "
    try:
        got = call(answer, net, criterion, optimizer, X, y)
    except RuntimeError as error:
        text = str(error)
        if "nll_loss" in text and "weight is on" in text:
            raise Hint(f"{where}the class weights and the rest are apart. They are a buffer of the criterion: it moves with .to.")
        if "nll_loss" in text and "target is on" in text:
            raise Hint(f"{where}the loss fails: the labels were not moved.")
        if "addmm" in text:
            raise Hint(f"{where}the network fails: X is not where the parameters are ({' '.join(text.split())[:90]} ...).")
        if "at least two devices" in text:
            raise Hint(f"{where}the predictions are compared with labels that are elsewhere.")
        raise
    except TypeError as error:
        if "to numpy" not in str(error):
            raise
        raise Hint(f"{where}the result is still on the device when it goes to NumPy. You need no NumPy for a mean.")
    if got is None:
        raise Hint("your function returned nothing. Is a return missing?")
    if next(net.parameters()).device != device:
        raise Hint(f"{where}the network was moved to {next(net.parameters()).device}. It stays, the batch comes to it.")
    if type(got) is not float:
        raise Hint(f"return the share as a Python float, not {type(got).__name__}. .item() makes one.")
    if abs(got - share) > 1e-5:
        raise Hint(f"{where}the share of right answers is {share:.3f}, and you returned {got:.3f}.")
    for p, before, grad in zip(net.parameters(), old, grads):
        change = (p.detach().cpu() - before) / -0.1
        if not change.any():
            raise Hint("the parameters have not changed: backward and optimizer.step are still needed.")
        if not torch.allclose(change, grad, atol=1e-4):
            raise Hint("the parameters changed by something else than this batch's gradient. Are old gradients zeroed, and are the "
                       "class weights used?")


@exercise("errors-2")
def check_labels(answer):
    with some_devices() as devices:
        for device in [*devices[:1], torch.device("cpu")]:
            classes = random.randint(5, 20)
            good = torch.randint(0, classes, (40,), device=device)
            good[0], good[1] = 0, classes - 1
            _accepts(answer, (good, classes), "all labels are in range")
            if (waits := _waits(answer, good, classes)) > 1:
                raise Hint(f"{waits} waits for a batch of good labels. Reduce on the device and fetch one truth value.")
            masked = good.clone()
            masked[3:6] = -100
            _accepts(answer, (masked, classes), "some labels are the ignore_index, -100")
            masked[3:6] = 255
            _accepts(answer, (masked, classes, 255), "some labels are 255, and so is ignore_index")
            for bad, what in ((-1, "negative"), (-100, "-100, and ignore_index is 255"), (classes, "equal to the number of classes")):
                labels, at = good.clone(), random.randint(20, 30)
                labels[at] = bad
                if bad == -100:
                    labels[at + 5] = classes + 3  # not the first bad one
                _refuses(answer, (labels, classes, *((255,) if bad == -100 else ())), bad, at, what)


def _accepts(answer, arguments, what):
    before = arguments[0].clone()
    try:
        got = call(answer, *arguments)
    except ValueError as error:
        raise Hint(f"{what}, and you raised ValueError: {error}")
    if got is not None:
        raise Hint(f"{what}: return nothing then, not {got!r}.")
    if not torch.equal(before, arguments[0]):
        raise Hint("the labels were changed. Only look at them.")


def _waits(answer, labels, classes):
    with count_transfers() as used:
        call(answer, labels, classes)
    return used.waits.total()


def _refuses(answer, arguments, bad, at, what):
    try:
        got = call(answer, *arguments)
    except ValueError as error:
        text, classes = str(error), arguments[1]
    except IndexError as error:
        raise Hint(f"a label is {what}, and you raised IndexError ({error}). Raise ValueError, before the loss is called.")
    else:
        raise Hint(f"a label is {what}, and nothing was raised. Your function returned {got!r}.")
    if str(bad) not in text:
        raise Hint(f"a label is {what}; the message {text!r} does not name it: it is {bad}, the first bad one.")
    if str(at) not in text.replace(str(bad), "", 1):
        raise Hint(f"the message {text!r} does not say where: position {at}.")
    if str(classes) not in text.replace(str(bad), "", 1):
        raise Hint(f"the message {text!r} does not say how many classes there are: {classes}.")


class _Tower(nn.Module):
    """A network with a part that is called `module`, beside another."""

    def __init__(self):
        super().__init__()
        self.module, self.head = nn.Linear(3, 4), nn.Linear(4, 2)


class _OnlyModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.module = nn.Linear(3, 2)


@exercise("errors-3")
def load_weights(answer):
    with some_devices() as devices, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.pt"
        for device in [torch.device("cpu"), *devices[:1]]:
            for make, prefixes, what in ((_linear, ("",), "a plain network"),
                                         (_linear, ("module.",), "a network inside DataParallel"),
                                         (_linear, ("_orig_mod.",), "a compiled network"),
                                         (_linear, ("module._orig_mod.", "_orig_mod.module."), "a compiled network inside DataParallel"),
                                         (_Tower, ("",), "a network with a part called module"),
                                         (_OnlyModule, ("", "module."), "a network whose only part is called module")):
                for prefix in prefixes:
                    _loads(answer, path, make, prefix, device, devices, what)
        wrong = {f"module.{name}": value for name, value in nn.Linear(3, 2, bias=False).state_dict().items()}
        torch.save(wrong, path)
        try:
            call(answer, path, _linear())
        except Exception:
            pass
        else:
            raise Hint("the file had no bias, and nothing was raised: half of the network keeps its random weights.")
        _ran.clear()
        torch.save(_Trap(_linear().state_dict()), path)
        with contextlib.suppress(Exception):  # whatever is raised: what counts is whether code from the file ran
            call(answer, path, _linear())
        if _ran:
            raise Hint("a file made code of its own run when you loaded it. Keep weights_only=True.")


_ran = []


def _spring(weights):
    """What unpickling a `_Trap` runs: it leaves a mark, and gives weights in which nothing is wrong."""
    _ran.append(True)
    return weights


class _Trap:
    def __init__(self, weights):
        self.weights = weights

    def __reduce__(self):
        return _spring, (self.weights,)


def _linear():
    return nn.Sequential(nn.Linear(3, 2))


def _loads(answer, path, make, prefix, device, devices, what):
    saved, net = make(), make().to(device)
    parameters = list(net.parameters())
    where = devices[-1] if devices else torch.device("cpu")
    torch.save({prefix + name: value.to(where) for name, value in saved.state_dict().items()}, path)
    asked, restore = [], serialization._get_restore_location  # torch.load calls it, by whatever name it was imported

    def watched(map_location):
        asked.append(map_location)
        return restore(map_location)

    serialization._get_restore_location = watched
    try:
        call(answer, path, net)
    except RuntimeError as error:
        if "state_dict" not in str(error):
            raise
        raise Hint(f"the file is from {what} (names such as {prefix}{next(iter(saved.state_dict()))}), and load_state_dict refused: "
                   f"{' '.join(str(error).split())[:150]} ...")
    finally:
        serialization._get_restore_location = restore
    if any(p is not q for p, q in zip(net.parameters(), parameters)):
        raise Hint("the parameters are other objects now: an optimizer that holds the old ones would train nothing.")
    if any(p.device != device for p in net.parameters()):
        raise Hint(f"the network was on {device} and is on {next(net.parameters()).device} now.")
    for name, value in net.state_dict().items():
        if not torch.equal(value.cpu(), saved.state_dict()[name]):
            raise Hint(f"from the file of {what}, {name} was not loaded.")
    if any(location is None for location in asked):
        raise Hint("it works here, where the device in the file exists. Say map_location, or the next machine gets an error.")
    if any("cuda" in str(location) for location in asked):
        raise Hint("map the file to main memory: load_state_dict brings each tensor to where the parameter is.")


@exercise("errors-4")
def first_that_fits(answer):
    start = random.choice([64, 96, 100])
    want = start // 2 ** random.randint(2, 4)
    fits = want + random.randint(1, want - 1)  # more than the halving finds, and less than twice as much
    runner = _Runner(fits)
    got = _tried(answer, runner, start)
    if got is None:
        raise Hint("your function returned nothing. Return the batch size and the result.")
    if not isinstance(got, tuple) or len(got) != 2:
        raise Hint(f"return a tuple, the batch size and what run returned; you returned {got!r}.")
    if runner.sizes[:1] != [start]:
        raise Hint(f"the first call should be run({start}), and was run({runner.sizes[:1]}).")
    if got[0] != want:
        raise Hint(f"halving {start} until at most {fits} fit gives {want}; you returned {got[0]} after trying {runner.sizes}.")
    if got[1] != f"result of {want}":
        raise Hint(f"the second value should be what run returned, {f'result of {want}'!r}, and is {got[1]!r}.")
    if len(runner.sizes) != len(set(runner.sizes)):
        raise Hint(f"run was called with {runner.sizes}: once for each size is enough.")
    if _tried(answer, _Runner(10**6), 7) != (7, "result of 7"):
        raise Hint("a batch that fits at once should not be made smaller.")
    for other in (ValueError("a bug"), RuntimeError("mat1 and mat2 shapes cannot be multiplied")):
        runner = _Runner(0, other)
        try:
            got = _tried(answer, runner, 8)
        except type(other) as error:
            if error is not other:
                raise
        else:
            raise Hint(f"run raised {type(other).__name__} ({other}), which is no lack of memory, and it did not pass through.")
        if len(runner.sizes) > 1:
            raise Hint(f"run raised {type(other).__name__} ({other}), and was called again. Catch torch.OutOfMemoryError alone.")
    runner = _Runner(0)
    try:
        got = _tried(answer, runner, 8)
    except torch.OutOfMemoryError:
        pass
    except RecursionError:
        raise Hint("not even one sample fitted, and your function went on for ever.")
    except Exception as error:
        raise Hint(f"not even one sample fitted. Raise PyTorch's own error then, not {type(error).__name__}: {error}")
    else:
        if 0 in runner.sizes:
            raise Hint("run was called with a batch of 0. One sample is the smallest batch.")
        raise Hint(f"not even one sample fitted, and your function returned {got!r}. Raise the error then.")
    if runner.sizes[-1] != 1:
        raise Hint(f"the sizes tried were {runner.sizes}; one sample was not tried.")


def _tried(answer, runner, start):
    try:
        return call(answer, runner, start)
    except _StillThere as error:
        raise Hint(str(error)) from None


class _StillThere(Exception):
    pass


class _Runner:
    """A training step that runs out of memory above `fits` samples, and knows whether its last attempt is still alive."""

    def __init__(self, fits, other=None):
        self.fits, self.other, self.sizes, self.kept = fits, other, [], []

    def __call__(self, batch_size):
        if len(self.sizes) > 200:
            raise RecursionError
        if sys.exc_info()[0] is torch.OutOfMemoryError or any(kept() is not None for kept in self.kept):
            raise _StillThere("run was called while the error of the failed attempt was still alive, and with it the tensors of that "
                              "attempt. Try again after the except block, and keep no reference to the error.")
        self.sizes.append(batch_size)
        if self.other is not None:
            raise self.other
        activations = torch.ones(8)
        self.kept.append(weakref.ref(activations))
        if batch_size > self.fits:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        self.kept.pop()
        return f"result of {batch_size}"
