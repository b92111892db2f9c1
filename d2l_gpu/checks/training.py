"""Checkers for chapter 05, the training loop."""

import random

import torch
from torch import nn
from torch.nn import functional as F

from ..transfers import count_transfers
from . import Hint, call, exercise, some_devices


def _data(n=26):
    torch.manual_seed(random.randrange(10_000))
    X, y = torch.randn(n, 4), torch.randint(0, 3, (n,))
    return X, y, list(zip(X.split(8), y.split(8)))  # the last batch is smaller


def _net():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def _kind(value):
    return "a tensor" if isinstance(value, torch.Tensor) else type(value).__name__


@exercise("training-1")
def one_epoch(answer):
    with some_devices() as devices:
        for device in [*devices[:1], torch.device("cpu")]:
            X, y, batches = _data()
            net, twin = _net(), _net()
            twin.load_state_dict(net.state_dict())
            net.eval()
            optimizer, reference = (torch.optim.SGD(n.parameters(), lr=0.5) for n in (net, twin))
            sums, means = 0.0, []
            for a, b in batches:
                loss = F.cross_entropy(twin(a), b)
                reference.zero_grad()
                loss.backward()
                reference.step()
                sums, means = sums + loss.item() * len(b), [*means, loss.item()]
            with count_transfers() as used:
                got = call(answer, net, batches, optimizer, device)
            if not isinstance(got, float):
                raise Hint(f"return the mean loss as a Python float, not {_kind(got)}.")
            if next(net.parameters()).device != device:
                raise Hint(f"the network should be trained on {device}, and is on {next(net.parameters()).device}.")
            apart = [not torch.allclose(p.detach().cpu(), q.detach(), atol=1e-4)
                     for p, q in zip(net.parameters(), twin.parameters())]
            if any(apart):
                raise Hint("after the pass the weights are not those of the reference loop. Are the gradients cleared in every "
                           "step, exactly one step taken for each batch, the loss the cross-entropy, and X taken as it is?")
            if abs(got - sum(means)) < 1e-4:
                raise Hint(f"you returned {got:.4f}, the sum over the batches. Divide.")
            if abs(got - sum(means) / len(means)) < 1e-4 < abs(sum(means) / len(means) - sums / len(X)):
                raise Hint(f"you returned {got:.4f}, the mean of the batches' means; the last batch is smaller. Weight each by its "
                           f"number of examples: {sums / len(X):.4f}.")
            if abs(got - sums / len(X)) > 1e-3:
                raise Hint(f"you returned {got:.4f}; the mean loss over the examples is {sums / len(X):.4f}.")
            if not net.training:
                raise Hint("the network is in evaluation mode, as it was given. Training needs net.train().")
            if used.copies["D2H"] > 1:
                raise Hint(f"{used.copies['D2H']} losses were fetched in {len(batches)} batches. Sum them on the device, and fetch "
                           "the sum.")


@exercise("training-2")
def accuracy_of(answer):
    with some_devices() as devices:
        for device in [*devices[:1], torch.device("cpu")]:
            for mode in (True, False):
                X, y, batches = _data()
                net = nn.Sequential(_net(), nn.Dropout(0.9)).train(mode)
                graphs = []
                net.register_forward_hook(lambda module, given, out: graphs.append(out.requires_grad))
                with torch.no_grad():
                    want = (net[0](X).argmax(1) == y).float().mean().item()
                with count_transfers() as used:
                    got = call(answer, net, batches, device)
                if not isinstance(got, float):
                    raise Hint(f"return the accuracy as a Python float, not {_kind(got)}.")
                if got > 1:
                    raise Hint(f"you returned {got}. The accuracy is a share of all examples, at most 1.")
                if net.training is not mode:
                    raise Hint(f"the network was {'training' if mode else 'evaluating'} and is not any more: put its mode back.")
                if any(graphs):
                    raise Hint("a graph was built. Use torch.inference_mode().")
                if abs(got - want) > 1e-6:
                    raise Hint(f"you returned {got:.4f}, expected {want:.4f}. Is the network in evaluation mode (it has dropout), and "
                               "does the smaller last batch count by its examples?")
                if used.copies["D2H"] > 1:
                    raise Hint(f"{used.copies['D2H']} copies from the device. Count there, and fetch once.")


@exercise("training-3")
def resident_batches(answer):
    with some_devices() as devices:
        for device in [*devices[:1], torch.device("cpu")]:
            n, size = random.randrange(25, 32), 8
            X, y = torch.arange(n, device=device).view(n, 1).repeat(1, 3), torch.arange(n, device=device)
            passes = []
            with count_transfers() as used:
                for _ in range(2):
                    iterator = call(answer, X, y, size)
                    if iterator is None or not hasattr(iterator, "__iter__"):
                        raise Hint(f"your function returned {iterator!r}. It should yield batches.")
                    passes.append(call(list, iterator))
            for batches in passes:
                if any(not isinstance(pair, tuple) or len(pair) != 2 for pair in batches):
                    raise Hint("each batch should be a pair of tensors, X and y.")
                if any(t.device != X.device for pair in batches for t in pair):
                    raise Hint(f"the batches should be on {X.device}, like the data.")
                sizes = [len(b) for _, b in batches]
                if sizes != [size] * (n // size) + [n % size] * (n % size > 0):
                    raise Hint(f"for {n} examples in batches of {size} the sizes were {sizes}.")
                seen = torch.cat([b for _, b in batches]).tolist()
                if sorted(seen) != list(range(n)):
                    raise Hint("a pass should give every example exactly once.")
                if any(not torch.equal(a[:, 0].cpu(), b.cpu()) for a, b in batches):
                    raise Hint("X and y no longer belong together: use the same rows for both.")
            orders = [torch.cat([b for _, b in batches]).tolist() for batches in passes]
            if orders[0] == list(range(n)):
                raise Hint("the examples came in their old order. Shuffle.")
            if orders[0] == orders[1]:
                raise Hint("both passes came in the same order. Draw a new one for each pass.")
            if used.copies.total() or used.waits.total():
                raise Hint(f"{used.copies.total()} copies and {used.waits.total()} waits. Make the order on the device of X.")
