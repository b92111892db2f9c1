"""The model of a CUDA graph: what is recorded, what is not, and that replaying it trains."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import d2l_gpu as d2l
from d2l_gpu import ladder


def test_a_replay_computes_anew_from_what_is_in_the_recorded_tensors():
    x = torch.ones(3)
    graph = d2l.GraphModel()
    with graph.capture():
        y = (x * 2).view(3, 1) + 1
    x.fill_(5)
    graph.replay()
    assert y.flatten().tolist() == [11, 11, 11]


def test_python_is_not_recorded():
    x, seen = torch.ones(2), []
    graph = d2l.GraphModel()
    with graph.capture():
        seen.append(1)
        x.add_(len(seen))
    for _ in range(3):
        graph.replay()
    assert seen == [1] and x.tolist() == [5, 5]


def test_a_tensor_of_the_same_name_is_not_the_recorded_one():
    x = torch.zeros(2)
    graph = d2l.GraphModel()
    with graph.capture():
        y = x + 1
    x = torch.ones(2)
    graph.replay()
    assert x.tolist() == [1, 1] and y.tolist() == [1, 1]


@pytest.mark.parametrize("optimizer", [lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), lambda p: torch.optim.Adam(p, fused=True)])
def test_replayed_steps_train_like_steps(optimizer):
    net = ladder.mlp("cpu")
    nets = [net, copy.deepcopy(net)]
    optimizers = [optimizer(net.parameters()) for net in nets]
    totals = torch.zeros(2)
    X, y = torch.zeros(8, 1, 28, 28), torch.zeros(8, dtype=torch.long)

    def step(k, X, y):
        optimizers[k].zero_grad()
        loss = F.cross_entropy(nets[k](X), y)
        loss.backward()
        optimizers[k].step()
        totals[k].add_(loss.detach())

    for k in (0, 1):
        for _ in range(2):
            step(k, X, y)
    graph = d2l.GraphModel()
    with graph.capture():
        step(0, X, y)
    step(1, X, y)
    for _ in range(4):
        X_new, y_new = torch.rand(8, 1, 28, 28), torch.randint(10, (8,))
        X.copy_(X_new)
        y.copy_(y_new)
        graph.replay()
        step(1, X_new, y_new)
    assert torch.allclose(totals[0], totals[1])
    assert all(torch.allclose(p, q, atol=1e-6) for p, q in zip(*(net.parameters() for net in nets)))


def test_launches_are_those_of_the_counted_training_step():
    net = ladder.mlp("cpu")
    optimizer = torch.optim.Adam(net.parameters(), fused=True)
    X, y = torch.zeros(64, 1, 28, 28), torch.zeros(64, dtype=torch.long)

    def step():
        optimizer.zero_grad()
        F.cross_entropy(net(X), y).backward()
        optimizer.step()

    step()
    graph = d2l.GraphModel()
    with graph.capture():
        step()
    assert graph.launches == 22  # limits.mlp_step


@pytest.mark.parametrize("fetch", [lambda x: x.sum().item(), lambda x: float(x.sum()), lambda x: bool(x.sum() > 0), lambda x: x[x > 0],
                                   lambda x: x.nonzero(), print, lambda x: f"{x}", lambda x: x.tolist(), lambda x: x.numpy(),
                                   lambda x: x.cpu(), lambda x: torch.equal(x, x)])
def test_what_fetches_a_value_is_refused_in_cudas_words(fetch):
    with pytest.raises(RuntimeError, match="operation not permitted when stream is capturing"), d2l.GraphModel().capture():
        fetch(torch.ones(3))


def test_dropout_draws_anew_in_each_replay():
    x, dropout = torch.ones(1000), nn.Dropout(0.5)
    graph = d2l.GraphModel()
    with graph.capture():
        y = dropout(x)
    first = y.clone()
    graph.replay()
    assert not torch.equal(first, y)


def test_a_graph_is_recorded_once_and_before_it_is_replayed():
    graph = d2l.GraphModel()
    with pytest.raises(RuntimeError, match="nothing was recorded"):
        graph.replay()
    with graph.capture():
        torch.ones(2) + 1
    with pytest.raises(RuntimeError, match="recorded already"), graph.capture():
        pass


def test_in_inference_mode_too_a_value_cannot_be_fetched_and_the_replay_is_right():
    X, graph = torch.ones(2, 3), d2l.GraphModel()
    net = nn.Linear(3, 3)
    with torch.inference_mode():
        with graph.capture():
            Y = net(X) * 2
        X.mul_(3)
        graph.replay()
        assert torch.allclose(Y, net(X) * 2)
        with pytest.raises(RuntimeError, match="when stream is capturing"), d2l.GraphModel().capture():
            X.sum().item()
