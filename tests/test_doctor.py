"""The report on this machine: what it says of machines that this one is not (facts are injected), and of this one."""

import dataclasses
import json
import os
import subprocess
import sys

import pytest

import d2l_gpu as d2l
from d2l_gpu.doctor import builds, cgroups, gpu_rules, host_rules, probes
from d2l_gpu.doctor.imports import explain_import
from d2l_gpu.doctor.probes import Facts, Gpu, gather
from d2l_gpu.doctor.report import WIDTH, Report

GIB = 2**30
NEW = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]  # the architectures of the CUDA 13.0 wheel
T4, P100 = Gpu("Tesla T4", (7, 5), 15 * GIB, 14 * GIB), Gpu("Tesla P100-PCIE-16GB", (6, 0), 16 * GIB, 15 * GIB)
TOO_OLD = "The NVIDIA driver on your system is too old (found version 12020). Please update your GPU driver"
DRIVER = dict(driver="580.82.07", driver_cuda="13.0", cards=1)
WITH_T4 = DRIVER | dict(gpus=[T4])
CPU_WHEEL = dict(torch="2.14.1+cpu", cuda_build=None, archs=[])


def machine(**changes):
    """The report on a laptop without a GPU that has the CUDA wheel, apart from `changes`."""
    usual = dict(python=(3, 12, 1), torch="2.14.1+cu130", torchvision="0.29.1+cu130", cuda_build="13.0", archs=NEW,
                 pci_gpus=0, memory=16 * GIB, memory_available=12 * GIB, cores=8, machine_cores=8, threads=8, shm=8 * GIB,
                 shm_free=7 * GIB, start_method="fork", open_files=4096, disk_free=50 * GIB, package="0.1.0")
    return Report(Facts(**usual | changes))


def found(name, **changes):
    """The one finding of this name on such a machine, or None."""
    matching = [finding for finding in machine(**changes).findings if finding.name == name]
    assert len(matching) < 2
    return matching[0] if matching else None


# --------------------------------------------------------------------------------------- what is judged, and how
@pytest.mark.parametrize("changes", [{}, WITH_T4, CPU_WHEEL, dict(mps=True, system="Darwin", cuda_build=None),
                                     dict(simulated=2), dict(torchvision=None)])
def test_nothing_is_wrong_with_these_machines(changes):
    report = machine(**changes)
    assert {finding.status for finding in report.findings} == {"ok"}
    assert str(report).endswith("Nothing is wrong.")


def driver(number, **more):
    return DRIVER | dict(driver=number, driver_cuda=None) | more


