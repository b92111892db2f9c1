"""Checker of the capstone in chapter 15: the slow training script, made at least three times as fast.

What is learned is compared with the slow script's, weight by weight: batches, order, rate and passes cannot differ then.
What the answer still does of the slow script's habits is counted. Then both are timed in turns.
"""

import contextlib
import copy
import dis
import random
import statistics
import time
import types

import torch
from torch import nn

from ..capstone import slow
from ..capstone.habits import habits, some
from ..devices import _has_mps, _simulation, num_gpus
from ..timing import synchronize
from . import Hint, Untouched, call, exercise, some_devices

WANTED = 3
PAIRS = 5
PASSES = 6


@exercise("capstone-1")
def three_times(answer):
    if _same_code(answer, slow.train):
        raise Untouched
    device = _timed_on()
    with _one_thread():
        with some_devices() as devices:
            for other in [*devices[:1], torch.device("cpu")]:
                try:
                    _check_learning(answer, other)
                except NotImplementedError as error:  # of a simulated GPU
                    if "torch.compile" not in str(error):
                        raise
                    raise Hint("leave torch.compile out: the whole training takes less time than compiling.") from None
        before, left = (habits(function, device) for function in (slow.train, answer))
        ratio = times_as_fast(answer, device)
    if ratio < WANTED:
        remains = " Still there: " + "; ".join(left.values()) + "." if left else (
            " Nothing is left of the slow one's habits, so look at what you have added: profile your function.")
        raise Hint(f"{ratio:.2f} times as fast on {device}, and {WANTED} times are asked for.{remains}")
    gone = [name for name in before if name not in left]
    return (f"{ratio:.2f} times as fast on {device}, and it learns the same."
            + (f" Gone: {', '.join(gone)}." if gone else "") + (f" Still there: {', '.join(left)}." if left else ""))


def _same_code(answer, original):
    """Whether `answer` is a copy of `original`, with the functions and classes of its module that it calls by name."""
    if isinstance(original, type):
        methods = {name: member for name, member in vars(original).items() if isinstance(member, types.FunctionType)}
        return isinstance(answer, type) and all(_same_code(vars(answer).get(name), methods[name]) for name in methods)
    if not isinstance(answer, types.FunctionType):
        return False
    own = [name for name in original.__code__.co_names if name != original.__name__
           and getattr(vars(slow).get(name), "__module__", None) == slow.__name__]
    return _steps(answer) == _steps(original) and all(_same_code(answer.__globals__.get(name), vars(slow)[name])
                                                      for name in own)


def _steps(function):
    """The instructions of a function, without what differs between a module and a cell: how `torch.zeros` is called."""
    same, jumps = {"LOAD_METHOD": "LOAD_ATTR"}, (*dis.hasjrel, *dis.hasjabs)
    return [(same.get(step.opname, step.opname), None if step.opcode in jumps else step.argval)
            for step in dis.get_instructions(function) if step.opname not in ("PUSH_NULL", "EXTENDED_ARG", "PRECALL", "NOP")]


@contextlib.contextmanager
def _one_thread():
    """The CPU computes with one thread: the network is small, and other programs disturb less."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _timed_on():
    """The device that is timed: a real GPU, or else the CPU."""
    if _simulation() is None and (num_gpus() or _has_mps()):
        return torch.device("cuda", 0) if num_gpus() else torch.device("mps")
    return torch.device("cpu")


# ----------------------------------------------------------------------------------------- is the same learned?
def _norm_net():
    """A network for which the mode matters."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10))


def _run(function, net, *arguments):
    """What `function` returns for a copy of `net`, that copy, and the batches it was trained with."""
    net, batches = copy.deepcopy(net), []

    def note(module, given):
        if module.training and torch.is_grad_enabled():
            batches.append(given[0].detach().flatten(1))

    handle = net.register_forward_pre_hook(note)
    with torch.autograd.set_detect_anomaly(False):
        history = call(function, net, *arguments)
    handle.remove()
    return history, net, batches


