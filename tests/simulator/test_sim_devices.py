"""Devices, constructors, values, memory, streams, random numbers, threads and processes."""

import gc
import io
import os
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

from d2l_gpu.simulator import SimulatedTensor, simulate_gpus

CPU = torch.device("cpu")
CUDA0, CUDA1 = torch.device("cuda:0"), torch.device("cuda:1")


# -------------------------------------------------------------------------------- device tags
def test_a_tensor_says_where_it_is(gpus):
    x = torch.ones(2, 3, device="cuda")
    assert repr(x) == "tensor([[1., 1., 1.],\n        [1., 1., 1.]], device='cuda:0')"
    assert x.is_cuda and not x.is_cpu and not x.is_meta and x.get_device() == 0
    assert x.type() == "torch.cuda.FloatTensor" and isinstance(x, torch.Tensor)


def test_moving_to_where_it_is_gives_the_same_tensor(gpus):
    x = torch.ones(2, device="cuda")
    z = x.cuda(1)
    assert x.cuda() is x.cuda(0) is x.to("cuda") is x.to(CUDA0) is x and z.cuda(1) is z is not x
    assert z.get_device() == 1 and x.to("cuda", copy=True) is not x


def test_try_gpu_finds_the_devices(gpus):
    def try_gpu(i=0):
        return torch.device(f"cuda:{i}") if torch.cuda.device_count() >= i + 1 else CPU

    assert (try_gpu(), try_gpu(1), try_gpu(10)) == (CUDA0, CUDA1, CPU)


def test_properties(gpus):
    assert torch.cuda.get_device_name(0) == torch.cuda.get_device_properties(1).name
    assert torch.cuda.get_device_name() == "Simulated GPU"
    assert torch.cuda.get_device_properties("cuda:1").total_memory == 16 * 2**30
    assert torch.cuda.get_device_capability() == (8, 0) and torch.cuda.is_bf16_supported()
    assert torch.cuda.can_device_access_peer(0, 1)


def test_accelerator(gpus):
    assert torch.accelerator.is_available() and torch.accelerator.device_count() == 2
    assert torch.accelerator.current_accelerator() == torch.device("cuda")
    assert torch.accelerator.current_device_index() == 0
    with gpus.record() as used:
        torch.accelerator.synchronize()
        torch.accelerator.synchronize(1)
    assert used.syncs == {"synchronize": 2}


@pytest.mark.parametrize("call", [
    lambda: torch.ones(1, device="cuda:2"), lambda: torch.ones(1).cuda(5),
    lambda: torch.cuda.set_device(2), lambda: nn.Linear(1, 1).to("cuda:2"),
    lambda: torch.ones(1, device="cuda").to("cuda:7"), lambda: torch.ones(1).to(9),
    lambda: torch.Generator("cuda:2"), lambda: torch.zeros(1, device=3),
])
def test_an_invalid_ordinal_is_cuda_s_error(gpus, call):
    with pytest.raises(torch.AcceleratorError) as error:
        call()
    assert str(error.value).startswith(
        "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough "
        "GPUs?\nCUDA kernel errors might be asynchronously reported at some other API call")
    with pytest.raises(AssertionError, match="Invalid device id"):
        torch.cuda.get_device_properties(2)