@pytest.mark.parametrize("name, changes, status, words, way_out", [
    # Python and torch
    ("python", dict(python=(3, 11, 0)), "ok", "3.11.0", ""),
    ("python", dict(python=(3, 10, 14)), "problem", "3.10.14 is older than 3.11", "newer"),
    ("torch", dict(torch="2.9.0"), "ok", "CUDA 13.0", ""),
    ("torch", dict(torch="2.8.0+cu128"), "problem", "older than 2.9", "--force-reinstall torch torchvision\n"),
    ("torch", CPU_WHEEL, "ok", "without CUDA", ""),
    ("torch", dict(cuda_build=None, hip_build="6.4"), "ok", "ROCm 6.4", ""),
    ("torch", dict(torch=None, torch_error="ImportError: libcublas.so.13: cannot open shared object file"), "problem",
     "libcublas.so.13", "pip install"),
    ("torchvision", dict(torchvision="0.28.0"), "warning", "goes with 0.29", "Install both at once:\n    python -m pip install --force-reinstall torch torchvision\n"),
    ("torchvision", driver("535.54.03", torchvision="0.28.0", torch="2.14.1+cu126", cuda_build="12.6", gpus=[T4]), "warning", "goes with",
     '"torch<2.15" torchvision --index-url https://download.pytorch.org/whl/cu126'),
    ("torchvision", dict(torchvision="0.28.0", torch="2.14.1+cu126", cuda_build="12.6"), "warning", "goes with", "whl/cu126"),
    ("torchvision", dict(torchvision="0.28.0", system="Windows"), "warning", "goes with", "whl/cu130"),
    ("torchvision", dict(torchvision="0.28.0", system="Darwin", cuda_build=None), "warning", "goes with", "torch torchvision\n"),
    ("torchvision", CPU_WHEEL | dict(torchvision="0.28.0"), "warning", "goes with", "whl/cpu"),
    ("torchvision", dict(torchvision="0.28.0", cuda_build=None, hip_build="6.4.43482-0f2d60242"), "warning", "goes with", "whl/rocm6.4"),
    ("torchvision", driver("535.54.03", torchvision="0.28.0", places=["Kaggle"]), "warning", "goes with", "the torch that belongs there"),
    ("torchvision", dict(torchvision_error="RuntimeError: operator torchvision::nms does not exist"), "problem",
     "torchvision 0.29.1+cu130 cannot be imported: torchvision was built for another release", "--force-reinstall torch"),
    ("torchvision", dict(torch="unknown"), "ok", "0.29.1", ""),
    # the driver
    ("driver", {}, "ok", "no NVIDIA GPU", ""),
    ("driver", dict(pci_gpus=None), "ok", "no NVIDIA driver: ", ""),
    ("driver", WITH_T4, "ok", "CUDA up to 13.0, 1 GPU", ""),
    ("driver", dict(pci_gpus=1), "warning", "1 NVIDIA GPU in this machine, and no NVIDIA driver", "drivers"),
    ("driver", dict(pci_gpus=1, places=["container"]), "warning", "no NVIDIA driver", "--gpus all"),
    ("driver", dict(driver_module="580.82.07", places=["container"]), "warning", "out of reach", "--gpus all"),
    ("driver", dict(driver_module="580.82.07"), "warning", "out of reach", "the driver's programs"),
    ("driver", DRIVER | dict(torch=None, torch_error="ImportError: x", cuda_build=None), "ok", "580.82.07", ""),
    ("driver", DRIVER | dict(cuda_build=None, hip_build="6.4"), "ok", "580.82.07", ""),
    ("driver", driver("580.65.05"), "problem", "which needs 580.65.06", "Update the driver (https"),
    ("driver", driver("580.65.05", places=["container"]), "problem", "too old", "Update the driver on the host"),
    ("driver", driver("[N/A]"), "ok", "[N/A]", ""),
    ("driver", driver("580.65.06"), "ok", "580.65.06", ""),
    ("driver", driver("535.54.03", cuda_error=TOO_OLD), "problem", "too old for torch's CUDA 13.0", '"torch<2.15" torchvision --index-url https://download.pytorch.org/whl/cu126'),
    ("driver", driver("535.54.03", simulated=2), "problem", "too old for torch's CUDA 13.0", "whl/cu126"),
    ("driver", driver("535.54.03", gpus=[T4]), "ok", "535.54.03", ""),  # NVIDIA's compatibility package is installed
    ("driver", driver("535.54.03", cuda_build="12.8"), "ok", "535.54.03", ""),
    ("driver", driver("525.60.12", cuda_build="12.8"), "problem", "which needs 525.60.13", "525.60.13 or newer."),
    ("driver", driver("527.41", cuda_build="12.6", system="Windows"), "problem", "which needs 528.33", "528.33"),
    ("driver", driver("527.41", cuda_build="12.6", places=["WSL"]), "problem", "which needs 528.33", "on Windows, not inside WSL"),
    ("driver", driver("590.1", cuda_build="14.0", driver_cuda="13.1"), "problem", "serves CUDA up to 13.1", "Update"),
    ("driver", driver("590.1", cuda_build="14.0", cuda_error=TOO_OLD), "problem", "too old", "Update the driver"),
    ("driver", driver("535.54.03", places=["Colab"]), "problem", "too old", "not yours to change"),
    ("driver", CPU_WHEEL | DRIVER, "warning", "built without CUDA", "--force-reinstall torch torchvision\n"),
    ("driver", CPU_WHEEL | DRIVER | dict(system="Windows"), "warning", "built without CUDA", "torch torchvision --index-url https://download.pytorch.org/whl/cu130"),
    ("driver", CPU_WHEEL | driver("470.82"), "warning", "built without CUDA", "Update the driver (https://www.nvidia.com/drivers) to 525.60.13"),
    ("driver", CPU_WHEEL | driver("[N/A]"), "warning", "built without CUDA", "whl/cu126"),
    ("driver", CPU_WHEEL | DRIVER | dict(places=["Colab"]), "warning", "built without CUDA", "the torch that belongs there"),
    ("driver", CPU_WHEEL | driver("535.54.03"), "warning", "built without CUDA", "whl/cu126"),
    ("driver", dict(driver_error="NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."), "problem",
     "couldn't communicate", "ask its administrator); after"),
    ("driver", dict(driver_error="it couldn't communicate with the NVIDIA driver."), "problem", "", "Secure Boot"),
    ("driver", dict(driver_error="Failed to initialize NVML: Driver/library version mismatch"), "problem", "mismatch",
     "restart the machine if it is yours alone"),
    ("driver", dict(driver_error="Failed to initialize NVML: Unknown Error", places=["container"]), "problem",
     "Unknown Error", "container anew"),
    ("driver", dict(driver_error="No devices were found"), "problem", "finds no GPU", "given one"),
    ("driver", dict(driver_error="timed out after 20 seconds"), "problem", "timed out", "First restart the machine if it is yours alone (on a shared one"),
    ("driver", dict(driver_error="timed out after 20 seconds", gpus=[T4]), "warning", "timed out", ""),
    ("driver", CPU_WHEEL | dict(driver_error="timed out after 20 seconds"), "warning", "timed out", ""),
    # CUDA as PyTorch sees it
    ("cuda", DRIVER | dict(cuda_error="CUDA unknown error - this may be due to an incorrectly set up environment.\nMore"),
     "problem", "cannot use it: CUDA unknown error - this may be due to an incorrectly set up environment.", "sudo rmmod nvidia_uvm"),
    ("cuda", DRIVER | dict(cuda_error="CUDA unknown error", places=["container"]), "problem", "", "Restart Python, or the notebook's kernel. If it"),
    ("cuda", DRIVER | dict(cuda_error="Error 802: system not yet initialized"), "problem", "802", "nvidia-fabricmanager, of the driver's own version"),
    ("cuda", DRIVER | dict(cuda_error="CUDA driver error: strange"), "problem", "strange", "ask its administrator"),
    ("cuda", DRIVER, "problem", "shows it no GPU", ""),
    ("cuda", DRIVER | dict(environment={"CUDA_VISIBLE_DEVICES": ""}, cuda_error="No CUDA GPUs are available"), "warning",
     "CUDA_VISIBLE_DEVICES hides every GPU", "Unset it"),
    ("cuda", DRIVER | dict(environment={"CUDA_VISIBLE_DEVICES": "-1"}), "warning", "hides every GPU", ""),
    ("cuda", DRIVER | dict(simulated=2), "problem", "when the simulation began", "python -m d2l_gpu"),
    ("cuda", dict(cuda_build=None, hip_build="6.4", cuda_error="No HIP GPUs are available"), "warning", "No HIP GPUs", "render"),
    ("cuda", dict(cuda_build=None, hip_build="6.4"), "warning", "no AMD GPU", "render"),
    ("simulated GPUs", dict(simulated=2), "ok", "2 simulated GPUs in this process", ""),
    # each GPU
    ("cuda:0", WITH_T4, "ok", "15.0 GiB, 14.0 GiB of it free, compute capability 7.5; no bfloat16", ""),
    ("cuda:0", DRIVER | dict(gpus=[P100]), "problem", "no code for it (it has 7.5, 8.0", "whl/cu126"),
    ("cuda:0", driver("510.47", gpus=[P100]), "problem", "no code for it", "Update the driver (https://www.nvidia.com/drivers) to 525"),
    ("cuda:0", driver("570.10", gpus=[Gpu("RTX 5090", (12, 0))], archs=["sm_90"]), "problem", "12.0", "to 580.65.06 or newer"),
    ("cuda:0", driver("570.10", gpus=[Gpu("H100", (9, 0))], archs=["sm_80"], cuda_build="12.6") | dict(archs=["sm_70"]), "problem", "9.0", "whl/cu126"),
    ("cuda:0", DRIVER | dict(gpus=[P100], places=["Colab"]), "problem", "6.0", "the torch that belongs there"),
    ("cuda:0", DRIVER | dict(gpus=[P100], places=["Kaggle"]), "problem", "compute capability 6.0", "T4 x2"),
    ("cuda:0", DRIVER | dict(gpus=[P100], archs=["sm_50", "sm_60", "sm_90"], cuda_build="12.6"), "ok", "P100", ""),
    ("cuda:0", DRIVER | dict(gpus=[Gpu("GTX 750", (5, 0))]), "problem", "5.0", "whl/cu126"),
    ("cuda:0", DRIVER | dict(gpus=[Gpu("Tesla K80", (3, 7))]), "problem", "3.7", "No release"),
    ("cuda:0", DRIVER | dict(gpus=[Gpu("unknown to all", free=GIB)]), "ok", "unknown to all", ""),
    ("cuda:0", DRIVER | dict(gpus=[dataclasses.replace(T4, error="CUDA error: unspecified launch failure")]), "problem",
     "launch failure", "restart Python"),
    ("cuda:0", DRIVER | dict(gpus=[Gpu("RTX 5090", (12, 0))], archs=["sm_50", "sm_90"]), "problem", "12.0", "--force-reinstall torch torchvision\n"),
    ("cuda:0", DRIVER | dict(gpus=[dataclasses.replace(T4, free=7 * GIB)]), "warning", "other programs hold", "nvidia-smi"),
    ("cuda:0", DRIVER | dict(gpus=[dataclasses.replace(T4, free=7 * GIB, own=5 * GIB)]), "ok", "7.0 GiB of it free", ""),
    ("cuda:0", DRIVER | dict(gpus=[dataclasses.replace(T4, error="CUDA error: device-side assert triggered\nmore")]), "problem",
     "a first sum on it failed: CUDA error: device-side assert triggered", "restart Python"),
    ("cuda:0", DRIVER | dict(gpus=[dataclasses.replace(T4, error="CUDA error: out of memory")]), "problem", "out of", "Another"),
    ("cuda:0", DRIVER | dict(gpus=[dataclasses.replace(T4, error="CUDA error: strange")]), "problem", "strange", "explain"),
    ("cuda:0", dict(cuda_build=None, hip_build="6.4", archs=["gfx90a"], gpus=[Gpu("AMD", (9, 0))]), "ok", "AMD", ""),
    ("mps", dict(mps=True), "ok", "Apple's GPU", ""),
    ("xpu", dict(xpus=2), "ok", "2 Intel GPUs", ""),
    # the choice of GPUs
    ("CUDA_VISIBLE_DEVICES", WITH_T4 | dict(environment={"CUDA_VISIBLE_DEVICES": "0"}), "ok", "0: only", ""),
    ("CUDA_VISIBLE_DEVICES", WITH_T4 | dict(environment={"CUDA_VISIBLE_DEVICES": "GPU-8932f937-d72c"}), "ok", "GPU-8", ""),
    ("CUDA_VISIBLE_DEVICES", WITH_T4 | dict(environment={"CUDA_VISIBLE_DEVICES": "0,cuda:1"}), "warning", "'cuda:1' is no", "0,1"),
    ("CUDA_VISIBLE_DEVICES", WITH_T4 | dict(environment={"CUDA_VISIBLE_DEVICES": "0, 0"}), "warning", "twice", "once"),
    ("CUDA_VISIBLE_DEVICES", WITH_T4 | dict(environment={"CUDA_VISIBLE_DEVICES": "0,1"}), "warning", "GPU 1 is not there", "below 1"),
    # memory, cores, processes
    ("memory", {}, "ok", "16.0 GiB; 12.0 GiB", ""),
    ("memory", dict(memory_available=2 * GIB - 1), "warning", "2.0 GiB", "Close"),
    ("memory", dict(memory_available=2 * GIB), "ok", "2.0 GiB", ""),
    ("memory", dict(memory_limit=GIB), "warning", "of which this container or job may use 1.0 GiB", ""),
    ("memory", dict(memory_available=None), "ok", "16.0 GiB", ""),
    ("memory", dict(memory_limit=64 * GIB), "ok", "16.0 GiB; 12", ""),
    ("cores", dict(cores=2, threads=2), "ok", "2 cores for this process, of the machine's 8; 2 threads", ""),
    ("cores", dict(threads=None), "ok", "8 cores", ""),
    ("cores", dict(cpu_limit=2.5), "warning", "the time of 2.5", "OMP_NUM_THREADS=2"),
    ("cores", dict(cpu_limit=0.5, threads=1), "ok", "the time of 0.5", ""),
    ("cores", dict(cores=4), "warning", "8 threads", "OMP_NUM_THREADS=4"),
    ("/dev/shm", dict(shm=64 * 2**20, shm_free=60 * 2**20), "warning", "64 MiB, 60 MiB of it free", "sudo mount -o remount"),
    ("/dev/shm", dict(shm=64 * 2**20, shm_free=None), "warning", "64 MiB: ", "sudo mount -o remount"),
    ("/dev/shm", dict(shm=64 * 2**20, shm_free=2**26, places=["container"]), "warning", "Bus error", "--shm-size"),
    ("/dev/shm", dict(shm=8 * GIB, shm_free=GIB - 2**20), "warning", "8.0 GiB, 1023 MiB of it free", "ls -lh /dev/shm"),
    ("/dev/shm", dict(shm=GIB, shm_free=GIB), "ok", "1.0 GiB, 1.0 GiB of it free", ""),
    ("start method", {}, "ok", "fork: DataLoader workers see", ""),
    ("start method", dict(start_method="spawn"), "ok", "put it into a module", ""),
    ("open files", dict(open_files=256), "warning", "256", "ulimit -n"),
    ("open files", dict(open_files=1024), "warning", "1024", "ulimit -n"),  # Linux's default, and what runs out
    ("disk", dict(disk_free=GIB - 1), "warning", "free for temporary files", "TMPDIR"),
    ("container", dict(places=["container"]), "ok", "--shm-size", ""),
    ("WSL", dict(places=["WSL"]), "ok", "Windows", ""),
    ("Colab", dict(places=["Colab"]), "ok", "Runtime", ""),
    ("Kaggle", dict(places=["Kaggle"]), "ok", "T4 x2", ""),
    ("Jupyter", dict(places=["Jupyter"]), "ok", "before the kernel starts", ""),
    # settings
    ("CUDA_LAUNCH_BLOCKING", dict(environment={"CUDA_LAUNCH_BLOCKING": "1"}), "warning", "waited for", "Unset"),
    ("PYTORCH_NO_CUDA_MEMORY_CACHING", dict(environment={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}), "warning", "slow", "Unset"),
    ("PYTORCH_ALLOC_CONF", dict(environment={"PYTORCH_ALLOC_CONF": "expandable_segments:True"}), "ok", "expandable", ""),
    ("NVIDIA_TF32_OVERRIDE", dict(environment={"NVIDIA_TF32_OVERRIDE": "0"}), "ok", "TF32", ""),
    ("OMP_NUM_THREADS", dict(environment={"OMP_NUM_THREADS": "four"}), "warning", "'four' is no number", ""),
    ("OMP_NUM_THREADS", dict(environment={"OMP_NUM_THREADS": "1"}, threads=1), "warning", "most of 8 cores idle", "set it to 8"),
    ("OMP_NUM_THREADS", dict(environment={"OMP_NUM_THREADS": "1"}, cores=2, threads=1), "warning", "most of 2", "Unset it"),
    ("OMP_NUM_THREADS", dict(environment={"OMP_NUM_THREADS": "3,2"}, threads=3), "warning", "3,2: operations", "to 8"),
    ("OMP_NUM_THREADS", dict(environment={"OMP_NUM_THREADS": "4"}, threads=4), "ok", "4: so many of 8 cores", ""),
    ("D2L_GPU_SIMULATE", dict(environment={"D2L_GPU_SIMULATE": "two"}), "problem", "'two' is no number", "0, 1 or 2"),
    ("D2L_GPU_SIMULATE", dict(environment={"D2L_GPU_SIMULATE": "2"}), "ok", "2: so many", ""),
    ("CUDA wheels", dict(wheels={"nvidia-cudnn-cu12": "9", "nvidia-cudnn-cu13": "9", "nvidia-nvtx-cu12": "1"}), "warning",
     "nvidia-cudnn is installed for CUDA 12 and 13", "uninstall nvidia-cudnn-cu12\n"),
    ("CUDA wheels", dict(wheels={"nvidia-cudnn-cu12": "9", "nvidia-cudnn-cu13": "9"}, cuda_build="12.8"), "warning", "",
     "uninstall nvidia-cudnn-cu13\n"),
    ("CUDA wheels", dict(wheels={"nvidia-cudnn-cu12": "9", "nvidia-cudnn-cu13": "9"}, places=["Colab"]), "warning", "", "belongs there"),
    ("CUDA wheels", CPU_WHEEL | dict(wheels={"nvidia-nccl-cu12": "2", "nvidia-nccl-cu13": "2"}), "warning", "",
     "uninstall nvidia-nccl-cu12\n"),
    ("unknown", dict(unknown=["bus: PermissionError: no"]), "warning", "bus: PermissionError", ""),
])
def test_the_report_says(name, changes, status, words, way_out):
    finding = found(name, **changes)
    assert (finding.status, finding.text) == (status, finding.text)
    assert words in finding.text and way_out in finding.remedy
    assert "None" not in finding.text + finding.remedy
    assert bool(finding.remedy) == (status != "ok") or name == "unknown"


