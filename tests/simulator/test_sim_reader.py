"""What a reader sees: tracebacks without the simulator's frames, in scripts and in Jupyter."""

import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import d2l_gpu.simulator as simulator
from d2l_gpu.simulator import reader_traceback, simulate_gpus

HOME = str(Path(simulator.__file__).parent)
CALLS = {
    "elementwise": lambda x: x + x.cpu(), "layer": lambda x: nn.Linear(2, 2)(x),
    "composite": lambda x: F.cross_entropy(x, torch.zeros(2).long()),
    "attention": lambda x: F.scaled_dot_product_attention(x, x.cpu(), x),
    "LSTM": lambda x: nn.LSTM(2, 2).cuda()(x.cpu()), "numpy": lambda x: x.numpy(),
    "ordinal": lambda x: torch.ones(2, device="cuda:7"), "cuda": lambda x: torch.ones(2).cuda(9),
    "set_device": lambda x: torch.cuda.set_device(9), "to": lambda x: x.to("cuda:7"),
    "module": lambda x: nn.Linear(2, 2).to("cuda:7"), "index": lambda x: torch.ones(2)[x.long()],
    "memory": lambda x: torch.ones(2**30, device="cuda"), "shape": lambda x: x @ x.new_ones(3, 3),
    "memory of a copy": lambda x: torch.ones(2**20).cuda(), "pin": lambda x: x.pin_memory(),
    "generator": lambda x: torch.rand(2, device="cuda", generator=torch.Generator()),
    "backward": lambda x: (x.requires_grad_() * 2).backward(x.detach().cpu()),
    "grad": lambda x: setattr(x, "grad", x.cpu()), "graph": lambda x: torch.cuda.CUDAGraph(),
    "snapshot": lambda x: torch.cuda.memory_snapshot(), "sparse": lambda x: x.to_sparse(),
    "storage": lambda x: x.untyped_storage().tolist(), "compile": lambda x: torch.compile(abs)(x),
    "profile": lambda x: torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]),
    "mask": lambda x: x.masked_fill(x.cpu() > 0, 0.0), "conv": lambda x: nn.Conv1d(2, 2, 1)(x),
    "event": lambda x: torch.cuda.Event().elapsed_time(torch.cuda.Event()),
    "scatter": lambda x: nn.DataParallel(nn.Linear(2, 2).cuda(), [0])(x.cpu()[:, :1].cuda()),
    "new": lambda x: x.new(2, device="cuda:8"), "legacy": lambda x: torch.cuda.FloatTensor(2**30),
    "type": lambda x: x.type("torch.Wrong"), "setitem": lambda x: x.__setitem__(0, x.new_ones(7)),
    "optimizer": lambda x: x.grad_fn.nothing, "accelerator": lambda x: torch.accelerator.set_device_index(5),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("inference", [False, True])
def test_no_frame_of_the_simulator_is_in_a_traceback(call, inference):
    with simulate_gpus(2, memory=2**20), torch.inference_mode(inference):
        x = torch.ones(2, 2, device="cuda")
        try:
            call(x)
        except Exception as error:
            chain = error
            while chain is not None:
                files = [frame.filename for frame in traceback.extract_tb(chain.__traceback__)]
                assert files and not any(file.startswith(HOME) for file in files)
                assert not any(file.endswith("torch/_ops.py") for file in files)
                chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
            assert files[0] == __file__
        else:
            assert inference and call is CALLS["backward"] or call is CALLS["grad"]


def test_frames_of_the_reader_beneath_the_simulator_stay(gpus):
    def hook(grad):
        raise ZeroDivisionError

    x = torch.ones(2, device="cuda", requires_grad=True)
    x.register_hook(hook)
    with pytest.raises(ZeroDivisionError) as info:
        (x * 2).sum().backward()
    names = [entry.name for entry in traceback.extract_tb(info.value.__traceback__)]
    assert names[-1] == "hook" and not any(
        entry.filename.startswith(HOME) for entry in traceback.extract_tb(info.value.__traceback__))


def test_reader_traceback_cuts_any_exception(gpus):
    try:
        simulator.placement.check_rnn(torch.ones(1), [torch.ones(1).cuda()], [])
    except RuntimeError as error:
        assert any(f.filename.startswith(HOME) for f in traceback.extract_tb(error.__traceback__))
        assert reader_traceback(error) is error
        files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    assert files == [__file__]


SCRIPT = """
import torch
from d2l_gpu.simulator import simulate_gpus
gpus = simulate_gpus(2)

def wrong():
    return torch.nn.Linear(3, 2).cuda()(torch.ones(1, 3))

wrong()
"""


def test_a_script_s_traceback_looks_like_pytorch_s(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    run = subprocess.run([sys.executable, str(tmp_path / "script.py")], capture_output=True, text=True)
    assert run.returncode == 1 and HOME not in run.stderr and "_ops.py" not in run.stderr
    lines = [line for line in run.stderr.splitlines() if line.startswith("  File ")]
    assert "script.py" in lines[0] and "script.py" in lines[1] and "functional" not in lines[1]
    assert "linear.py" in lines[-1] or "functional.py" in lines[-1]
    assert "wrapper_CUDA_addmm" in run.stderr.splitlines()[-1]


def test_a_jupyter_kernel_shows_no_frame_of_the_simulator_and_runs_asyncio():
    manager = pytest.importorskip("jupyter_client.manager", reason="needs jupyter_client, ipykernel")
    pytest.importorskip("ipykernel")
    kernel = manager.KernelManager(kernel_name="python3")
    kernel.start_kernel(env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    client = kernel.client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=60)

        def run(code):
            outputs = []
            client.execute_interactive(code, timeout=60, output_hook=outputs.append)
            return [message["content"] for message in outputs]

        run("import torch, asyncio\nfrom d2l_gpu.simulator import simulate_gpus\n"
            "gpus = simulate_gpus(2)\ngpus = simulate_gpus(2)")
        shown = run("torch.nn.Linear(3, 2).cuda()(torch.ones(1, 3))")
        text = "\n".join(next(c["traceback"] for c in shown if "traceback" in c))
        assert "wrapper_CUDA_addmm" in text and "simulator" not in text and "hidden" not in text
        assert "_ops.py" not in text
        shown = run("async def work(i):\n    await asyncio.sleep(0)\n"
                    "    return torch.ones(2, device=f'cuda:{i}').sum().item()\n"
                    "print(await asyncio.gather(work(0), work(1)))")
        assert any(content.get("text") == "[2.0, 2.0]\n" for content in shown)
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