# -------------------------------------------------------------------------------- constructors
MAKERS = {
    "ones": lambda d: torch.ones(2, device=d), "rand": lambda d: torch.rand(2, device=d),
    "tensor": lambda d: torch.tensor([1, 2], device=d),
    "as_tensor": lambda d: torch.as_tensor(np.ones(2), device=d),
    "asarray": lambda d: torch.asarray([1.0], device=d),
    "to": lambda d: torch.ones(2).to(d), "to device=": lambda d: torch.ones(2).to(device=d),
    "to dtype": lambda d: torch.ones(2).to(d, torch.float16),
    "arange": lambda d: torch.arange(3, device=d), "eye": lambda d: torch.eye(2, device=d),
    "full": lambda d: torch.full((2,), 1.0, device=d),
    "randperm": lambda d: torch.randperm(3, device=d),
    "linspace": lambda d: torch.linspace(0, 1, 3, device=d),
    "zeros_like": lambda d: torch.zeros_like(torch.ones(2), device=d),
    "new_zeros": lambda d: torch.ones(2).new_zeros(2, device=d),
    "new_tensor": lambda d: torch.ones(2).new_tensor([1.0], device=d),
    "randint": lambda d: torch.randint(3, (2,), device=d),
    "normal": lambda d: torch.normal(0.0, 1.0, (2,), device=d),
    "empty": lambda d: torch.empty(2, device=d),
    "tril_indices": lambda d: torch.tril_indices(2, 2, device=d),
    "Linear": lambda d: nn.Linear(2, 2, device=d).weight,
    "Module.to": lambda d: nn.Linear(2, 2).to(d).weight,
    "fftfreq": lambda d: torch.fft.fftfreq(4, device=d),
}
INDEXED = ("cuda", "cuda:1", torch.device("cuda"), torch.device("cuda", 1))


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("device", INDEXED, ids=repr)
def test_every_constructor_reads_every_form_of_device(gpus, make, device):
    assert make(device).device == torch.device("cuda", torch.device(device).index or 0)
    torch.cuda.set_device(1)
    assert make("cuda").device == CUDA1


@pytest.mark.parametrize("name", ["ones", "tensor", "to", "to device=", "arange", "Module.to",
                                  "new_tensor", "Linear", "fftfreq"])
def test_a_number_is_an_index_in_every_build(gpus, name):
    assert MAKERS[name](1).device == CUDA1


VALUES = {
    "zeros_like": lambda t, d: torch.zeros_like(t, device=d),
    "ones_like": lambda t, d: torch.ones_like(t, device=d),
    "full_like": lambda t, d: torch.full_like(t, 3, device=d),
    "new_zeros": lambda t, d: t.new_zeros(2, device=d),
    "new_ones": lambda t, d: t.new_ones(2, device=d),
    "new_full": lambda t, d: t.new_full((2,), 3, device=d),
    "new_tensor": lambda t, d: t.new_tensor([1, 2], device=d),
    "to": lambda t, d: t.to(d), "as_tensor": lambda t, d: torch.as_tensor(t, device=d),
    "tensor": lambda t, d: torch.tensor([1.0, 2.0], device=d),
    "full": lambda t, d: torch.full((2,), 7, device=d), "eye": lambda t, d: torch.eye(2, device=d),
    "arange": lambda t, d: torch.arange(2, 9, 3, device=d),
    "linspace": lambda t, d: torch.linspace(0, 1, 5, device=d),
    "logspace": lambda t, d: torch.logspace(0, 1, 3, device=d),
    "scalar_tensor": lambda t, d: torch.scalar_tensor(7, device=d),
    "hann_window": lambda t, d: torch.hann_window(4, device=d),
    "tril_indices": lambda t, d: torch.tril_indices(3, 3, device=d),
    "efficient zeros": lambda t, d: torch._efficientzerotensor(2, device=d),
}


@pytest.mark.parametrize("make", VALUES.values(), ids=VALUES)
def test_constructed_values_are_the_cpu_s(gpus, make):
    source = torch.tensor([4.0, 5.0])
    expected = make(source, "cpu")
    for tensor in (source, source.cuda(), source.cuda(1)):
        for device in ("cuda", "cuda:1"):
            assert torch.equal(make(tensor, device).cpu(), expected)


def test_unwritten_memory_is_not_plausible(gpus):
    assert torch.empty(3, device="cuda").isnan().all()
    assert torch.ones(3, device="cuda").new_empty(2).isnan().all()
    x = torch.empty(4, device="cuda")
    x[:2].fill_(1)
    assert x.isnan().tolist() == [False, False, True, True]
    assert torch.empty(2, device="cuda").detach().cpu().isnan().all()
    assert "nan" in repr(torch.empty(2, device="cuda"))


def test_a_copy_from_the_host_writes_its_destination_once(gpus, monkeypatch):
    filled = []
    fill = torch.Tensor.fill_
    monkeypatch.setattr(torch.Tensor, "fill_", lambda t, v: filled.append(t) or fill(t, v))
    assert torch.ones(3).to("cuda").sum().item() == 3
    assert nn.Linear(2, 2).cuda()(torch.ones(1, 2).cuda()).isfinite().all()
    assert filled == []
    torch.empty(3, device="cuda").sum()
    assert len(filled) == 1


