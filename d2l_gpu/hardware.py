"""What the machine is, as PyTorch sees it."""

import os
from dataclasses import dataclass, field

import torch

from .devices import _has_mps, _simulation, num_gpus
from .machine import _built_for, _cores, _count, _cpu_name, _driver_version, _first_line, _has_code_for, _main_memory


@dataclass
class Device:
    """One line of `hardware()`: `memory` in bytes (None where unknown), `note` for what needs saying."""

    device: str
    name: str
    memory: int | None = None
    note: str = ""


@dataclass
class Hardware:
    """What `hardware()` found; printing it gives a table.

    `torch` version, `build` (what it was built for), `driver` (version of NVIDIA's driver or None),
    `cuda` (why CUDA can or cannot be used), `cores` (that this process may use), `threads` (that one CPU
    operation uses), `devices` (a list of `Device`) and `used` (what `try_gpu()` returns).
    """

    torch: str
    build: str
    driver: str | None
    cuda: str
    cores: int
    threads: int
    devices: list = field(default_factory=list)
    used: str = "cpu"

    def __str__(self):
        rows = [("device", "memory", "name")]
        for d in self.devices:
            memory = "?" if d.memory is None else f"{d.memory / 1e9:.1f} GB = {d.memory / 2**30:.1f} GiB"
            rows.append((d.device, memory, d.name + (f" ({d.note})" if d.note else "")))
        widths = [max(len(row[k]) for row in rows) for k in (0, 1)]
        lines = [f"{a:{widths[0]}}  {b:{widths[1]}}  {c}" for a, b, c in rows]
        return "\n".join(lines + [
            "",
            f"torch    {self.torch}, {self.build}",
            f"driver   {self.driver or 'no NVIDIA driver found'}",
            f"CUDA     {self.cuda}",
            f"CPU      {_count(self.cores, 'core')} for this process, {_count(self.threads, 'thread')} for one operation",
            f"in use   {self.used}",
        ])

    __repr__ = __str__


def hardware():
    """The machine as PyTorch sees it: devices, memory, build of torch, driver, cores, threads.

    Returns a `Hardware`, which prints as a table. Never raises: what cannot be found out is `?` or None, and
    what keeps CUDA from being used is put in words. Memory is in bytes, shown in GB (10^9 bytes, as data
    sheets count) and GiB (2^30 bytes, as PyTorch's messages count).
    """
    driver = _driver_version()
    devices = [Device("cpu", _cpu_name(), _main_memory())]
    problem = None
    try:
        n = num_gpus()
        devices += [_cuda_device(i) for i in range(n)]
    except Exception as error:  # a broken driver must not break the page
        n, problem = 0, f"not available: {_first_line(error)}"
    if _has_mps():
        devices.append(Device("mps", "Apple GPU", note="shares the main memory"))
    if hasattr(torch, "xpu") and torch.xpu.is_available():
        devices += [Device(f"xpu:{i}", torch.xpu.get_device_name(i)) for i in range(torch.xpu.device_count())]
    if _simulation():
        usable = f"{_count(n, 'simulated GPU')}, no real one: {_why_no_cuda(driver)}"
    else:
        usable = problem or (f"available, {_count(n, 'GPU')}" if n else f"not available: {_why_no_cuda(driver)}")
    used = "cuda:0" if n else "mps" if _has_mps() else "cpu"
    return Hardware(torch.__version__, _build(), driver, usable, _cores(), torch.get_num_threads(), devices, used)


def _build():
    if torch.version.cuda:
        return f"built for CUDA {torch.version.cuda}"
    if getattr(torch.version, "hip", None):
        return f"built for ROCm {torch.version.hip}"
    return "built without CUDA"


def _why_no_cuda(driver):
    if not torch.backends.cuda.is_built():
        if driver:
            return "this build of torch has no CUDA; the driver is there, so install a CUDA build"
        return "this build of torch has no CUDA"
    if not driver:
        return "no NVIDIA driver"
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return "CUDA_VISIBLE_DEVICES hides every GPU"
    try:
        torch.cuda.init()
    except Exception as error:  # PyTorch's own reason: a driver too old, a GPU in use by another process ...
        return _first_line(error)
    return "the driver reports no GPU"


def _cuda_device(i):
    properties = torch.cuda.get_device_properties(i)
    if _simulation():
        return Device(f"cuda:{i}", properties.name, properties.total_memory, "in main memory")
    capability = (properties.major, properties.minor)
    note = "compute capability {}.{}".format(*capability)
    archs = torch.cuda.get_arch_list()
    if not _has_code_for(capability, archs):
        has = ", ".join("{}.{}".format(*have) for _, have in _built_for(archs))
        note += f": this build of torch has no code for it (it has {has})"
    return Device(f"cuda:{i}", properties.name, properties.total_memory, note)