@pytest.mark.parametrize("name, changes", [
    ("driver", dict(gpus=[T4])), ("mps", {}), ("xpu", {}), ("D2L_GPU_SIMULATE", {}),
    ("cuda", {}), ("cuda", WITH_T4), ("cuda", driver("535.54.03", cuda_error=TOO_OLD)), ("cuda", CPU_WHEEL | DRIVER),
    ("CUDA_VISIBLE_DEVICES", dict(environment={"CUDA_VISIBLE_DEVICES": ""})),
    ("CUDA_LAUNCH_BLOCKING", dict(environment={"CUDA_LAUNCH_BLOCKING": "0"})),
    ("OMP_NUM_THREADS", dict(environment={"OMP_NUM_THREADS": "8"})),
    ("OMP_NUM_THREADS", dict(environment={"OMP_NUM_THREADS": "1"}, cores=1, threads=1)),
    ("OMP_NUM_THREADS", dict(environment={"OMP_NUM_THREADS": "1"}, cpu_limit=1.5, threads=1)),
    ("PYTORCH_ALLOC_CONF", dict(torch_error="ImportError: torch cannot read PYTORCH_ALLOC_CONF=x and ends the process: no",
                                environment={"PYTORCH_ALLOC_CONF": "x"})),
    ("open files", {}), ("open files", dict(open_files=256, system="Darwin")), ("disk", {}),
    ("CUDA wheels", dict(wheels={"nvidia-cudnn-cu13": "9", "nvidia-nvtx-cu12": "1"})),
])
def test_the_report_is_silent_on(name, changes):
    assert found(name, **changes) is None