def test_lists_of_device_scalars_become_tensors(gpus):
    numbers = [torch.tensor(1.0, device="cuda"), 2.0]
    assert torch.tensor(numbers).tolist() == torch.tensor(numbers, device="cuda").tolist() == [1, 2]


# ----------------------------------------------------------------------- the idioms of old days
def test_new_makes_a_device_tensor(gpus):
    x = torch.ones(2, device="cuda:1")
    assert x.new(3).zero_().device == CUDA1 and x.new(3).zero_().tolist() == [0, 0, 0]
    assert x.new([4, 5]).tolist() == [4, 5] and x.new([4, 5]).dtype == torch.float32
    assert x.new(2, 3).shape == x.new(torch.Size([2, 3])).shape == (2, 3) and x.new(2).isnan().all()
    assert x.new().shape == (0,) and x.new().device == CUDA1
    assert x.half().new(2).dtype == torch.float16 and x.new(x).tolist() == [1, 1]
    assert isinstance(x.new(1), SimulatedTensor) and not torch.ones(1).new(2).is_cuda


@pytest.mark.parametrize("kind, device, dtype", [
    (torch.FloatTensor, CPU, torch.float32), ("torch.FloatTensor", CPU, torch.float32),
    (torch.LongTensor, CPU, torch.int64), ("torch.DoubleTensor", CPU, torch.float64),
    ("torch.cuda.HalfTensor", CUDA1, torch.float16), (torch.float64, CUDA1, torch.float64),
    ("torch.cuda.FloatTensor", CUDA1, torch.float32),
])
def test_type_moves_as_its_argument_says(gpus, kind, device, dtype):
    x = torch.ones(2, device="cuda:1").type(kind)
    assert (x.device, x.dtype) == (device, dtype)


def test_type_moves_a_host_tensor_and_names_a_wrong_type(gpus, message):
    x = torch.ones(2)
    assert x.type("torch.cuda.FloatTensor").is_cuda and x.type(torch.cuda.HalfTensor).is_cuda
    assert x.type(torch.float64).device == CPU and x.type("torch.DoubleTensor").device == CPU
    assert x.type() == "torch.FloatTensor" and x.type_as(x.cuda(1)).device == CUDA1
    for tensor in (x, x.cuda()):
        assert "invalid type: 'torch.Nonsense'" in message(
            lambda: tensor.type("torch.Nonsense"), ValueError)


def test_the_types_of_torch_cuda_construct_and_recognize(gpus):
    x = torch.cuda.FloatTensor([1, 2])
    assert x.tolist() == [1, 2] and x.is_cuda and x.dtype == torch.float32
    assert torch.cuda.LongTensor(2, 3).shape == (2, 3) and torch.cuda.LongTensor(1).is_cuda
    assert isinstance(x, torch.cuda.FloatTensor) and not isinstance(x, torch.cuda.HalfTensor)
    assert not isinstance(x.cpu(), torch.cuda.FloatTensor) and isinstance(x.cpu(), torch.FloatTensor)


