"""What the machine is, as the operating system and NVIDIA's driver tell it; works where PyTorch cannot be imported."""

import os
import platform
import shutil
import subprocess


def _count(n, noun):
    return f"{n} {noun}" + "s" * (n != 1)


def _first_line(error):
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _nvidia_smi(*arguments):
    """What nvidia-smi prints, and None; or None and why it prints nothing: its own words, or None if it is not there."""
    inside_wsl = "/usr/lib/wsl/lib/nvidia-smi"  # Windows puts it there, and not every shell searches that folder
    command = shutil.which("nvidia-smi") or (inside_wsl if os.path.exists(inside_wsl) else None)
    if command is None:
        return None, None
    try:
        out = subprocess.run([command, *arguments], capture_output=True, text=True, errors="replace", timeout=20)
    except (OSError, subprocess.SubprocessError) as error:
        return None, _first_line(error)
    if out.returncode == 0 and out.stdout.strip():
        return out.stdout, None
    said = (out.stdout.strip() or out.stderr.strip()).splitlines()
    return None, said[0] if said else f"exit status {out.returncode}, and not a word"


def _driver_version():
    """The NVIDIA driver's version according to nvidia-smi, or None; it knows even if torch has no CUDA."""
    printed, _ = _nvidia_smi("--query-gpu=driver_version", "--format=csv,noheader")
    return printed.split()[0] if printed else None


def _built_for(archs):
    """What `torch.cuda.get_arch_list()` says, as pairs: ("sm", (9, 0)) is machine code, ("compute", (12, 0)) is PTX."""
    pairs = [arch.split("_") for arch in archs if arch.startswith(("sm_", "compute_"))]
    return [(kind, divmod(int(number.rstrip("af")), 10)) for kind, number in pairs]


def _has_code_for(capability, archs):
    """Whether a build of torch with this list of architectures runs on a GPU of this compute capability, as (8, 6).

    Machine code fits within a generation, PTX any newer card. An empty list (ROCm) tells nothing and counts as yes.
    """
    built_for = _built_for(archs)
    return not built_for or any(have <= capability and (kind == "compute" or have[0] == capability[0])
                                for kind, have in built_for)


def _cpu_name():
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine() or "?"


def _cores():
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _main_memory():
    try:
        import psutil
        return psutil.virtual_memory().total
    except Exception:
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