@pytest.mark.parametrize("name, changes, words", [
    ("driver", driver("470.82"), "whl/cu126"),                          # too old for CUDA 12 as well
    ("driver", driver("525.60.12", cuda_build="12.8"), "whl/cu126"),
    ("driver", driver("535.54.03", places=["Kaggle"]), "Update the driver"),
    ("driver", driver("535.54.03", places=["Kaggle"]), "pip install"),
    ("driver", CPU_WHEEL | DRIVER | dict(places=["Colab"]), "pip install"),
    ("driver", CPU_WHEEL | driver("470.82"), "pip install"),
    ("cuda", DRIVER | dict(cuda_error="CUDA unknown error", places=["WSL"]), "rmmod"),
    ("cuda:0", DRIVER | dict(gpus=[Gpu("A100", (8, 0))]), "bfloat16"),
    ("cuda:0", dict(cuda_build=None, hip_build="6.4", gpus=[Gpu("AMD", (7, 5))]), "7.5"),
    ("cuda:0", dict(cuda_build=None, hip_build="6.4", gpus=[Gpu("AMD", (7, 5))]), "bfloat16"),
    ("cuda:0", DRIVER | dict(gpus=[Gpu("RTX 5090", (12, 0))], archs=["sm_90"]), "whl/cu126"),
    ("cores", {}, "of the machine's"),
    ("unknown", dict(unknown=["x"]), "Way out"),
])
def test_the_report_does_not_say(name, changes, words):
    assert words not in found(name, **changes).text + found(name, **changes).remedy