# ------------------------------------------------------------------- current and default device
def test_the_current_device_belongs_to_the_thread(gpus):
    with torch.cuda.device(1):
        assert torch.cuda.current_device() == 1 == torch.ones(1, device="cuda").get_device()
        assert torch.ones(1).cuda().get_device() == 1 == torch.tensor(1, device="cuda").get_device()
    assert torch.cuda.current_device() == 0
    torch.cuda.set_device(1)
    meet, seen = threading.Barrier(2), {}

    def work(index):
        first = torch.ones(1, device="cuda").get_device()  # a new thread begins with device 0
        torch.cuda.set_device(index)
        meet.wait()  # both have set theirs
        seen[index] = first, torch.ones(1, device="cuda").get_device(), torch.cuda.current_device()

    threads = [threading.Thread(target=work, args=(index,)) for index in (0, 1)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert seen == {0: (0, 0, 0), 1: (0, 1, 1)} and torch.cuda.current_device() == 1


def test_default_device(gpus, message):
    torch.set_default_device("cuda")
    try:
        assert torch.ones(2).is_cuda and torch.tensor([1]).is_cuda and nn.Linear(2, 2).weight.is_cuda
        assert torch.get_default_device() == CUDA0
        assert "Expected a 'cuda' device type for generator but found 'cpu'" in message(
            lambda: torch.randperm(3, generator=torch.Generator()))
    finally:
        torch.set_default_device(None)
    with torch.device("cuda:1"):
        assert torch.zeros(2).get_device() == 1 and torch.tensor(1.0).get_device() == 1
    assert not torch.ones(2).is_cuda


def test_threads_share_the_devices(gpus):
    results = []

    def work():
        for _ in range(50):
            x = torch.ones(3, device="cuda:1")
            results.append(x + x.new_ones(3) + torch.tensor([1.0]).cuda(1))

    with gpus.record() as used:
        threads = [threading.Thread(target=work) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
    assert len(results) == 200 and all(t.tolist() == [3, 3, 3] for t in results)
    assert used.copies["H2D"] == 200
    results.clear()
    gc.collect()
    assert torch.cuda.memory_allocated(1) == 0


# -------------------------------------------------------------------------------------- values
COMPUTATIONS = {
    "matmul": lambda t: t @ t.T, "softmax": lambda t: t.softmax(-1), "sort": lambda t: t.sort(1)[0],
    "slices": lambda t: t[1:, ::2], "transpose": lambda t: t.t().contiguous(),
    "std": lambda t: t.std(0), "mask": lambda t: t[t > 0],
    "stack": lambda t: torch.stack([t, t]).sum(), "cat": lambda t: torch.cat([t, t], 1),
    "expand": lambda t: t.view(2, 10).unsqueeze(0).expand(3, 2, 10), "unique": lambda t: t.unique(),
    "one_hot": lambda t: F.one_hot(t.argmax(1), 5), "half": lambda t: t.half(),
    "cumsum": lambda t: t.cumsum(0), "einsum": lambda t: torch.einsum("ij,kj->ik", t, t),
    "conj": lambda t: torch.view_as_real(torch.complex(t, t).conj() * torch.complex(t, 2 * t)),
    "imag": lambda t: torch.complex(t, t).conj().imag,
    "zero tensor": lambda t: torch._efficientzerotensor(4, 5, device=t.device) * t,
}


@pytest.mark.parametrize("compute", COMPUTATIONS.values(), ids=COMPUTATIONS)
def test_computed_values_are_the_cpu_s(gpus, compute):
    x = torch.randn(4, 5)
    on_device = compute(x.cuda())
    assert on_device.is_cuda and torch.equal(on_device.cpu(), compute(x))


@pytest.mark.parametrize("lazy", [
    lambda: torch.tensor([1 + 2j]).conj(), lambda: torch.tensor([1 + 2j]).conj().imag,
    lambda: torch._efficientzerotensor(3), lambda: torch._neg_view(torch.ones(2)),
], ids=["conj", "neg", "zero", "neg_view"])
def test_lazy_host_tensors_arrive_with_their_numbers(gpus, lazy):
    expected = lazy().resolve_conj().resolve_neg().clone()
    moved = lazy().to("cuda")
    assert torch.equal(moved.cpu(), expected) and torch.equal((moved * 2).cpu(), expected * 2)
    target = torch.zeros_like(expected, device="cuda")
    assert torch.equal(target.copy_(lazy()).cpu(), expected)


@pytest.mark.parametrize("view", [
    lambda x: x[:1], lambda x: x[0], lambda x: x.view(6), lambda x: x.chunk(2)[0],
    lambda x: x.permute(1, 0), lambda x: x[None].squeeze(0), lambda x: x.expand(2, 2, 3),
    lambda x: x.T, lambda x: x.reshape(3, 2), lambda x: x.split(1)[1], lambda x: x.unbind()[1],
    lambda x: x.detach(), lambda x: x.diagonal(), lambda x: x.as_strided((2,), (1,)),
    lambda x: x.unfold(1, 2, 1), lambda x: torch.outer(x[0], x[0]), lambda x: x.view_as(x),
])
@pytest.mark.parametrize("born", [False, True], ids=["ordinary", "inference"])
def test_views_work_in_inference_mode(gpus, view, born):
    with torch.inference_mode(born):
        x = torch.arange(6.0, device="cuda").view(2, 3)
    with torch.inference_mode():
        inside = view(x)
        assert inside.is_cuda and torch.equal(inside.cpu(), view(x.cpu()))
    with torch.no_grad():  # inference tensors have no autograd either
        assert torch.equal(view(x).cpu(), view(x.cpu()))


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_composite_operators_follow_the_same_rules_in_every_mode(gpus, message, mode):
    net, x = nn.Linear(3, 2).cuda(), torch.ones(2, 3, device="cuda")
    with mode():
        assert "mat1 is on cpu" in message(lambda: net(torch.ones(1, 3)))
        assert "wrapper_CUDA_addmm" in message(lambda: net(torch.ones(1, 3)))
        assert torch.multiply(x, torch.tensor(2.0)).is_cuda
        assert torch.true_divide(torch.tensor(2.0), x).is_cuda
        with gpus.record() as used:
            assert bool(x.sum() > 1) and x.sum().item() == 6 and int(x[0, 0]) == 1
            torch.is_nonzero(x.sum())
        assert used.syncs == {"item": 4}
        with gpus.record() as used:
            net(x)
            F.cross_entropy(x, torch.tensor([0, 1], device="cuda"))
        assert used.kernels == {"cuda:0": 3}  # addmm, log_softmax, nll_loss
        assert x.to("cpu").device == CPU and torch.ones(1).to("cuda").is_cuda
        assert F.scaled_dot_product_attention(x[None], x[None], x[None]).is_cuda


def test_inference_tensors_keep_the_rules_outside_inference_mode(gpus, message):
    with torch.inference_mode():
        x, weight = torch.ones(2, 3, device="cuda"), torch.ones(4, 3, device="cuda")
    with torch.no_grad():
        assert F.linear(x, weight).is_cuda
        assert "wrapper_CUDA_" in message(lambda: F.linear(torch.ones(1, 3), weight))
        with gpus.record() as used:
            assert bool(x.sum() > 1)
        assert used.syncs == {"item": 1}


# ------------------------------------------------------------------ functions that torch knows
def test_forward_mode_and_functional_transforms_work_on_host_and_device(gpus):
    for device in ("cpu", "cuda"):
        x = torch.tensor([0.5, 1.0], device=device)
        value, tangent = torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),))
        assert torch.allclose(tangent, x.cos()) and tangent.device == x.device
        assert torch.func.jacfwd(torch.sin)(x).shape == (2, 2)
        assert torch.allclose(torch.func.grad(lambda t: t.sin().sum())(x), x.cos())
        assert torch.func.vmap(lambda t: t * torch.zeros(1, device=device).sum() + t)(x).shape == (2,)
        assert torch.func.hessian(lambda t: (t**3).sum())(x).shape == (2, 2)


