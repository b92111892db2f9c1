"""The facts on which a report rests, as a plain record; what they mean is decided in gpu_rules.py and host_rules.py.

A file named random.py beside a notebook breaks much of Python's own library, so the probes import what they need.
"""

import importlib.util
import os
import platform
import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

from ..machine import _cores, _first_line, _main_memory, _nvidia_smi
from . import cgroups
from .imports import shadowing

VARIABLES = ("CUDA_LAUNCH_BLOCKING", "CUDA_VISIBLE_DEVICES", "D2L_GPU_SIMULATE", "NVIDIA_TF32_OVERRIDE", "OMP_NUM_THREADS",
             "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING")
PCI = Path("/sys/bus/pci/devices")


@dataclass
class Gpu:
    """A GPU as PyTorch sees it: `memory`, `free` and `own` (this process's) in bytes; `error` if a first sum failed."""

    name: str
    capability: tuple | None = None
    memory: int | None = None
    free: int | None = None
    own: int = 0
    error: str | None = None


@dataclass
class Facts:
    """What was found out about a machine. None means unknown or not there; sizes are in bytes."""

    system: str = "Linux"
    python: tuple = ()
    executable: str = "python"
    package: str | None = None          # version of d2l_gpu
    torch: str | None = None            # version
    torch_error: str | None = None      # why it cannot be imported
    shadows: list = field(default_factory=list)  # files that were imported in place of a library of the same name
    torchvision: str | None = None
    torchvision_error: str | None = None
    cuda_build: str | None = None       # the CUDA version that torch was built for
    hip_build: str | None = None        # the ROCm version
    archs: list = field(default_factory=list)
    cuda_error: str | None = None       # PyTorch's own reason for not using CUDA
    gpus: list = field(default_factory=list)
    simulated: int = 0
    mps: bool = False
    xpus: int = 0
    driver: str | None = None
    driver_cuda: str | None = None      # the newest CUDA that the driver serves
    driver_error: str | None = None     # why nvidia-smi, which is there, does not answer
    driver_module: str | None = None    # the driver that Linux has loaded, which a container sees, too
    cards: int | None = None            # NVIDIA GPUs that the driver has, before CUDA_VISIBLE_DEVICES
    pci_gpus: int | None = None         # NVIDIA GPUs on the bus, whether or not there is a driver
    wheels: dict = field(default_factory=dict)   # NVIDIA's libraries that pip has installed, by name
    memory: int | None = None
    memory_available: int | None = None
    memory_limit: int | None = None     # of the container or batch job
    cores: int | None = None            # that this process may run on
    machine_cores: int | None = None
    cpu_limit: float | None = None      # CPUs' worth of time that the container or batch job may take
    threads: int | None = None          # that one CPU operation uses
    shm: int | None = None              # size of /dev/shm
    shm_free: int | None = None
    start_method: str | None = None
    open_files: int | None = None
    disk_free: int | None = None        # where temporary files go
    places: list = field(default_factory=list)   # container, WSL, Colab, Kaggle, Jupyter
    environment: dict = field(default_factory=dict)
    unknown: list = field(default_factory=list)  # probes that failed, and how


def gather():
    """The facts about this machine and this process. Never raises: a probe that fails is named in `unknown`."""
    facts = Facts()
    for probe in (_program, _torch, _torchvision, _driver, _cuda, _gpus, _others, _bus, _wheels, _memory, _disk, _cpu,
                  _process):
        try:
            probe(facts)
        except Exception as error:
            facts.unknown.append(f"{probe.__name__[1:]}: {type(error).__name__}: {_first_line(error)}")
    return facts


def _program(facts):
    import d2l_gpu
    facts.system, facts.python, facts.executable = platform.system(), tuple(sys.version_info[:3]), sys.executable
    facts.package = d2l_gpu.__version__
    facts.environment = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    found = {
        "container": Path("/.dockerenv").exists() or Path("/run/.containerenv").exists()
        or "KUBERNETES_SERVICE_HOST" in os.environ,
        "WSL": "microsoft" in platform.release().lower(),
        "Colab": "COLAB_RELEASE_TAG" in os.environ,
        "Kaggle": "KAGGLE_KERNEL_RUN_TYPE" in os.environ,
        "Jupyter": "ipykernel" in sys.modules,
    }
    facts.places = [place for place, here in found.items() if here]