def test_knowing_nothing_is_no_problem():
    report = Report(Facts())
    assert {finding.status for finding in report.findings} == {"ok"} and "None" not in str(report)


@pytest.mark.parametrize("changes, device, words", [
    ({}, "cpu", "on the CPU; chapters that need GPUs simulate them"),
    (dict(environment={"D2L_GPU_SIMULATE": "0"}), "cpu", "stands in for every GPU"),
    (dict(simulated=2), "cpu", "the simulated GPUs also use"),
    (WITH_T4, "cuda:0", "on cuda:0, Tesla T4"),
    (DRIVER | dict(gpus=[P100]), "cuda:0", "sent to cuda:0, and fail there"),
    (dict(mps=True), "mps", "Apple's GPU"),
    (dict(torch=None, torch_error="ImportError: x"), None, "Nothing will run"),
])
def test_the_verdict(changes, device, words):
    report = machine(**changes)
    assert report.device == device and words in report.verdict
    assert report.verdict in str(report)


def test_problems_come_first_and_lines_are_short_but_commands_are_whole():
    report = machine(**driver("535.54.03", places=["container", "Jupyter"], shm=64 * 2**20, shm_free=2**26))
    order = [finding.status for finding in report.findings]
    assert order == sorted(order, key=["problem", "warning", "ok"].index)
    lines = str(report).splitlines()
    assert lines[0].startswith("PROBLEM  driver: ") and "1 problem and 1 warning." in lines[-1]
    assert any(line.startswith("warning  /dev/shm: 64 MiB") for line in lines)
    assert "ok       python        Python 3.12.1" in lines and lines[-2] == "" != lines[-3]
    assert f"{builds.AGAIN} {builds.CUDA_12}" in [line.strip() for line in lines]
    assert all(len(line) <= WIDTH for line in lines if not line.startswith("    python"))


# -------------------------------------------------------------------------------------------- imports that fail
@pytest.mark.parametrize("error, meaning, way_out", [
    ("ModuleNotFoundError: No module named 'torch'", "not installed for this Python, PY", '"PY" -m pip install torch'),
    ("ModuleNotFoundError: No module named 'torch._C'", "a folder named torch", "another folder"),
    ("ImportError: Failed to load PyTorch C extensions:\n    It appears", "a folder named torch", "another folder"),
    ("ModuleNotFoundError: No module named 'typing_extensions'", "a package that torch needs", "without --no-deps"),
    ("ImportError: libcudart.so.12: cannot open shared object file: No such file", "CUDA library", "without --no-deps"),
    ("ImportError: libnvJitLink.so.12: cannot open shared object file: No such file", "is missing", "without --no-deps"),
    ("ImportError: libcuda.so.1: cannot open shared object file: No such file", "there is no driver", "whl/cpu"),
    ("OSError: libtorch_global_deps.so: cannot open shared object file: No such file", "incomplete", "--force-reinstall"),
    ("ImportError: libGL.so.1: cannot open shared object file: No such file", "library of the system", "package manager"),
    ("ImportError: libcusparse.so.12: undefined symbol: __nvJitLinkComplete_12_4, version libnvJitLink.so.12",
     "another version was found", "env -u LD_LIBRARY_PATH"),
    ("ImportError: libtorch_cuda.so: undefined symbol: ncclCommRegister", "another version was found", "LD_LIBRARY_PATH"),
    ("ImportError: libtorch_cpu.so: undefined symbol: iJIT_NotifyEvent", "MKL", "mkl<2024.1"),
    ("ImportError: libtorch_python.so: undefined symbol: _ZN5torch3jit6Object", "different versions", "python -m venv"),
    ("ImportError: /lib/libstdc++.so.6: version `GLIBCXX_3.4.29' not found", "older than", "libstdcxx-ng"),
    ("ImportError: /lib/libc.so.6: version `GLIBC_2.32' not found", "the system's C library is older", "newer system, or a container"),
    ("ImportError: numpy.core.multiarray failed to import", "numpy is of another generation", "numpy<2"),
    ("ImportError: DLL load failed while importing _C: The specified module", "Windows library", "vc_redist.x64.exe"),
    ('OSError: [WinError 126] The specified module could not be found. Error loading "c10.dll"', "Windows library", "vc_redist"),
    ("OSError: [WinError 1455] The paging file is too small", "memory", "paging file"),
    ("OSError: libgomp.so.1: cannot allocate memory in static TLS block", "loaded first", "LD_PRELOAD"),
    ("ImportError: dlopen(x): mach-o file, but is an incompatible architecture", "different processors", "arm64"),
    ("RuntimeError: operator torchvision::nms does not exist", "another release of torch", "torch and torchvision anew"),
    ("PermissionError: [Errno 13] Permission denied: 'x'", "may not read", "python -m venv"),
    ("ImportError: torch cannot read PYTORCH_ALLOC_CONF=x=1 and ends the process: no", "its allocator", "segments:True"),
    ("SystemError: nobody has seen this", "broken", "python -m venv"),
])
def test_a_failed_import_is_explained(error, meaning, way_out):
    said = explain_import(error, Facts(executable="PY"))
    assert meaning in said[0] and way_out in said[1] and "{" not in said[0] + said[1]