def test_script_and_trace_of_host_functions_work(gpus):
    def scripted(x: torch.Tensor) -> torch.Tensor:
        return x + torch.zeros(2) + torch.arange(2) + torch.full((2,), 1.0) + torch.rand(2) * 0

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        assert torch.jit.script(scripted)(torch.ones(2)).tolist() == [2, 3]
        assert torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2))(torch.ones(1, 2)).shape == (1, 2)
    graph = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    assert graph(torch.ones(1, 2)).shape == (1, 2)


# ------------------------------------------------------------------------------------- memory
def test_memory_is_counted_in_blocks_of_512_and_cached(gpus):
    assert torch.cuda.memory_allocated() == 0
    t = torch.randn(1000, 1000, device="cuda")
    assert torch.cuda.memory_allocated() == torch.cuda.max_memory_allocated() == 4_000_256
    view = t[10:]
    del t
    assert torch.cuda.memory_allocated() == 4_000_256
    del view
    assert torch.cuda.memory_allocated() == 0 and torch.cuda.memory_reserved() == 4_000_256
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.memory_reserved() == torch.cuda.max_memory_allocated() == 0
    summary = torch.cuda.memory_summary("cuda:1", abbreviated=True)
    assert "PyTorch CUDA memory summary, device ID 1" in summary and torch.cuda.memory_summary()
    assert torch.cuda.mem_get_info()[1] == 16 * 2**30


