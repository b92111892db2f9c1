"""The ledger: copies and bytes by direction, waits by cause, operators per device."""

import pytest
import torch
import torch.nn.functional as F
import torch.utils._python_dispatch
from torch import nn


def test_copies_are_counted_by_direction_and_bytes(gpus):
    x = torch.ones(100)
    with gpus.record() as used:
        g = x.to("cuda")
        g.to("cuda:0")  # nothing to do
        g.cuda()
        g.cuda(1)
        g.cpu()
        x.cpu()
        g.to("cuda", torch.float64)
    assert dict(used.copies) == {"H2D": 1, "D2D": 1, "D2H": 1}
    assert dict(used.bytes) == {"H2D": 400, "D2D": 400, "D2H": 400}
    assert dict(used.syncs) == {"H2D": 1, "D2H": 1} and used.kernels == {"cuda:0": 1}


def test_a_copy_from_the_host_is_converted_before_it_is_sent(gpus):
    x = torch.ones(100)
    with gpus.record() as used:
        x.to("cuda", torch.float16)
        torch.tensor([1.0, 2.0], device="cuda")
    assert dict(used.bytes) == {"H2D": 208, "D2H": 0, "D2D": 0}


def test_waits_are_counted_by_cause(gpus):
    x, i = torch.arange(4.0, device="cuda"), torch.tensor([1], device="cuda")
    with gpus.record() as used:
        x.sum().item()
        float(x[0])
        if x.any():
            pass
        torch.cuda.synchronize()
        x.nonzero()
        x[x > 1]
        x[i]
        f"{x[0]:.1f}"
        torch.equal(x, x)
    assert dict(used.syncs) == {
        "item": 4, "synchronize": 1, "nonzero": 1, "index": 1, "equal": 1}


@pytest.mark.parametrize("x", [torch.ones(2, 3), torch.arange(6), torch.rand(3, 4), torch.zeros(3), torch.tensor(1.5),
                               torch.tensor([True, False]), torch.tensor([float("nan"), 1.0]), torch.rand(3).half()])
def test_printing_looks_at_the_numbers_on_the_device_one_by_one(gpus, x):
    """As PyTorch's own code does: what it asks of a device is what it asks of the host, and no more."""
    asked = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            asked.append(func)
            return func(*args, **(kwargs or {}))

    with Watch():
        text = torch._tensor_str._tensor_str(x, len("tensor("))
    g = x.cuda()
    with gpus.record() as used:
        assert text in repr(g)
    assert used.syncs["item"] == asked.count(torch.ops.aten._local_scalar_dense.default)
    assert used.copies["D2H"] >= 1


@pytest.mark.parametrize("non_blocking, pinned, dtype, crossed, waits", [
    (False, False, torch.float32, 400, {"H2D": 1}),
    (False, False, torch.float16, 200, {"H2D": 1}),  # a blocking copy is converted on the host
    (True, False, torch.float16, 400, {"staging": 1}),  # a non-blocking one on the device
    (True, True, torch.float16, 400, {}),
    (True, True, torch.float32, 400, {}),
    (False, True, torch.float32, 400, {"H2D": 1}),
])
def test_what_crosses_the_bus_and_who_waits(gpus, non_blocking, pinned, dtype, crossed, waits):
    x = torch.ones(100)
    x = x.pin_memory() if pinned else x
    with gpus.record() as used:
        x.to("cuda", dtype, non_blocking=non_blocking)
    assert used.bytes["H2D"] == crossed and dict(used.syncs) == waits


def test_a_non_blocking_copy_to_the_host_arrives_in_pinned_memory(gpus):
    g = torch.ones(100, device="cuda")
    with gpus.record() as used:
        assert g.to("cpu", non_blocking=True).is_pinned() and not g.cpu().is_pinned()
        torch.ones(100).copy_(g, non_blocking=True)  # into ordinary memory: CUDA waits
    assert dict(used.syncs) == {"D2H": 2}


