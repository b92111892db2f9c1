"""count_transfers: from the ledger on simulated GPUs, from PyTorch's operators on real ones, zero on a CPU."""

import pytest
import torch

import d2l_gpu as d2l
from d2l_gpu.transfers import Transfers, _Watch, _watched


@pytest.fixture
def two_gpus():
    if torch.cuda.device_count() >= 2:
        yield d2l.try_all_gpus()[:2]
        return
    with d2l.simulate_gpus(2, hide_real_gpus=True):
        yield [d2l.gpu(0), d2l.gpu(1)]


def test_copies_bytes_and_waits_are_counted_by_direction(two_gpus):
    first, second = two_gpus
    with d2l.count_transfers() as used:
        x = torch.ones(5, 2).to(first)
        y = x.to(second)
        x.to(first)
        y.sum().item()
        y.cpu()
    assert dict(used.copies) == {"H2D": 1, "D2D": 1, "D2H": 2}
    assert dict(used.bytes) == {"H2D": 40, "D2D": 40, "D2H": 44}
    assert dict(used.waits) == {"H2D": 1, "item": 1, "D2H": 1}


def test_only_what_happens_inside_the_block_counts(two_gpus):
    x = torch.ones(3).to(two_gpus[0])
    with d2l.count_transfers() as used:
        x + 1
    x.cpu()
    assert used.copies.total() == 0 and used.waits.total() == 0


def test_blocks_may_be_nested(two_gpus):
    x = torch.ones(3, device=two_gpus[0])
    with d2l.count_transfers() as outer:
        x.cpu()
        with d2l.count_transfers() as inner:
            x.cpu()
    assert (outer.copies["D2H"], inner.copies["D2H"]) == (2, 1)


def test_an_error_inside_the_block_is_the_readers_own(two_gpus):
    with pytest.raises(ZeroDivisionError):
        with d2l.count_transfers() as used:
            torch.ones(3).to(two_gpus[0])
            1 / 0
    assert used.copies["H2D"] == 1


def test_the_printed_form_is_the_one_of_the_chapters():
    used = Transfers()
    assert str(used) == "copies between devices: 0\nwaits: 0"
    used.copies["D2D"], used.bytes["D2D"] = 1, 16
    assert str(used) == "device to device: 1 copy, 16 bytes\nwaits: 0"
    used.copies["H2D"], used.bytes["H2D"], used.waits["H2D"], used.waits["item"] = 1000, 4_000_000, 1000, 2
    assert str(used) == ("host to device: 1,000 copies, 4,000,000 bytes\ndevice to device: 1 copy, 16 bytes\n"
                         "waits: 1,002 (H2D 1,000, item 2)")


def test_on_a_cpu_alone_everything_is_zero():
    with d2l.count_transfers() as used:
        x = torch.ones(3).to("cpu", copy=True)
        x.sum().item(), x[x > 0], str(x), x.nonzero()
    assert used.copies.total() == 0 and used.waits.total() == 0


# ------------------------------------------------- the watch for real devices, with `meta` in a device's place
@pytest.fixture
def watch():
    used = Transfers()
    with _watched(used), _Watch(used):
        yield used


def test_under_the_watch_torch_tensor_makes_its_copy_in_the_open(watch):
    assert torch._C._only_lift_cpu_tensors()


def test_the_watch_sees_what_printing_does(monkeypatch):
    used = Transfers()
    with _watched(used), _Watch(used):
        monkeypatch.setattr("d2l_gpu.transfers._on_host", lambda tensor: False)  # the CPU plays the device
        str(torch.ones(2, 3))
    assert used.copies["D2H"] > 6 and used.waits["item"] == used.copies["D2H"]


def test_the_watch_takes_its_hands_off_afterwards():
    before = torch.cuda.synchronize, torch._tensor_str._str_intern, torch._C._only_lift_cpu_tensors()
    with d2l.count_transfers():
        pass
    assert before == (torch.cuda.synchronize, torch._tensor_str._str_intern, torch._C._only_lift_cpu_tensors())


def test_the_watch_sees_an_index_on_the_host_travel(watch):
    torch.ones(4, 2, device="meta")[torch.tensor([0, 1])]
    assert (watch.copies["H2D"], watch.bytes["H2D"]) == (1, 16)


def test_without_pinned_memory_a_non_blocking_copy_is_held_up_by_staging(watch):
    torch.ones(4).to("meta", non_blocking=True)
    assert dict(watch.waits) == {"staging": 1}


def test_the_watch_sees_a_copy_to_a_device_and_its_wait(watch):
    torch.ones(5, 2).to("meta")
    assert (watch.copies["H2D"], watch.bytes["H2D"], watch.waits["H2D"]) == (1, 40, 1)


@pytest.mark.parametrize("non_blocking, crossed", [(False, 80), (True, 40)])
def test_the_watch_takes_the_dtype_that_crosses(watch, non_blocking, crossed):
    torch.ones(5, 2).to("meta", torch.float64, non_blocking=non_blocking)
    assert watch.bytes["H2D"] == crossed  # a blocking copy converts on the host, before the bus


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_the_watch_sees_copies_in_every_mode_of_autograd(watch, mode):
    with mode():
        torch.ones(5).to("meta")
    assert (watch.copies["H2D"], watch.waits["H2D"]) == (1, 1)


def test_the_watch_sees_copy_(watch):
    torch.ones(4, device="meta").copy_(torch.ones(4))
    assert (watch.copies["H2D"], watch.bytes["H2D"]) == (1, 16)


def test_the_watch_ignores_copies_on_one_device(watch):
    torch.ones(4).to(torch.float64)
    torch.ones(4, device="meta").to(torch.float64)
    assert watch.copies.total() == 0 and watch.waits.total() == 0


def test_the_watch_sees_operators_whose_size_the_host_must_know(watch):
    x = torch.ones(4, device="meta")
    for needs in (lambda: x.nonzero(), lambda: x[x > 0], lambda: torch.masked_select(x, x > 0)):
        with pytest.raises((NotImplementedError, RuntimeError)):  # meta has no values to count
            needs()
    x[torch.tensor([0, 1], device="meta")]
    assert watch.waits.total() == 0  # failed operators are not entered, integer indices need no wait


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a real GPU")
def test_ledger_and_watch_agree_on_a_real_gpu():
    x = torch.ones(4, device="cuda")
    with d2l.count_transfers() as used:
        x.cpu(), x.sum().item(), x[x > 0], x.nonzero(), torch.cuda.synchronize()
        torch.ones(3).pin_memory().to("cuda", non_blocking=True)
    assert dict(used.copies) == {"H2D": 1, "D2H": 2, "D2D": 0}
    assert used.waits["synchronize"] == 1 and used.waits["D2H"] == 1 and used.waits["item"] == 1
