"""Data on its way: DataLoader, pinned memory, files."""

import io
import pickle
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from d2l_gpu.simulator import simulate_gpus

CPU, CUDA0, CUDA1 = torch.device("cpu"), torch.device("cuda:0"), torch.device("cuda:1")


@pytest.mark.parametrize("workers", [0, 2])
def test_pinned_batches_do_not_wait(gpus, workers):
    data = TensorDataset(torch.arange(64.0).reshape(32, 2), torch.arange(32))
    loader = DataLoader(data, 8, shuffle=True, num_workers=workers, pin_memory=True)
    with gpus.record() as used:
        for x, y in loader:
            assert x.is_pinned() and y.is_pinned() and not x.is_cuda
            x, y = x.to("cuda", non_blocking=True), y.to("cuda", non_blocking=True)
            assert torch.equal(x[:, 0], y * 2.0)
    assert used.copies["H2D"] == 8 and used.syncs == {"equal": 4}
    with gpus.record() as used:
        for x, y in DataLoader(data, 8, num_workers=workers):
            assert not x.is_pinned()
            x.to("cuda", non_blocking=True)  # pageable memory: the copy cannot overlap
    assert used.syncs == {"staging": 4}


def test_pinned_memory(gpus, message):
    x = torch.ones(3)
    p = x.pin_memory()
    assert p.is_pinned() and not x.is_pinned() and p.pin_memory() is p and p[1:].is_pinned()
    assert torch.zeros(3, pin_memory=True).is_pinned() and torch.empty(2, pin_memory=True).is_pinned()
    assert torch.tensor([1.0], pin_memory=True).is_pinned()
    assert message(lambda: x.cuda().pin_memory()) == (
        "cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned")
    assert not x.cuda().is_pinned()


def reread(value, **options):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **options)


def test_files_remember_the_device(gpus, tmp_path):
    net, path = nn.Linear(2, 1).to("cuda:1"), tmp_path / "model.pth"
    torch.save(net.state_dict(), path)
    with gpus.record() as used:
        back = torch.load(path)
    assert used.copies["H2D"] == 2 and torch.equal(back["weight"], net.weight)
    for location, expected in ((None, CUDA1), ("cpu", CPU), ("cuda:0", CUDA0), (CUDA0, CUDA0),
                               ({"cuda:1": "cuda:0"}, CUDA0), (lambda s, l: s, CPU)):
        loaded = torch.load(path, map_location=location)
        assert {value.device for value in loaded.values()} == {expected}, location
    assert nn.Linear(2, 1).load_state_dict(back)
    assert net.load_state_dict(torch.load(path, map_location="cpu"))


def test_a_file_is_an_ordinary_cuda_checkpoint(gpus, tmp_path):
    path = tmp_path / "model.pth"
    torch.save(nn.Linear(2, 1).to("cuda:1").state_dict(), path)
    code = f"""
import torch
try: torch.load({str(path)!r})
except RuntimeError as error: print(error)
print({{key: str(value.device) for key, value in torch.load({str(path)!r}, map_location="cpu").items()}})
"""
    text = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert text.startswith(
        "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. "
        "If you are running on a CPU-only machine, please use torch.load with map_location="
        "torch.device('cpu')")
    assert "{'weight': 'cpu', 'bias': 'cpu'}" in text


def test_whole_modules_and_shared_storages_come_back(gpus):
    again = reread(nn.Linear(2, 1).to("cuda:1"), weights_only=False)
    assert again.weight.get_device() == 1
    assert isinstance(again.weight, nn.Parameter) and again.weight.requires_grad
    base = torch.arange(4.0, device="cuda")
    a, b = reread([base, base[1:3]])
    b.zero_()
    assert a.tolist() == [0, 0, 0, 3] and a.is_cuda
    x = pickle.loads(pickle.dumps(torch.ones(2, device="cuda:1")))
    assert x.device == CUDA1 and x.tolist() == [1, 1]


def test_loading_on_a_machine_with_fewer_gpus_is_pytorch_s_error(tmp_path, message):
    with simulate_gpus(2):
        torch.save(torch.ones(1, device="cuda:1"), tmp_path / "x.pt")
    with simulate_gpus(1):
        assert ("Attempting to deserialize object on CUDA device 1 but torch.cuda.device_count() "
                "is 1") in message(lambda: torch.load(tmp_path / "x.pt"))