def peak(step):
    gc.collect()
    torch.cuda.reset_peak_memory_stats()
    base = torch.cuda.memory_allocated()
    step()
    return torch.cuda.max_memory_allocated() - base


def amp_step(net, x):
    with torch.autocast("cuda", torch.float16):
        loss = net(x).float().sum()
    loss.backward()


def test_memory_of_training_shows_the_activations(gpus):
    net = nn.Sequential(*[nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(6)]).cuda()
    x = torch.randn(512, 256, device="cuda")

    def micro():
        for part in x.split(128):
            net(part).sum().backward()

    full = peak(lambda: net(x).sum().backward())
    net.zero_grad()
    with torch.no_grad():
        assert peak(lambda: net(x)) < full / 3  # no activations are kept
    assert peak(micro) < 0.6 * full  # gradient accumulation
    net.zero_grad()
    assert peak(lambda: amp_step(net, x)) < full
    assert full > 2 * 6 * x.nbytes  # each block keeps its input and the input of GELU


def test_memory_of_a_recurrent_network_shows_its_activations(gpus):
    net, x = nn.LSTM(16, 32).cuda(), torch.randn(50, 8, 16, device="cuda")
    with torch.no_grad():
        without = peak(lambda: net(x))
    assert peak(lambda: net(x)[0].sum().backward()) > 3 * without
    net.zero_grad()
    gc.collect()
    left = torch.cuda.memory_allocated()
    net(x)[0].sum().backward()
    net.zero_grad()
    gc.collect()
    assert torch.cuda.memory_allocated() == left


def test_a_process_can_be_held_to_a_part_of_the_memory(gpus, message):
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(2**20 / total)
    try:
        assert torch.cuda.get_per_process_memory_fraction() == 2**20 / total
        kept = torch.ones(2**17, device="cuda")  # half of it
        text = message(lambda: torch.ones(2**18, device="cuda"), torch.OutOfMemoryError)
        assert "1024.00 KiB allowed; Of the allocated memory" in text
        torch.ones(2**18, device="cuda:1")  # the other device has its own
        del kept
        torch.ones(2**18, device="cuda")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    torch.ones(2**19, device="cuda")
    assert "Allowed range" in message(lambda: torch.cuda.set_per_process_memory_fraction(1.5), ValueError)
    assert "float" in message(lambda: torch.cuda.set_per_process_memory_fraction(1), TypeError)


def test_garbage_collected_in_the_middle_of_counting_is_not_lost(gpus):
    gpu = torch.ones(1, device="cuda")._gpu
    count, dying = type(gpu)._count, [torch.ones(100, device="cuda") for _ in range(3)]

    def interrupted(self, name, amount):
        if dying:
            dying.pop()  # the collector may strike at any moment
        count(self, name, amount)

    gpu._count = interrupted.__get__(gpu)
    x = torch.ones(1000, device="cuda")
    del x
    del gpu._count
    assert torch.cuda.memory_allocated() == 0


def test_out_of_memory(message):
    with simulate_gpus(1, memory=2**20):
        x = torch.ones(2**17, device="cuda")
        text = message(lambda: torch.ones(2**19, device="cuda"), torch.OutOfMemoryError)
        assert text.startswith(
            "CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 1024.00 "
            "KiB of which 512.00 KiB is free. Of the allocated memory 512.00 KiB is allocated by "
            "PyTorch, and 0 bytes is reserved by PyTorch but unallocated.")
        assert torch.cuda.memory_allocated() == x.nbytes
        assert torch.cuda.memory_stats()["num_ooms"] == 1
        for size in (2**18, 2**40):  # 4 TiB: refused before the host tries to make it
            message(lambda: torch.zeros(size, device="cuda"), torch.OutOfMemoryError)
        for size in (2**18, 2**20):
            message(lambda: torch.ones(size).cuda(), torch.OutOfMemoryError)
            message(lambda: torch.ones(2, device="cuda").expand(size, 2).clone(), torch.OutOfMemoryError)
        del x
        assert torch.ones(2**17 + 1, device="cuda").sum() == 2**17 + 1
        assert isinstance(torch.cuda.OutOfMemoryError("x"), RuntimeError)