def _torch(facts):
    import d2l_gpu
    error = d2l_gpu._torch_error
    if error is not None:
        facts.torch_error = f"{type(error).__name__}: {str(error).strip()}"
        facts.shadows = shadowing(error)
        return
    import torch
    facts.torch, facts.cuda_build = torch.__version__, torch.version.cuda
    facts.hip_build = getattr(torch.version, "hip", None)
    facts.threads = torch.get_num_threads()
    module = sys.modules.get("d2l_gpu.simulator")
    machine = module.simulated() if module else None
    facts.simulated = machine.n if machine else 0


def _torchvision(facts):
    if facts.torch is None or importlib.util.find_spec("torchvision") is None:
        return
    try:
        import torchvision
        facts.torchvision = torchvision.__version__
    except Exception as error:
        from importlib.metadata import version
        facts.torchvision_error = f"{type(error).__name__}: {str(error).strip()}"
        facts.torchvision = version("torchvision")


def _driver(facts):
    loaded = Path("/proc/driver/nvidia/version")
    if loaded.exists():
        version = re.search(r"\d+\.\d+[\d.]*", loaded.read_text())
        facts.driver_module = version.group() if version else "of unknown version"
    printed, facts.driver_error = _nvidia_smi("--query-gpu=driver_version", "--format=csv,noheader")
    if printed:
        facts.driver, facts.cards = printed.split()[0], len(printed.split())
        banner = re.search(r"CUDA (?:UMD )?Version:\s*(\d+\.\d+)", _nvidia_smi()[0] or "")  # drivers from 610 on say UMD
        facts.driver_cuda = banner.group(1) if banner else None


def _cuda(facts):
    if facts.torch is None or facts.simulated or not (facts.cuda_build or facts.hip_build):
        return
    import torch
    facts.archs = torch.cuda.get_arch_list()
    try:
        torch.cuda.init()
    except Exception as error:  # a driver too old, no driver, a card in a bad state: PyTorch's own words
        facts.cuda_error = str(error).strip()


def _gpus(facts):
    if facts.torch is None or facts.simulated or facts.cuda_error or not (facts.cuda_build or facts.hip_build):
        return
    import torch
    if not torch.cuda.is_available():
        return
    for i in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(i)
        gpu = Gpu(properties.name, (properties.major, properties.minor), properties.total_memory)
        facts.gpus.append(gpu)
        try:
            gpu.free, gpu.own = torch.cuda.mem_get_info(i)[0], torch.cuda.memory_reserved(i)
            (torch.ones(2, device=f"cuda:{i}") + 1).tolist()  # a kernel, and the wait that brings its error up
        except Exception as error:
            gpu.error = str(error).strip()


def _others(facts):
    if facts.torch is None:
        return
    import torch
    facts.mps = bool(hasattr(torch.backends, "mps") and torch.backends.mps.is_available())
    facts.xpus = torch.xpu.device_count() if hasattr(torch, "xpu") and torch.xpu.is_available() else 0


def _bus(facts):
    """Counts NVIDIA's display controllers (vendor 10de, class 03) in Linux's list of PCI devices; WSL does not show them."""
    devices = list(PCI.glob("*"))
    if devices and "WSL" not in facts.places:
        kinds = [[(device / name).read_text().strip() for name in ("vendor", "class")] for device in devices]
        facts.pci_gpus = sum(vendor == "0x10de" and kind.startswith("0x03") for vendor, kind in kinds)


def _wheels(facts):
    from importlib.metadata import distributions
    names = {(d.metadata["Name"] or "").lower(): d.version for d in distributions()}
    facts.wheels = {name: version for name, version in sorted(names.items()) if re.fullmatch(r"nvidia-.*-cu\d+", name)}


def _memory(facts):
    facts.memory = _main_memory()
    if os.path.exists("/proc/meminfo"):
        available = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
        facts.memory_available = int(available.group(1)) * 1024 if available else None
    if os.path.isdir("/dev/shm"):
        facts.shm, _, facts.shm_free = shutil.disk_usage("/dev/shm")


def _disk(facts):
    import tempfile
    facts.disk_free = shutil.disk_usage(tempfile.gettempdir()).free


def _cpu(facts):
    facts.cores, facts.machine_cores = _cores(), os.cpu_count()
    if os.path.exists("/proc/self/cgroup"):
        facts.cpu_limit, facts.memory_limit = cgroups.limits()


def _process(facts):
    import multiprocessing
    facts.start_method = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    if os.name == "posix":
        import resource
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        facts.open_files = None if soft == resource.RLIM_INFINITY else soft
