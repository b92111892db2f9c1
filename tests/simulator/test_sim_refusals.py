"""What is not simulated is refused by name, and what needs no device works as always."""

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

CUDA = [ProfilerActivity.CPU, ProfilerActivity.CUDA]

REFUSED = {
    "CUDAGraph": (lambda: torch.cuda.CUDAGraph(), "torch.cuda.CUDAGraph"),
    "graph": (lambda: torch.cuda.graph(None), "torch.cuda.graph"),
    "MemPool": (lambda: torch.cuda.MemPool(), "torch.cuda.MemPool"),
    "ExternalStream": (lambda: torch.cuda.ExternalStream(0), "torch.cuda.ExternalStream"),
    "utilization": (lambda: torch.cuda.utilization(), "torch.cuda.utilization"),
    "cudart": (lambda: torch.cuda.cudart(), "torch.cuda.cudart"),
    "memory_snapshot": (lambda: torch.cuda.memory_snapshot(), "torch.cuda.memory_snapshot"),
    "record_memory_history": (lambda: torch.cuda.memory._record_memory_history(),
                              "torch.cuda.memory._record_memory_history"),
    "dump_snapshot": (lambda: torch.cuda.memory._dump_snapshot("x"), "torch.cuda.memory._"),
    "snapshot": (lambda: torch.cuda.memory._snapshot(), "torch.cuda.memory._snapshot"),
    "set_allocator": (lambda: torch.cuda.memory.change_current_allocator(None), "torch.cuda."),
    "host stats": (lambda: torch.cuda.memory.host_memory_stats(), "torch.cuda.memory.host_memory"),
    "nvtx": (lambda: torch.cuda.nvtx.range_push("x"), "torch.cuda.nvtx.range_push"),
    "nvtx mark": (lambda: torch.cuda.nvtx.mark("x"), "torch.cuda.nvtx.mark"),
    "profiler": (lambda: torch.cuda.profiler.start(), "torch.cuda.profiler.start"),
    "sync debug": (lambda: torch.cuda.set_sync_debug_mode(1), "torch.cuda.set_sync_debug_mode"),
    "blas handle": (lambda: torch.cuda.current_blas_handle(), "torch.cuda.current_blas_handle"),
    "tunable": (lambda: torch.cuda.tunable.enable(), "torch.cuda.tunable.enable"),
    "plan cache": (lambda: torch.backends.cuda.cufft_plan_cache[0].size, "cufft_plan_cache"),
    "to_sparse": (lambda: torch.ones(2, 2, device="cuda").to_sparse(), "torch.sparse_coo tensor"),
    "sparse to": (lambda: torch.eye(2).to_sparse().to("cuda"), "torch.sparse_coo tensor"),
    "sparse cuda": (lambda: torch.eye(2).to_sparse_csr().cuda(), "torch.sparse_csr tensor"),
    "sparse_coo": (lambda: torch.sparse_coo_tensor([[0]], [1.0], (2,), device="cuda"), "sparse"),
    "sparse values": (lambda: torch.sparse_coo_tensor(torch.zeros(1, 1).long().cuda(),
                                                      torch.ones(1).cuda(), (2,)), "sparse"),
    "nested jagged": (lambda: torch.nested.nested_tensor(
        [torch.ones(2), torch.ones(3)], layout=torch.jagged, device="cuda"), "nested tensor"),
    "nested": (lambda: torch.nested.nested_tensor([torch.ones(2)], device="cuda"), "nested tensor"),
    "nested parts": (lambda: torch.nested.as_nested_tensor([torch.ones(2).cuda()]), "nested tensor"),
    "nested to": (lambda: torch.nested.nested_tensor([torch.ones(2)]).to("cuda"), "nested tensor"),
    "jagged to": (lambda: torch.nested.nested_tensor(
        [torch.ones(2)], layout=torch.jagged).cuda(), "nested tensor"),
    "jagged": (lambda: torch.nested.nested_tensor_from_jagged(
        torch.ones(2).cuda(), torch.tensor([0, 2]).cuda()), "nested tensor"),
    "quantized": (lambda: torch.quantize_per_tensor(torch.ones(2).cuda(), 1.0, 0, torch.qint8),
                  "quantized tensor"),
    "quantized to": (lambda: torch.quantize_per_tensor(
        torch.ones(2), 1.0, 0, torch.qint8).to("cuda"), "quantized tensor"),
    "dlpack": (lambda: torch.from_dlpack(torch.ones(2, device="cuda")), "DLPack"),
    "interface": (lambda: torch.ones(1).cuda().__cuda_array_interface__, "__cuda_array_interface__"),
    "storage": (lambda: torch.ones(2, device="cuda").untyped_storage()[0], "storage"),
    "lazy dtype": (lambda: nn.LazyLinear(2).to("cuda", torch.float64), "dtype of an uninitialized"),
    "default type": (lambda: torch.set_default_tensor_type("torch.cuda.FloatTensor"), "set_default"),
    "profile": (lambda: profile(activities=CUDA), "ProfilerActivity.CUDA"),
    "profile, scheduled": (lambda: profile(
        activities=CUDA, schedule=schedule(wait=1, warmup=1, active=1)), "ProfilerActivity.CUDA"),
    "profile, set": (lambda: profile(activities={ProfilerActivity.CUDA}), "ProfilerActivity.CUDA"),
    "profile, base class": (lambda: torch.profiler._KinetoProfile(activities=CUDA), "Activity.CUDA"),
    "autograd profile": (lambda: torch.autograd.profiler.profile(use_device="cuda"), "Activity.CUDA"),
    "compile": (lambda: torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1).cuda()),
                "torch.compile of work on a device"),
    "compile, module": (lambda: torch.compile(nn.Linear(1, 1).cuda(), backend="eager")(torch.ones(1)),
                        "torch.compile of work on a device"),
    "accelerator": (lambda: torch.accelerator.reset_accumulated_memory_stats(), "torch.accelerator"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call, name", REFUSED.values(), ids=REFUSED)
def test_what_is_not_simulated_is_refused_by_name(gpus, message, call, name):
    text = message(call, NotImplementedError)
    assert text.startswith("simulate_gpus: ") and name in text and text.endswith("is not simulated")


def test_nothing_in_torch_cuda_reaches_the_driver(gpus):
    """Every public function answers, refuses, or asks for arguments; none gives a driver's error."""
    for name in torch.cuda.__all__:
        value = getattr(torch.cuda, name)
        if not callable(value) or name in ("init", "CudaError", "check_error", "cudaStatus"):
            continue
        try:
            value()
        except NotImplementedError as error:
            assert "is not simulated" in str(error), name
        except TypeError:
            pass
        except Exception as error:
            assert False, (name, error)


def test_sleep_on_a_device_is_a_no_op(gpus):
    assert torch.cuda._sleep(100) is None


def test_the_host_s_profiler_is_left_alone(gpus):
    for options in (dict(activities=[ProfilerActivity.CPU]), {}):
        with profile(**options) as prof:
            torch.ones(10, 10) @ torch.ones(10, 10)
        assert any(event.key == "aten::mm" for event in prof.key_averages())
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=0, warmup=0, active=1)) as prof:
        torch.ones(1) + 1
        prof.step()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_host_models_compile_as_always(gpus, backend):
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    compiled, x = torch.compile(net, backend=backend), torch.randn(5, 3)
    assert torch.allclose(compiled(x), net(x), atol=1e-6)
    compiled(x).sum().backward()
    assert net[0].weight.grad is not None

    @torch.compile(backend=backend)
    def function(x):
        return (x * torch.arange(3)).sum() + torch.zeros(1)

    assert function(x[0]).allclose((x[0] * torch.arange(3)).sum())
    assert torch.cuda.is_available() and torch.cuda.device_count() == 2


def test_the_compiling_thread_does_not_see_the_devices(gpus):
    def backend(graph, inputs):
        seen.append((torch.cuda.is_available(), torch.cuda.device_count(),
                     torch.accelerator.is_available()))
        return graph.forward

    seen = []
    assert torch.compile(lambda x: x * 2, backend=backend)(torch.ones(1)).item() == 2
    assert seen == [(False, 0, False)] and torch.accelerator.is_available()


@pytest.mark.parametrize("name", ["MemPool", "CUDAGraph", "Stream", "Event"])
def test_classes_of_torch_cuda_can_still_be_asked_about(gpus, name):
    assert isinstance(getattr(torch.cuda, name), type)
    assert not isinstance(torch.ones(1), getattr(torch.cuda, name))


def test_sparse_nested_and_quantized_host_tensors_work(gpus):
    assert torch.eye(2).to_sparse().to(torch.float64).is_sparse
    assert torch.sparse_coo_tensor([[0]], [1.0], (2,)).to_dense().tolist() == [1, 0]
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    assert nested.to(torch.float64).is_nested
