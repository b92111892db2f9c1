"""Devices on machines that this one is not: torch's answers are replaced, the functions' own logic is tested."""

import importlib
from types import SimpleNamespace

import pytest
import torch

import d2l_gpu as d2l
from d2l_gpu import devices, machine as the_machine

hardware = importlib.import_module("d2l_gpu.hardware")  # the package's attribute of that name is the function


@pytest.fixture
def machine(monkeypatch):
    """A function that makes this machine one with `gpus` CUDA GPUs, `mps`, a `driver` and a `build` of torch."""
    def pretend(gpus=0, mps=False, driver=None, cuda_build=True, capability=(9, 0), archs=("sm_75", "sm_90")):
        monkeypatch.setattr(devices, "_said", set())
        monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
        monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: list(archs))
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda i: SimpleNamespace(
            name="Test GPU", total_memory=24 * 2**30, major=capability[0], minor=capability[1]))
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
        monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: cuda_build)
        monkeypatch.setattr(torch.version, "cuda", "13.0" if cuda_build else None)
        monkeypatch.setattr(hardware, "_driver_version", lambda: driver)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return pretend


def test_cpu_and_gpu_are_torch_devices():
    assert d2l.cpu() == torch.device("cpu")
    assert d2l.gpu() == torch.device("cuda:0")
    assert d2l.gpu(3) == torch.device("cuda:3")


@pytest.mark.parametrize("gpus, all_gpus", [(0, ["cpu"]), (1, ["cuda:0"]), (2, ["cuda:0", "cuda:1"])])
def test_try_all_gpus_is_never_empty(machine, gpus, all_gpus):
    machine(gpus=gpus)
    assert d2l.num_gpus() == gpus
    assert d2l.try_all_gpus() == [torch.device(name) for name in all_gpus]


def test_try_gpu_takes_the_gpu_and_says_nothing(machine, capsys):
    machine(gpus=2)
    assert d2l.try_gpu() == torch.device("cuda:0")
    assert d2l.try_gpu(1) == torch.device("cuda:1")
    assert capsys.readouterr().out == ""


def test_try_gpu_falls_back_and_says_so_once(machine, capsys):
    machine(gpus=1)
    assert [d2l.try_gpu(1), d2l.try_gpu(1)] == [torch.device("cpu")] * 2
    assert capsys.readouterr().out == "try_gpu(1): only 1 GPU here, using the CPU\n"
    machine(gpus=0)
    d2l.try_gpu(), d2l.try_gpu(), d2l.try_all_gpus()
    assert capsys.readouterr().out == "try_gpu(0): no CUDA GPU here, using the CPU\n"


def test_try_gpu_takes_apples_gpu_as_the_first_only(machine, capsys):
    machine(mps=True)
    assert d2l.try_gpu() == torch.device("mps")
    assert d2l.try_all_gpus() == [torch.device("mps")]
    assert d2l.try_gpu(1) == torch.device("cpu")
    assert capsys.readouterr().out.count("\n") == 2


def test_a_gpu_without_a_working_driver_does_not_count(machine, monkeypatch):
    machine()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)  # NVML still lists the card
    assert d2l.num_gpus() == 0


@pytest.mark.parametrize("function", [d2l.gpu, d2l.try_gpu])
@pytest.mark.parametrize("index", [-1, -7, 1.0, "0", None, True])
def test_an_index_that_cannot_be_meant_is_named(function, index):
    with pytest.raises(ValueError, match=str(index) if index != "0" else "'0'"):
        function(index)


# ---------------------------------------------------------------------------------------------- hardware()
def test_hardware_shows_memory_in_both_units(machine):
    machine(gpus=1, driver="580.82.07")
    assert "25.8 GB = 24.0 GiB" in str(d2l.hardware())
    assert "available, 1 GPU\n" in str(d2l.hardware())
    assert d2l.hardware().used == "cuda:0"


@pytest.mark.parametrize("capability, archs, fits", [
    ((6, 0), ("sm_75", "sm_90"), False),       # too old
    ((7, 5), ("sm_75", "sm_90"), True),
    ((8, 9), ("sm_80", "sm_90"), True),        # machine code of an older card of its generation
    ((12, 0), ("sm_80", "sm_90a"), False),     # too new
    ((12, 0), ("sm_80", "compute_90"), True),  # but PTX can be compiled for it
    ((9, 0), (), True),                        # ROCm: nothing to compare
])
def test_hardware_says_if_the_build_has_no_code_for_the_gpu(machine, capability, archs, fits):
    machine(gpus=1, capability=capability, archs=archs)
    assert ("this build of torch has no code for it" in str(d2l.hardware())) is not fits


@pytest.mark.parametrize("pretended, words", [
    (dict(cuda_build=False), "this build of torch has no CUDA"),
    (dict(cuda_build=False, driver="580.82.07"), "install a CUDA build"),
    (dict(), "no NVIDIA driver"),
])
def test_hardware_says_why_there_is_no_cuda(machine, pretended, words):
    machine(**pretended)
    assert words in d2l.hardware().cuda


def test_hardware_passes_on_what_pytorch_says_of_an_old_driver(machine, monkeypatch):
    def init():
        raise RuntimeError("The NVIDIA driver on your system is too old (found version 12020).\nMore text")
    machine(driver="535.54")
    monkeypatch.setattr(torch.cuda, "init", init)
    assert d2l.hardware().cuda == "not available: The NVIDIA driver on your system is too old (found version 12020)."


def test_hardware_names_the_variable_that_hides_the_gpus(machine, monkeypatch):
    machine(driver="580.82.07")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "CUDA_VISIBLE_DEVICES" in d2l.hardware().cuda


def test_hardware_survives_a_broken_driver(machine, monkeypatch):
    def broken():
        raise RuntimeError("CUDA driver initialization failed")
    machine()
    monkeypatch.setattr(torch.cuda, "is_available", broken)
    assert "CUDA driver initialization failed" in d2l.hardware().cuda
    assert d2l.hardware().used == "cpu"


def test_hardware_survives_a_system_that_tells_nothing(machine, monkeypatch):
    machine()
    monkeypatch.setattr(hardware, "_main_memory", lambda: None)
    monkeypatch.setattr(the_machine.platform, "processor", lambda: "")
    assert " ? " in str(d2l.hardware())


def test_the_driver_is_unknown_when_nvidia_smi_fails(monkeypatch, tmp_path):
    for script in ("#!/bin/sh\nexit 9\n", "#!/bin/sh\necho\n"):
        command = tmp_path / "nvidia-smi"
        command.write_text(script)
        command.chmod(0o755)
        monkeypatch.setattr(the_machine.shutil, "which", lambda name: str(command))
        assert the_machine._driver_version() is None


def test_the_driver_is_read_from_nvidia_smi(monkeypatch, tmp_path):
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\nprintf '580.82.07\\n580.82.07\\n'\n")
    command.chmod(0o755)
    monkeypatch.setattr(the_machine.shutil, "which", lambda name: str(command))
    assert the_machine._driver_version() == "580.82.07"