def test_conda_is_no_way_to_another_c_library():
    assert "libstdcxx" not in explain_import("ImportError: version `GLIBC_2.32' not found", Facts())[1]


@pytest.mark.parametrize("error", [
    "ModuleNotFoundError: No module named 'torch'", "ImportError: libcudart.so.12: cannot open shared object file",
    "OSError: libtorch_global_deps.so: cannot open shared object file", "SystemError: nobody has seen this",
])
def test_a_failed_import_is_mended_with_the_build_that_the_driver_serves(error):
    assert "whl/cu126" in explain_import(error, Facts(driver="535.54.03"))[1]
    assert "whl" not in explain_import(error, Facts(driver="580.82.07"))[1]


BROKEN = {
    "ImportError": ("torch/__init__.py", "raise ImportError('libcublas.so.13: cannot open shared object file')", "without --no-deps"),
    "OSError": ("torch/__init__.py", "import ctypes\nctypes.CDLL('libtorch_global_deps.so')", "torchvision anew"),
    "a file torch.py": ("torch.py", "x = 1", "torch.py"),
    "a folder torch": ("torch/notes.txt", "", "torch"),
    "a file random.py": ("random.py", "x = 1", "random.py"),
}


def run(code, root, folder=None, **environment):
    path = os.pathsep.join(map(str, filter(None, [folder, root])))
    return subprocess.run([sys.executable, *code], capture_output=True, text=True, cwd=folder,
                          env=os.environ | {"PYTHONPATH": path, "COLUMNS": "80"} | environment)


@pytest.fixture(params=BROKEN)
def broken(request, tmp_path):
    """A folder in which importing torch fails, and a word that the way out must hold."""
    name, text, word = BROKEN[request.param]
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    if request.param == "a folder torch":  # it counts only where no torch is installed: as if it came first
        (tmp_path / "sitecustomize.py").write_text("import importlib.machinery as m, sys, types\n"
                                                   "torch = types.ModuleType('torch')\ntorch.__path__ = "
                                                   f"[{str(file.parent)!r}]\nsys.modules['torch'] = torch\n")
    if request.param == "a file random.py":  # a torch that asks for what Python's own module has
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch" / "__init__.py").write_text("import random\nrandom.Random\n")
    return tmp_path, word


def test_the_report_works_without_torch_and_says_why(broken, root):
    folder, word = broken
    done = run(["-m", "d2l_gpu", "--json"], root, folder)
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    finding = report["findings"][0]
    assert (finding["name"], finding["status"], report["device"]) == ("torch", "problem", None)
    assert word in finding["text"] + finding["remedy"]
    assert ("a file or folder of yours" in finding["text"]) == (word in ("torch.py", "torch", "random.py"))


ABORTS = """import os, sys
open("imported", "a").write("once ")
if "=" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""):
    sys.stderr.write("terminate called after throwing an instance of 'c10::Error'\\n  what():  Index out of bounds\\n")
    sys.stderr.flush()
    os.abort()
Tensor = Module = None
raise ImportError("as far as this torch goes")
"""