def test_the_storage_tells_its_size_and_identity(gpus, message):
    x = torch.ones(2, device="cuda")
    assert x.untyped_storage().nbytes() == len(x.untyped_storage()) == 8
    assert x.storage().size() == 2 and x[1:].untyped_storage().nbytes() == 8
    assert x.untyped_storage().device == CUDA0 and x.untyped_storage().is_cuda
    assert x.untyped_storage().data_ptr() == x[1:].untyped_storage().data_ptr() == x.data_ptr()
    assert x.untyped_storage() == x.view(2, 1).untyped_storage() != x.clone().untyped_storage()
    for access in (lambda s: s[0], lambda s: s.resize_(4), lambda s: s.copy_(s), list,
                   lambda s: s.tolist(), lambda s: s.cpu()):
        assert "storage of a tensor on a device" in message(
            lambda: access(x.untyped_storage()), NotImplementedError)


def test_sharing_memory_is_a_no_op_as_for_cuda(gpus):
    net = nn.Linear(2, 2).cuda()
    assert net.share_memory() is net and net.weight.is_cuda and net.weight.is_shared()
    x = torch.ones(2, device="cuda")
    assert x.share_memory_() is x and x.untyped_storage().is_shared()


# ---------------------------------------------------------- streams, events, random numbers
def test_streams_and_events(gpus, message):
    s1, s2 = torch.cuda.Stream(), torch.cuda.Stream(device="cuda:1")
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    with torch.cuda.stream(s1):
        b = torch.randn(20, 20, device="cuda") @ torch.randn(20, 20, device="cuda")
        assert torch.cuda.current_stream() is s1
    with torch.cuda.stream(s2):
        assert torch.cuda.current_device() == 1
    assert torch.cuda.current_device() == 0
    assert torch.cuda.current_stream() is torch.cuda.default_stream()
    torch.cuda.current_stream().wait_stream(s1)
    b.record_stream(torch.cuda.current_stream())
    end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) > 0 and end.query()
    assert message(lambda: torch.cuda.Event().elapsed_time(end), ValueError) == (
        "Both events must be created with argument 'enable_timing=True'.")
    assert message(lambda: torch.cuda.Event(enable_timing=True).elapsed_time(end), ValueError) == (
        "Both events must be recorded before calculating elapsed time.")


def test_random_numbers_have_a_generator_per_device(gpus):
    torch.manual_seed(0)
    a, host = torch.rand(3, device="cuda"), torch.rand(3)
    torch.manual_seed(0)
    assert torch.equal(torch.rand(3), host)  # drawing on the device leaves the host's alone
    assert torch.equal(torch.rand(3, device="cuda"), a)
    state = torch.cuda.get_rng_state()
    b = torch.randn(3, device="cuda")
    torch.cuda.set_rng_state(state)
    torch.rand(3, device="cuda:1")
    assert torch.equal(torch.randn(3, device="cuda"), b)
    torch.cuda.manual_seed(5)
    c = F.dropout(torch.ones(100, device="cuda"))
    torch.cuda.manual_seed(5)
    assert torch.equal(F.dropout(torch.ones(100, device="cuda")), c) and c.is_cuda


def test_generators_belong_to_a_device(gpus, message):
    g = torch.Generator(device="cuda:1").manual_seed(3)
    assert g.device == CUDA1 and isinstance(g, torch.Generator)
    assert isinstance(torch.default_generator, torch.Generator)
    x = torch.rand(2, device="cuda:1", generator=g)
    again = torch.Generator("cuda:1").manual_seed(3)
    assert torch.equal(x, torch.rand(2, device="cuda:1", generator=again))
    wrong = "Expected a 'cuda' device type for generator but found 'cpu'"
    assert message(lambda: torch.rand(2, device="cuda", generator=torch.Generator())) == wrong
    assert message(lambda: x.normal_(generator=torch.Generator())) == wrong
    assert message(lambda: torch.rand(2, generator=g)) == (
        "Expected a 'cpu' device type for generator but found 'cuda'")
    assert torch.rand(2, generator=torch.Generator().manual_seed(1)).device == CPU


