"""Checkers for chapter 15, where next: torch.compile and CUDA graphs."""

import copy
import random

import torch
from torch import nn
from torch.nn import functional as F

from ..graphs import GraphModel
from . import Hint, call, exercise


@exercise("next-1")
def traffic(answer):
    for _ in range(3):
        reads = [1] + [random.choice((1, 1, 2)) for _ in range(random.randrange(3, 7))] + [2]
        numbers = random.randrange(1000, 10_000)
        k, one = len(reads), 4 * numbers
        right = (sum(reads) + k) * one, 2 * one
        got = call(answer, list(reads), numbers)
        try:
            apart, fused = got
        except (TypeError, ValueError):
            raise Hint("return two numbers: the bytes one by one, and the bytes as one kernel.") from None
        shown = f"for reads={reads} and {numbers} numbers"
        if (apart, fused) == (right[1], right[0]):
            raise Hint("the two numbers are in the other order: one by one first.")
        if (apart, fused) == (right[0] / 4, right[1] / 4):
            raise Hint("you counted numbers. A float32 takes 4 bytes.")
        if apart == sum(reads) * one:
            raise Hint(f"{shown}: you counted what is read. Each operation also writes a result.")
        if apart == 2 * k * one:
            raise Hint(f"{shown}: some operations read two tensors, and reads says which.")
        if fused in (one, (sum(reads) + 1) * one):
            raise Hint(f"{shown}: one kernel reads x once, whatever it does with it, and writes the last result once.")
        if (apart, fused) != right:
            raise Hint(f"{shown}: expected {right}, and you returned {got}.")


def _straight(x):
    return (x * 2 + 1).relu()


def _one_if(x):
    x = x * 2
    if x.sum() > 0:
        x = x + 1
    return x.relu()


def _two_ifs(x, y):
    x = x * 2
    if x.sum() > 0:
        x = x + y
    y = y * x
    if y.mean() > 0:
        y = y - 1
    return x.relu() + y


@exercise("next-2")
def count_graphs(answer):
    cases = [(_straight, 1, 1), (_one_if, 1, 2), (_two_ifs, 2, 3), (_one_if, 1, 2)]
    right, counted = [graphs for *_, graphs in cases], []
    for function, inputs, _ in cases:
        torch.compiler.reset()
        try:
            got = call(answer, function, *[torch.ones(random.randrange(3, 9))] * inputs)
        except torch._dynamo.exc.Unsupported:
            raise Hint("with fullgraph=True a break is an error. Leave that out, and the graphs can be counted.") from None
        except torch._dynamo.exc.BackendCompilerFailed as error:
            reason = str(error).strip().splitlines()[1:2] or [""]
            raise Hint(f"your backend failed ({reason[0]}). It gets a graph and example inputs, and returns a function: the "
                       "graph will do.") from None
        if isinstance(got, bool) or not isinstance(got, int):
            raise Hint(f"return the number of graphs as an int, not {type(got).__name__}.")
        counted.append(got)
    torch.compiler.reset()
    if counted == [n - 1 for n in right]:
        raise Hint("these are the breaks. A function with one break becomes two graphs.")
    if counted == [sum(right[:k + 1]) for k in range(len(right))]:
        raise Hint("the graphs of earlier calls are counted again: start from an empty list in each call.")
    if not any(counted):
        raise Hint("no graph was made. torch.compile only wraps the function: the graphs are made when what it returns is called.")
    for (function, _, graphs), got in zip(cases, counted):
        if got != graphs:
            raise Hint(f"a function that becomes {graphs} graph{'s' * (graphs > 1)} was counted as {got}.")


def update(w, g, limit):
    """What exercise 3 starts from."""
    norm = g.norm()
    if norm > limit:
        g = g * (limit / norm)
    if not torch.isfinite(norm):
        return w
    return w - 0.1 * g


@exercise("next-3")
def one_graph(answer):
    def gradient(scale):
        return torch.randn(6) * scale

    spoiled = gradient(1.0)
    spoiled[2] = float("inf")
    cases = {"a small gradient": gradient(0.01), "a large gradient": gradient(100.0), "a gradient that is not finite": spoiled,
             "a gradient of zeros": torch.zeros(6)}
    for name, g in cases.items():
        w, limit = torch.randn(6), random.uniform(0.5, 2.0)
        kept = w.clone()
        got = call(answer, w, g.clone(), limit)
        if not torch.equal(w, kept):
            raise Hint("your function changed w. Return new weights and leave the old ones alone.")
        right = update(w, g, limit)
        if not isinstance(got, torch.Tensor) or got.shape != right.shape:
            raise Hint("return the new weights, a tensor as large as w.")
        if not torch.allclose(got, right, rtol=1e-4, atol=1e-5):
            raise Hint(f"for {name} the new weights are not those of the function above.")
    torch.compiler.reset()
    try:
        whole = torch.compile(answer, backend="eager", fullgraph=True)
        compiled = whole(torch.randn(6), gradient(1.0), 1.0)
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise Hint(f"right values, but not one graph: {first}") from None
    finally:
        torch.compiler.reset()
    if not isinstance(compiled, torch.Tensor):
        raise Hint("compiled, your function returns no tensor.")


def _net():
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))


def _right_step(net, optimizer, X, y, total, clear=True):
    if clear:
        optimizer.zero_grad()
    loss = F.cross_entropy(net(X), y)
    loss.backward()
    optimizer.step()
    total += loss.detach()


@exercise("next-4")
def recordable_step(answer):
    n = random.randrange(4, 9)
    batches = [(torch.randn(n, 5), torch.randint(3, (n,))) for _ in range(5)]
    first = _net()
    nets = [first, copy.deepcopy(first), copy.deepcopy(first)]
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
    totals = [torch.zeros(()) for _ in nets]
    X, y = torch.zeros(n, 5), torch.zeros(n, dtype=torch.long)

    def theirs(function, batch):
        X.copy_(batch[0])
        y.copy_(batch[1])
        function(nets[0], optimizers[0], X, y, totals[0])

    def weights(net):
        return torch.cat([p.detach().flatten() for p in net.parameters()])

    def compare(when):
        if totals[0].requires_grad:
            raise Hint("total holds the graph of every step. Add loss.detach().")
        if torch.allclose(weights(nets[0]), weights(nets[2]), atol=1e-5) and not torch.allclose(
                weights(nets[1]), weights(nets[2]), atol=1e-4):
            raise Hint(f"{when}, the gradients of earlier steps were still there. Clear them in each step.")
        if not torch.allclose(weights(nets[0]), weights(nets[1]), atol=1e-4):
            raise Hint(f"{when}, the weights are not those of training with the same batches.")
        if totals[0].item() == 0:
            raise Hint(f"{when}, total is still 0. `total = total + ...` makes a new tensor; add into the one that you were given.")
        if abs(totals[0].item() - totals[1].item()) > 1e-3:
            raise Hint(f"{when}, total holds {totals[0].item():.4f}, and the losses add up to {totals[1].item():.4f}.")

    def ours(batch):
        for k in (1, 2):
            _right_step(nets[k], optimizers[k], *batch, totals[k], clear=k == 1)

    for batch in batches[:2]:
        call(lambda: theirs(answer, batch))
        ours(batch)
    compare("called twice, not recorded yet")
    graph = GraphModel()

    def record():  # with the tensors that X and y are, not with copies into them
        with graph.capture():
            answer(nets[0], optimizers[0], X, y, totals[0])

    call(record)
    ours(batches[1])
    for batch in batches[2:]:
        X.copy_(batch[0])
        y.copy_(batch[1])
        graph.replay()
        ours(batch)
    compare("recorded and replayed")