def _check_learning(answer, device):
    n, passes, seed = 64 * random.randint(2, 3) + random.randint(10, 30), random.randint(2, 3), random.randrange(10_000)
    train_set, test_set, net = some(n, True), some(100, False), _norm_net()
    _make_last_batch_hard(train_set[1], passes, seed)
    test_set[1][:30] = torch.randint(10, (30,))  # so that no other accuracy is near
    arguments = train_set, test_set, device, passes, seed
    want, twin, batches = _run(slow.train, net, train_set, test_set, torch.device("cpu"), passes, seed)
    got, mine, mine_batches = _run(answer, net, *arguments)
    _check_form(got, passes)
    elsewhere = {t.device for t in mine.state_dict().values()} - {device}
    if elsewhere:
        raise Hint(f"asked to train on {device}, it left weights on {elsewhere.pop()}.")
    if _distance(mine, net, net) == 0:
        raise Hint("the network that it was given has the weights it had before: train that one, not a copy.")
    if _distance(mine, twin, net) > 0.1:
        raise Hint("it does not learn the same: the weights are not those of the slow script. "
                   + _why(mine_batches, batches, n))
    for k, ((loss, right, test), (loss_want, right_want, test_want)) in enumerate(zip(got, want), 1):
        if abs(loss / loss_want - 1) > 0.01:
            raise Hint(f"the mean loss of pass {k} over its {n} examples is {loss_want:.3f}, and you return {loss:.3f}. The "
                       "last batch is smaller than the others.")
        if sum(abs(a - b) for a, b in zip(right, right_want)) > 0.08 * n:
            raise Hint(f"by class, the examples that were right while pass {k} trained are {right_want}, and you return {right}.")
        if abs(test - test_want) > 0.051:
            raise Hint(f"the test accuracy after pass {k} is {test_want:.3f}, and you return {test:.3f}. Is the network in "
                       "evaluation mode, and are all test pictures counted?")


def _make_last_batch_hard(labels, passes, seed):
    """Other labels for the last, small batch of the last pass: the mean of the batches is then not that of the examples."""
    generator = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(len(labels), generator=generator) for _ in range(passes)]
    last = orders[-1][-(len(labels) % 64):]
    labels[last] = (labels[last] + 5) % 10


def _check_form(history, passes):
    form = ("a triple for each pass: the mean loss (float), how many of each class were right (a list of 10 int), the test "
            "accuracy (float)")
    if not isinstance(history, list) or len(history) != passes:
        size = f" of {len(history)}" if isinstance(history, (list, tuple)) else ""
        raise Hint(f"for {passes} passes return a list with {form}. You returned a {type(history).__name__}{size}.")
    for entry in history:
        if not isinstance(entry, (tuple, list)) or len(entry) != 3 or type(entry[0]) is not float or type(entry[2]) is not float:
            raise Hint(f"return {form}. You returned {str(entry)[:80]}.")
        if not isinstance(entry[1], list) or [type(count) for count in entry[1]] != [int] * 10:
            raise Hint(f"the second of each triple is a list of 10 int, one for each class, and not {str(entry[1])[:80]}.")


def _distance(net, other, start):
    """How far the weights are apart, as a share of how far training took them."""
    a, b, c = (torch.cat([t.detach().cpu().double().flatten() for t in n.state_dict().values()
                          if t.is_floating_point()]) for n in (net, other, start))
    return ((a - b).norm() / ((b - c).norm() if other is not start else 1)).item()


def _why(batches, wanted, n):
    """In words, what is different about the batches."""
    sizes, wanted_sizes = ([len(X) for X in each] for each in (batches, wanted))
    if sizes[:2] == wanted_sizes[:2] and len(sizes) != len(wanted_sizes):
        return (f"It made {len(sizes)} steps, and the slow one {len(wanted_sizes)}: each pass has all examples, and the network is "
                "in training mode.")
    if sizes != wanted_sizes:
        return (f"The batches that it trained with are of {sizes[:4]} ... examples, and those of the slow one of "
                f"{wanted_sizes[:4]} ...")
    mine, theirs = (torch.cat([X.cpu().float() for X in each]) for each in (batches, wanted))
    if mine.shape == theirs.shape and torch.allclose(mine, theirs, atol=0.05):
        return ("The batches are the same ones, so the difference is in what a step does: loss, gradients, optimizer, or the "
                "network's mode (training and evaluation).")
    if mine.shape == theirs.shape and torch.allclose(mine[:n].sum(0), theirs[:n].sum(0), atol=0.05 * n):
        return ("The pictures are the same, and their order is not. Draw it with one torch.randperm a pass, from a generator on "
                "the CPU that gets the seed.")
    return "The pictures do not look the same to the network: each has its own contrast, mean and deviation."


# ------------------------------------------------------------------------------------------------- how fast is it?
def times_as_fast(answer, device, clock=time.perf_counter):
    """How many times as long the slow script takes: the median over pairs of runs in turns, after one that is not counted.

    The weights are compared in each pair.
    """
    train_set, test_set, ratios = some(1300, True), some(325, False), []
    for _ in range(1 + PAIRS):
        net, seed, runs = slow.network(), random.randrange(10_000), []
        for function in (slow.train, answer):
            mine = copy.deepcopy(net)
            with torch.autograd.set_detect_anomaly(False):
                synchronize([device])
                start = clock()
                call(function, mine, train_set, test_set, device, PASSES, seed)
                synchronize([device])
                runs.append((clock() - start, mine))
        (long, theirs), (short, mine) = runs
        ratios.append(long / short)
        if _distance(mine, theirs, net) > 0.2:
            raise Hint("in a timed run the weights were not those of the slow script: is something kept from an earlier call?")
    return statistics.median(ratios[1:])