# ----------------------------------------------------------------------------------- processes
class OnDevice(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.ones(1, device="cuda")


class HostData(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.rand(2, generator=generator) + torch.randperm(2, generator=generator)


def in_fork(work):
    """The text of the error that `work` raises in a forked child ("" for none)."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        text = ""
        try:
            work()
        except Exception as error:
            text = str(error) or repr(error)
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with open(read) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text


WORK = {
    "ones": lambda x: torch.ones(1, device="cuda"), "cuda": lambda x: torch.ones(1).cuda(),
    "set_device": lambda x: torch.cuda.set_device(0), "stream": lambda x: torch.cuda.Stream(),
    "synchronize": lambda x: torch.cuda.synchronize(),
    "memory": lambda x: torch.cuda.memory_allocated(),
}
INHERITED = {
    "in place": lambda x: x.add_(1), "sum": lambda x: x + 1, "cpu": lambda x: x.cpu(),
    "view": lambda x: x[0], "item": lambda x: x.item(), "print": lambda x: repr(x),
}


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_a_forked_child_that_would_start_cuda_gets_pytorch_s_error(gpus, work):
    x = torch.ones(1, device="cuda")
    assert in_fork(lambda: work(x)).startswith(
        "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you "
        "must use the 'spawn' start method")
    work(x)  # in this process it works


@pytest.mark.parametrize("work", INHERITED.values(), ids=INHERITED)
def test_a_forked_child_that_uses_an_inherited_tensor_gets_cuda_s_error(gpus, work):
    """As in https://github.com/pytorch/pytorch/issues/4377."""
    x = torch.ones(1, device="cuda")
    assert in_fork(lambda: work(x)).startswith("CUDA error: initialization error\nCUDA kernel")
    work(x)


def test_a_forked_child_may_seed_and_work_on_the_host(gpus):
    def work():
        torch.manual_seed(1)
        assert torch.rand(2).sum() > 0 and torch.cuda.device_count() == 2
        assert torch.cuda._is_in_bad_fork()

    assert in_fork(work) == "" and not torch.cuda._is_in_bad_fork()


def test_a_data_loader_s_worker_that_touches_a_device_gets_cuda_s_error(gpus, message):
    data = OnDevice()
    loader = DataLoader(data, 2, num_workers=1, multiprocessing_context="fork")
    assert "Cannot re-initialize CUDA in forked subprocess" in message(lambda: list(loader))
    assert len(list(DataLoader(data, 2))) == 2
    inherited = torch.utils.data.TensorDataset(torch.ones(2, device="cuda"))
    loader = DataLoader(inherited, 2, num_workers=1, multiprocessing_context="fork")
    assert "CUDA error: initialization error" in message(lambda: list(loader))


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_that_stay_on_the_host_work(gpus, context):
    loader = DataLoader(HostData(), 2, num_workers=1, multiprocessing_context=context)
    batches = [batch.cuda() for batch in loader]
    assert len(batches) == 2 and batches[0].is_cuda


def test_a_device_tensor_cannot_be_sent_to_a_process(gpus, message):
    from multiprocessing.reduction import ForkingPickler
    for tensor in (torch.ones(1, device="cuda"), nn.Linear(1, 1).cuda().weight):
        assert "sharing a device tensor" in message(
            lambda: ForkingPickler(io.BytesIO(), 5).dump(tensor), NotImplementedError)


def test_a_simulation_works_beside_asyncio():
    code = """
import asyncio, torch
from d2l_gpu.simulator import simulate_gpus

async def work(i):
    x = torch.ones(2, device=f"cuda:{i}")
    await asyncio.sleep(0)
    return (x + i).cpu().tolist()

async def main():
    with simulate_gpus(2):
        return await asyncio.gather(work(0), work(1), asyncio.to_thread(lambda: torch.ones(1).cuda(1).item()))

print(asyncio.run(main()))
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[[1.0, 1.0], [2.0, 2.0], 1.0]"