def test_a_setting_that_ends_the_process_in_torch_is_a_finding(root, tmp_path):
    (tmp_path / "torch.py").write_text(ABORTS)
    done = run(["-m", "d2l_gpu", "--json"], root, tmp_path, PYTORCH_CUDA_ALLOC_CONF="expandable_segments=True")
    assert done.returncode == 1, done.stderr
    finding = json.loads(done.stdout)["findings"][0]
    assert finding["name"] == "torch" and "PYTORCH_CUDA_ALLOC_CONF=expandable_segments=True" in finding["text"]
    assert "Index out of bounds" in finding["text"] and "expandable_segments:True" in finding["remedy"]
    assert "is told" not in done.stdout
    done = run(["-m", "d2l_gpu", "explain", str(tmp_path / "torch.py")], root, tmp_path, PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb=128")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("value, imports", [("", 1), ("expandable_segments:True,max_split_size_mb:128", 1), ("backend:native", 2)])
def test_only_an_unusual_setting_is_tried_in_a_process_of_its_own(root, tmp_path, value, imports):
    (tmp_path / "torch.py").write_text(ABORTS)
    run(["-c", "import d2l_gpu"], root, tmp_path, PYTORCH_CUDA_ALLOC_CONF=value, PYTORCH_ALLOC_CONF="")
    assert (tmp_path / "imported").read_text().split() == ["once"] * imports


def test_every_other_name_raises_torchs_reason(broken, root):
    folder, _ = broken
    done = run(["-c", """
import d2l_gpu as d2l
try:
    from d2l_gpu import try_gpu
except ImportError as error:
    print(error)
    print(type(error.__cause__).__name__ in str(error))
for name in set(d2l.__all__) - {"doctor", "errors", "explain"}:  # these need no torch
    try:
        getattr(d2l, name)
    except ImportError as error:
        assert f"d2l_gpu.{name} needs PyTorch" in str(error)
    else:
        print("not raised:", name)
print(hasattr(d2l, "no_such_name"), d2l.doctor().count("problem"))
"""], root, folder)
    first, *_, cause, rest = done.stdout.splitlines()
    assert first.startswith("d2l_gpu.try_gpu needs PyTorch, and importing it failed: "), done.stderr
    assert "python -m d2l_gpu" in done.stdout and (cause, rest) == ("True", "False 1")


# ------------------------------------------------------------------------------------------------- this machine
def test_this_machine_has_no_problem_that_the_report_makes_up():
    import torch
    report = d2l.doctor()
    assert isinstance(report, Report) and report.facts.torch == torch.__version__ and not report.facts.unknown
    mps = hasattr(torch.backends, "mps") and torch.backends.mps.is_available()
    assert report.device == ("cuda:0" if torch.cuda.is_available() else "mps" if mps else "cpu")
    if report.facts.driver is None and not report.facts.driver_error:  # a CUDA wheel without a driver, or a CPU wheel
        assert report.count("problem") == 0


def test_the_command_prints_the_report_and_its_status_tells_of_problems(root):
    done = run(["-m", "d2l_gpu"], root)
    assert done.returncode == ("PROBLEM" in done.stdout) and "Training will" in done.stdout.splitlines()[-1]
    done = run(["-m", "d2l_gpu"], root, D2L_GPU_SIMULATE="two")
    assert done.returncode == 1 and done.stdout.startswith("PROBLEM")


def test_json_is_all_that_is_printed_and_has_the_described_keys(root, tmp_path):
    (tmp_path / "torchvision.py").write_text("print('noise')\n__version__ = '0.0'\n")
    done = run(["-m", "d2l_gpu", "--json"], root, tmp_path)
    report = json.loads(done.stdout)
    assert list(report) == ["schema", "d2l_gpu", "device", "verdict", "problems", "warnings", "findings", "facts"]
    assert "noise" in done.stderr and report["d2l_gpu"] == d2l.__version__ and report["schema"] == 1
    assert report["warnings"] == sum(finding["status"] == "warning" for finding in report["findings"]) > 0
    assert all(list(finding) == ["name", "status", "text", "remedy"] for finding in report["findings"])
    assert set(report["facts"]) == {field.name for field in dataclasses.fields(Facts)}


def test_simulated_gpus_are_said_to_be_simulated_and_never_judged(root):
    done = run(["-c", "import d2l_gpu as d2l\nd2l.simulate_gpus(2)\nr = d2l.doctor()\n"
                "print(r.facts.simulated, r.facts.gpus, r.device, r.count('problem'))\nprint(r)"], root,
               CUDA_VISIBLE_DEVICES="")
    assert done.stdout.startswith("2 [] cpu 0\n"), done.stderr
    assert "2 simulated GPUs in this process" in done.stdout and "cuda:0" not in done.stdout


def test_a_real_gpu_is_asked_for_its_memory_and_a_sum(monkeypatch):
    import torch
    from types import SimpleNamespace
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda i: SimpleNamespace(
        name="Test GPU", total_memory=24 * GIB, major=9, minor=0))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda i: (20 * GIB, 24 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda i: GIB)
    monkeypatch.setattr(torch, "ones", lambda *shape, device: 1 / 0)
    assert gather().gpus == [Gpu("Test GPU", (9, 0), 24 * GIB, 20 * GIB, GIB, "division by zero")]


def test_a_probe_that_fails_is_named_and_the_others_go_on(monkeypatch):
    def broken():
        raise OSError("no such thing")
    monkeypatch.setattr(probes, "_main_memory", broken)
    monkeypatch.setattr(probes, "_nvidia_smi", lambda *arguments: 1 / 0)
    facts = gather()
    assert facts.unknown == ["driver: ZeroDivisionError: division by zero", "memory: OSError: no such thing"]
    assert facts.cores and facts.start_method
    said = " ".join(str(Report(facts)).split())
    assert "could not be found out: memory: OSError" in said and "Way out" not in said


def test_the_room_in_shared_memory_is_asked_for(monkeypatch):
    if not os.path.isdir("/dev/shm"):
        pytest.skip("a system without /dev/shm")
    monkeypatch.setattr(probes.shutil, "disk_usage", lambda path: (8 * GIB, 6 * GIB, 2 * GIB) if path == "/dev/shm" else (1, 1, 0))
    monkeypatch.setattr(probes, "_disk", lambda facts: None)
    facts = Facts()
    probes._memory(facts)
    assert (facts.shm, facts.shm_free) == (8 * GIB, 2 * GIB)


def test_where_the_process_runs_is_noticed(monkeypatch):
    for name in ("COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    monkeypatch.setattr(probes.platform, "release", lambda: "5.15.90.1-microsoft-standard-WSL2")
    assert gather().places == ["container", "WSL", "Colab", "Kaggle", "Jupyter"]


@pytest.mark.parametrize("cards, found", [
    ({}, None), ({"0": ("0x8086", "0x030000")}, 0), ({"0": ("0x8086", "0x060000"), "1": ("0x10de", "0x030200")}, 1),
    ({"0": ("0x10de", "0x040300"), "1": ("0x10de", "0x030000"), "2": ("0x10de", "0x030000")}, 2),  # one is its sound
])
def test_nvidia_gpus_on_the_bus_are_counted(monkeypatch, tmp_path, cards, found):
    for name, (vendor, kind) in cards.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(vendor + "\n")
        (tmp_path / name / "class").write_text(kind + "\n")
    monkeypatch.setattr(probes, "PCI", tmp_path)
    assert gather().pci_gpus == found


def test_only_wheels_that_name_a_version_of_cuda_are_kept(monkeypatch):
    import importlib.metadata
    from types import SimpleNamespace
    names = ["nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-nvtx", "numpy", None]
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: [
        SimpleNamespace(metadata={"Name": name}, version="9") for name in names])
    assert gather().wheels == {"nvidia-cudnn-cu12": "9", "nvidia-cudnn-cu13": "9"}