def test_an_index_on_the_host_travels(gpus):
    g = torch.arange(10.0, device="cuda")
    i = torch.tensor([1, 2])
    with gpus.record() as used:
        g[i], g[i.cuda()]
        g[i] = 0.0
    assert used.copies["H2D"] == 3 and used.bytes["H2D"] == 48  # two as an index, one by .cuda()


def test_arithmetic_does_not_wait(gpus):
    x = torch.arange(4.0, device="cuda")
    with gpus.record() as used:
        y = (x * 2 + 1).sum() - x.mean()
    assert used.syncs.total() == 0 and used.kernels["cuda:0"] == 5 and y.is_cuda


def test_views_and_empty_tensors_compute_nothing(gpus):
    x = torch.ones(2, 3, device="cuda")
    with gpus.record() as used:
        x[0], x.T, x.view(6), x.detach(), x.split(1), torch.empty(3, device="cuda")
    assert used.kernels.total() == 0


def test_logging_on_the_device_waits_once(gpus):
    a = torch.randn(10, 10, device="cuda")
    with gpus.record() as each:
        for _ in range(50):
            (a @ a).norm().item()
    with gpus.record() as once:
        log = torch.empty(50, device="cuda")
        for i in range(50):
            log[i] = (a @ a).norm()
        log.cpu()
    assert each.syncs.total() == 50 and once.syncs.total() == 1 and once.bytes["D2H"] == 200


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_a_recurrent_network_is_one_operator(gpus, kind, mode):
    net, x = kind(3, 4, num_layers=2).cuda(), torch.ones(20, 2, 3, device="cuda")
    with mode(), gpus.record() as used:
        out = net(x)[0]
    assert used.kernels["cuda:0"] <= 3  # the network, and the zeros it begins with
    if mode is torch.enable_grad:
        with gpus.record() as used:
            out.backward(torch.ones_like(out))
        assert used.kernels["cuda:0"] <= 12  # the network, its inputs' and weights' bookkeeping


@pytest.mark.parametrize("trained", [False, True])
def test_a_module_is_moved_by_one_copy_for_each_parameter_gradient_and_buffer(gpus, trained):
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    if trained:
        net(torch.ones(4, 3)).sum().backward()
    expected = 4 + 3 + 4 * trained  # parameters, buffers, gradients
    with gpus.record() as there:
        net.to("cuda:0")
    with gpus.record() as across:
        net.to("cuda:1")
    with gpus.record() as back:
        net.to("cpu")
    assert (there.copies["H2D"], across.copies["D2D"], back.copies["D2H"]) == (expected,) * 3
    assert all(p.grad is None or p.grad.device == p.device for p in net.parameters())


def test_ledgers_nest_and_add_up(gpus):
    x = torch.ones(4)
    with gpus.record() as outer:
        x.cuda()
        with gpus.record() as inner:
            x.cuda()
        x.cuda()
    x.cuda()
    assert (outer.copies["H2D"], inner.copies["H2D"], gpus.ledger.copies["H2D"]) == (3, 1, 4)
    gpus.ledger.reset()
    assert gpus.ledger.copies["H2D"] == 0


def test_a_ledger_reads_well(gpus):
    with gpus.record() as used:
        (torch.ones(1000).cuda() * 2).sum().item()
    assert repr(used).splitlines() == [
        "H2D: 1 copies, 4,000 bytes", "D2H: 1 copies, 4 bytes", "D2D: 0 copies, 0 bytes",
        "waits of the host: 2 (H2D 1, item 1)", "operators on cuda:0: 2"]


def test_reading_lengths_on_a_device_is_a_copy_back(gpus):
    scores = torch.randn(12, 2, 5).log_softmax(-1).cuda()
    targets = torch.randint(1, 5, (2, 4)).cuda()
    sizes = torch.full((2,), 12), torch.full((2,), 4)
    with gpus.record() as host:
        F.ctc_loss(scores, targets, *sizes)
    with gpus.record() as device:
        F.ctc_loss(scores, targets, *(size.cuda() for size in sizes))
    assert host.copies["D2H"] == 0 and device.copies["D2H"] == 2
