"""The roofline: hand-worked cases, and the counted training step against PyTorch's own operators."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

import d2l_gpu as d2l
from d2l_gpu import results
from d2l_gpu.limits import MACHINES, addition, least_time, mlp_pass, mlp_step, pass_bound, product

DEVICE = dict(peak=10e12, bandwidth=500e9)  # ridge: 20 FLOP/byte


def test_left_of_the_ridge_memory_sets_the_time():
    found = d2l.roofline(flops=1e9, bytes=1e9, **DEVICE)
    assert found.bound == "memory" and found.intensity == 1
    assert found.seconds == pytest.approx(2e-3) and found.rate == pytest.approx(500e9)


def test_right_of_the_ridge_arithmetic_sets_the_time():
    found = d2l.roofline(flops=100e9, bytes=1e9, **DEVICE)
    assert found.bound == "compute" and found.seconds == pytest.approx(10e-3) and found.rate == pytest.approx(10e12)


def test_launches_and_the_bus_are_limits_of_their_own():
    assert d2l.roofline(1e6, 1e6, **DEVICE, overhead=1e-5)[:2] == (1e-5, "overhead")
    found = d2l.roofline(1e9, 1e9, **DEVICE, copied=1e9, bus=10e9)
    assert found.bound == "bus" and found.seconds == pytest.approx(0.1)
    assert found.parts == pytest.approx({"compute": 1e-4, "memory": 2e-3, "overhead": 0, "bus": 0.1})


def test_more_work_never_takes_less_time():
    for machine in MACHINES.values():
        for kind in (addition, product, mlp_step, lambda n: product(n, copies=True)):
            seconds = [least_time(kind(n), machine).seconds for n in (16, 64, 256, 1024, 4096)]
            assert seconds == sorted(seconds)


def test_what_the_operations_ask_for():
    assert product(1000)[:3] == (2e9, 12e6, 0) and addition(1000)[:3] == (1e6, 12e6, 0)
    assert product(1000, copies=True).copied == 12e6
    assert d2l.roofline(*product(6000)[:2], **DEVICE).intensity == pytest.approx(1000)  # n / 6


class Count(TorchDispatchMode):
    """Operators that compute something, and the bytes of the tensors that go in and come out."""

    def __init__(self):
        super().__init__()
        self.operators = self.bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if not (func.is_view or "profiler" in func.name() or func.name() in ("aten::detach", "aten::empty")):
            self.operators += 1
            self.bytes += sum(t.nbytes for t in tree_leaves((args, kwargs, out)) if isinstance(t, torch.Tensor))
        return out


@pytest.mark.parametrize("batch", [64, 256])
def test_the_mlp_step_asks_for_what_pytorch_runs(batch):
    from torch import nn
    net = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    adam, images, labels = torch.optim.Adam(net.parameters(), fused=True), torch.rand(batch, 784), torch.zeros(batch).long()

    def step():
        adam.zero_grad()
        nn.functional.cross_entropy(net(images), labels).backward()
        adam.step()
    step()
    with FlopCounterMode(display=False) as products:
        step()
    with Count() as count:
        step()
    parameters = sum(p.numel() for p in net.parameters())
    work = mlp_step(batch)
    assert work.flops == products.get_total_flops() + 12 * parameters
    assert work.launches == pytest.approx(count.operators, abs=2)  # other releases differ by an operator
    written_in_place = 3 * 4 * parameters  # Adam's output: an operator's arguments count once above
    assert work.bytes == pytest.approx(count.bytes + written_in_place, rel=0.05)


@pytest.mark.parametrize("wrong, says", [(dict(flops=-1), "flops must be 0 or more, not -1"),
                                         (dict(peak=0), "peak must be above 0, not 0"),
                                         (dict(bus=float("nan")), "bus must be above 0")])
def test_what_cannot_be_is_refused_by_name(wrong, says):
    with pytest.raises(ValueError, match=says):
        d2l.roofline(**dict(flops=1, bytes=1, **DEVICE) | wrong)


# ------------------------------------------------------------------------------------------------ the ladder's end
def test_a_pass_is_its_steps_in_a_row_and_each_image_once():
    work = mlp_pass(images=640, batch=64)
    assert work.flops == 10 * mlp_step(64).flops and work.bytes == 640 * (4 * 784 + 8) and work.launches == 80
    assert mlp_pass(images=641, batch=64).launches == 88


def record(machine, device, *rows):
    ladder = results.entry("ladder", "pictures", device, [9.0], images=60_000)
    return {"machine": machine, "measurements": [ladder, *rows]}


def measured(device, peak, bandwidth):
    return [results.entry("products", "product", device, [2 * 1000**3 / peak], size=1000, dtype="float32"),
            results.entry("products", "product", device, [1e-9], size=1000, dtype="float16"),
            results.entry("operations", "add many numbers", device, [12 * 1e6 / bandwidth], numbers=1e6)]


def test_the_bound_comes_from_what_the_machine_itself_measured():
    work = mlp_pass()
    assert pass_bound(record("A CPU", "cpu", *measured("cpu", 1e11, 1e10))) == pytest.approx(work.flops / 1e11)
    slow_memory = pass_bound(record("A CPU", "cpu", *measured("cpu", 1e12, 1e9)))
    assert slow_memory == pytest.approx(work.bytes / 1e9)
    both = record("A GPU", "cuda:0", *measured("cuda:0", 5e13, 1e12), *measured("cpu", 1e15, 1e15))
    assert pass_bound(both) == pytest.approx(3e-6 * work.launches)
    assert pass_bound(both, latency=0) == pytest.approx(work.flops / 5e13)


def test_the_bound_of_a_published_record_comes_from_published_peaks():
    assert pass_bound(record("NVIDIA GeForce RTX 4090", "cuda:0")) == pytest.approx(3e-6 * mlp_pass().launches)
    assert pass_bound(record("NVIDIA GeForce RTX 4090", "cuda:0"), latency=0) == pytest.approx(mlp_pass().flops / 82.6e12)
    assert pass_bound(record("an unknown card", "cuda:0")) is None
    assert pass_bound({"machine": "T4", "measurements": []}) is None