@pytest.mark.parametrize("banner, serves", [
    ("| NVIDIA-SMI 580.82.07   Driver Version: 580.82.07   CUDA Version: 13.0 |", "13.0"),
    ("| NVIDIA-SMI 610.43.02   KMD Version: 610.43.02   CUDA UMD Version: 13.3 |", "13.3"),
    ("", None),
])
def test_the_driver_is_asked_through_nvidia_smi(monkeypatch, banner, serves):
    monkeypatch.setattr(probes, "_nvidia_smi", lambda *arguments: ("580.82.07\n580.82.07\n" if arguments else banner, None))
    facts = gather()
    assert (facts.driver, facts.cards, facts.driver_cuda, facts.driver_error) == ("580.82.07", 2, serves, None)


def test_what_nvidia_smi_says_when_it_fails_is_kept(monkeypatch, tmp_path):
    from d2l_gpu import machine as the_machine
    command = tmp_path / "nvidia-smi"
    monkeypatch.setattr(the_machine.shutil, "which", lambda name: str(command))
    for script, words in (("echo 'No devices were found'; exit 6", "No devices were found"),
                          ("echo 'Failed: mismatch' >&2; exit 18", "Failed: mismatch"), ("exit 9", "exit status 9")):
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(0o755)
        assert the_machine._nvidia_smi()[0] is None and words in the_machine._nvidia_smi()[1]
    monkeypatch.setattr(the_machine.shutil, "which", lambda name: None)
    assert the_machine._nvidia_smi() == (None, None)


# ------------------------------------------------------------------------------------------------- control groups
@pytest.mark.parametrize("mine, files, limits", [
    ("0::/", {"cpu.max": "200000 100000", "memory.max": "4294967296"}, (2.0, 4 * GIB)),                       # in a container
    ("0::/", {"cpu.max": "max 100000", "memory.max": "max"}, (None, None)),
    ("0::/job/step", {"job/memory.max": "1073741824", "job/step/memory.max": "max", "job/step/cpu.max": "50000 100000"},
     (0.5, GIB)),                                                                                              # the one above
    ("0::/../../host", {"cpu.max": "150000 100000"}, (1.5, None)),
    ("4:memory:/docker/1\n3:cpu,cpuacct:/docker/1", {"memory/memory.limit_in_bytes": "1073741824", "cpu,cpuacct/cpu.cfs_quota_us":
     "300000", "cpu,cpuacct/cpu.cfs_period_us": "100000"}, (3.0, GIB)),                                        # version 1
    ("4:memory:/\n3:cpu:/", {"memory/memory.limit_in_bytes": "9223372036854771712", "cpu/cpu.cfs_quota_us": "-1",
                             "cpu/cpu.cfs_period_us": "100000"}, (None, None)),
])
def test_the_limits_of_a_container_are_read(tmp_path, mine, files, limits):
    for name, text in {"proc/self/cgroup": mine, **{f"sys/fs/cgroup/{name}": text for name, text in files.items()}}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert cgroups.limits(tmp_path) == limits


# ------------------------------------------------------------------------------------------- names, and explain
@pytest.mark.parametrize("first", ["import d2l_gpu.doctor.report", "from d2l_gpu.doctor.probes import gather",
                                   "from d2l_gpu.doctor import report", "import d2l_gpu.doctor"])
def test_doctor_stays_the_function_whatever_is_imported_first(root, first):
    code = f"{first}\nimport d2l_gpu as d2l\nimport d2l_gpu.doctor.host_rules\nfrom d2l_gpu.doctor import imports\n"
    done = run(["-c", code + "from d2l_gpu import doctor\nprint(d2l.doctor is doctor, callable(doctor))"], root)
    assert done.stdout == "True True\n", done.stderr


def test_the_doctors_modules_do_not_import_torch(root):
    done = run(["-c", "import sys\nsys.modules['torch'] = None\nfrom d2l_gpu.doctor import report, probes, gpu_rules, host_rules\n"
                "print('d2l_gpu.devices' in sys.modules)"], root)
    assert done.stdout == "False\n", done.stderr


def test_explain_prints_what_is_known_of_an_error(root, tmp_path):
    text = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    (tmp_path / "error.txt").write_text(text)
    from_file = run(["-m", "d2l_gpu", "explain", str(tmp_path / "error.txt")], root)
    piped = subprocess.run([sys.executable, "-m", "d2l_gpu", "explain"], input=text, capture_output=True, text=True, cwd=root)
    assert from_file.returncode == piped.returncode == 0, piped.stderr
    assert from_file.stdout == piped.stdout and len(piped.stdout.strip()) > 20


@pytest.mark.parametrize("arguments", [["RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB."],
                                       "RuntimeError: CUDA out of memory".split(), ["CUDA out of memory " + "x" * 5000]])
def test_explain_takes_a_message_in_place_of_a_file(root, arguments):
    done = run(["-m", "d2l_gpu", "explain", *arguments], root)
    assert done.returncode == 0 and "The memory of the GPU is full" in done.stdout, done.stderr


def test_explain_reads_a_file_whose_name_has_blanks(root, tmp_path):
    (tmp_path / "my error.txt").write_text("CUDA out of memory")
    assert "The memory of the GPU is full" in run(["-m", "d2l_gpu", "explain", "my error.txt"], root, tmp_path).stdout


def test_explain_says_which_file_it_cannot_read(root):
    done = run(["-m", "d2l_gpu", "explain", "no-such-file.txt"], root)
    assert done.returncode == 2 and "cannot read file 'no-such-file.txt'" in done.stderr and "Traceback" not in done.stderr


def test_every_rule_is_in_the_report():
    for module in (gpu_rules, host_rules):
        rules = {f for name, f in vars(module).items() if callable(f) and f.__module__ == module.__name__ and name[0] != "_"}
        assert rules - {gpu_rules.hidden, gpu_rules.usable} == set(module.RULES)
