"""Which build of torch a machine can run, and the way to it by pip. Functions of `Facts`; `Facts()` stands for any machine.

PyPI has the build for the newest CUDA on Linux, and none for CUDA on Windows. Builds for CUDA 12, and with them those for
GPUs older than compute capability 7.5, end with release 2.14 (https://github.com/pytorch/pytorch/issues/190385); those for
CUDA 12.6 have no code for Blackwell (10.0 and newer). Source: `PYTORCH_RELEASES_CODE_CC` in torch/cuda/__init__.py, 2.14.
"""

from .findings import command, numbers

PIP = "python -m pip install"
AGAIN = f"{PIP} --force-reinstall"  # "already satisfied" is pip's word for another build of the same release
INDEX = "https://download.pytorch.org/whl"
ANY = "torch torchvision"
CUDA_13 = f"{ANY} --index-url {INDEX}/cu130"
CUDA_12 = f'"torch<2.15" torchvision --index-url {INDEX}/cu126'

#: The oldest driver that serves a major version of CUDA, on Linux and on Windows. Source: NVIDIA, "CUDA Compatibility",
#: minor version compatibility (13: 580, 12: 525), and the CUDA Toolkit's release notes, table of minimum driver versions.
OLDEST_DRIVER = {12: ("525.60.13", "528.33"), 13: ("580.65.06", "580")}
SITES = ("Colab", "Kaggle")


def oldest_driver(f, major):
    """The oldest driver that serves this major version of CUDA here, or None if it is not known."""
    linux, windows = OLDEST_DRIVER.get(major, (None, None))
    return windows if f.system == "Windows" or "WSL" in f.places else linux


def update_the_driver(f, version):
    if managed(f):
        return "The driver is not yours to change: restart the session and leave the torch that is there."
    where = " on Windows, not inside WSL," if "WSL" in f.places else " on the host" if "container" in f.places else ""
    return f"Update the driver{where} (https://www.nvidia.com/drivers){f' to {version} or newer' if version else ''}."


def managed(f):
    """Whether others keep this machine's torch and driver, and the session brings them back."""
    return any(site in f.places for site in SITES)


def packages(f):
    """What to give to `pip install` here, or None if the driver serves no build of torch that this book needs."""
    cards = [gpu.capability for gpu in f.gpus if gpu.capability]
    major = int(f.cuda_build.split(".")[0]) if f.cuda_build else None
    if f.system == "Darwin":
        return ANY
    if f.hip_build:
        return f"{ANY} --index-url {INDEX}/rocm{'.'.join(map(str, numbers(f.hip_build)[:2]))}"
    if f.driver and numbers(f.driver):  # a version that is not in numbers is not judged
        serves = [cuda for cuda in OLDEST_DRIVER if numbers(f.driver) >= numbers(oldest_driver(f, cuda))]
        fits = [cuda for cuda in serves if not cards or (min(cards) >= (7, 5) if cuda > 12 else max(cards) < (10, 0))]
        major = max(fits, default=0)
    elif f.driver and major is None:
        major = 12  # what any driver since 2022 serves
    if major is None:
        return f"{ANY} --index-url {INDEX}/cpu" if f.torch and f.system == "Linux" else ANY
    return {0: None, 12: CUDA_12}.get(major, CUDA_13 if f.system == "Windows" else ANY)


def install(f, words):
    """A way out: the words and the command that brings torch and torchvision of one build, the one that fits here. Where
    others keep torch, or the driver serves no build, the words to that effect instead."""
    if managed(f):
        return "Start the session anew (delete its runtime), which brings back the torch that belongs there, and leave that."
    if (what := packages(f)) is None:
        blackwell = any(gpu.capability and gpu.capability >= (10, 0) for gpu in f.gpus)
        return update_the_driver(f, oldest_driver(f, 13 if blackwell else 12))
    return words + command(f"{AGAIN} {what}")


def fresh(f):
    """A way out: an environment of its own, which leaves the broken one as it is."""
    return ("Make a fresh environment, which leaves the broken one as it is, and activate it:"
            + command("python -m venv fresh") + "Then:" + command(f"{PIP} {packages(f) or ANY}"))
