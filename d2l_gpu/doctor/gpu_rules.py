"""What the facts about PyTorch, the NVIDIA driver and the GPUs mean. Each rule takes `Facts` and yields findings.

A *problem* keeps the book from running, or leaves a GPU unusable for which a build of torch is installed. A *warning* is
what works worse than it could. No GPU at all is ok: the book runs without one.
"""

from ..machine import _built_for, _count, _first_line, _has_code_for
from .builds import AGAIN, CUDA_12, install, managed, oldest_driver, update_the_driver
from .findings import OK, PROBLEM, WARNING, Finding, command, numbers, size
from .imports import explain_import

OLDEST_TORCH, OLDEST_PYTHON = (2, 9), (3, 11)
RESTART = "restart the machine if it is yours alone (on a shared one that ends the work of others: ask its administrator)"


def python(f):
    if f.python:
        text = "Python " + ".".join(map(str, f.python))
        if f.python < OLDEST_PYTHON:
            yield Finding("python", PROBLEM, f"{text} is older than 3.11, which this book needs",
                          "Make an environment with a newer one, for instance:" + command("conda create -n gpu python=3.12"))
        else:
            yield Finding("python", OK, text)


def torch(f):
    if f.torch_error:
        meaning, way_out = explain_import(f.torch_error, f)
        yield Finding("torch", PROBLEM, f"cannot be imported: {meaning}. Its own words: {_first_line(f.torch_error)}",
                      way_out)
    elif f.torch and numbers(f.torch)[:2] < OLDEST_TORCH:
        yield Finding("torch", PROBLEM, f"torch {f.torch} is older than 2.9, which this book needs",
                      install(f, "Install a newer one:"))
    elif f.torch:
        build = (f"built for CUDA {f.cuda_build}" if f.cuda_build else
                 f"built for ROCm {f.hip_build}" if f.hip_build else "built without CUDA")
        yield Finding("torch", OK, f"torch {f.torch}, {build}")


def torchvision(f):
    """Releases go in pairs: torch 2.9 with torchvision 0.24, and so on (https://github.com/pytorch/vision#installation)."""
    if f.torchvision_error:
        meaning, way_out = explain_import(f.torchvision_error, f)
        yield Finding("torchvision", PROBLEM, f"torchvision {f.torchvision or ''} cannot be imported: {meaning}. "
                      f"Its own words: {_first_line(f.torchvision_error)}", way_out)
    elif f.torch and f.torchvision is None:
        yield Finding("torchvision", OK, "not installed; only the full data sets and the transforms need it")
    elif f.torch:
        release = numbers(f.torch)[:2]
        pair = (0, release[-1] + 15) if release[:1] == (2,) else numbers(f.torchvision)[:2]
        if numbers(f.torchvision)[:2] != pair:
            yield Finding("torchvision", WARNING, f"torchvision {f.torchvision} was not made for torch {f.torch}, "
                          "which goes with {}.{}".format(*pair), install(f, "Install both at once:"))
        else:
            yield Finding("torchvision", OK, f"torchvision {f.torchvision}, which goes with this torch")


def driver(f):
    on_cuda = f.torch is not None and f.cuda_build is not None
    unusable = PROBLEM if on_cuda and not f.gpus else WARNING
    if f.driver:
        serves = f", serves CUDA up to {f.driver_cuda}" if f.driver_cuda else ""
        here = f"NVIDIA driver {f.driver}{serves}, {_count(f.cards or 0, 'GPU')}"
        if f.torch and not on_cuda and not f.hip_build:
            yield Finding("driver", WARNING, f"{here}, but this torch is built without CUDA: the GPU lies idle",
                          install(f, "Install one with CUDA:"))
        elif on_cuda and not f.gpus and (old := _too_old(f)) is not None:
            major = int(f.cuda_build.split(".")[0])
            older = major > 12 and not managed(f) and numbers(f.driver) >= numbers(oldest_driver(f, 12))
            other = " Or install a build for CUDA 12:" + command(f"{AGAIN} {CUDA_12}") if older else ""
            yield Finding("driver", PROBLEM, f"NVIDIA driver {f.driver} is too old for torch's CUDA {f.cuda_build}{old}",
                          update_the_driver(f, oldest_driver(f, major)) + other)
        else:
            yield Finding("driver", OK, here)
    elif f.driver_error:
        said = f.driver_error.lower()
        text = f"nvidia-smi does not answer: {f.driver_error}"
        remedy = f"First {RESTART}. If that does not help, install the driver anew."
        if "no devices" in said:
            text, remedy = "the NVIDIA driver finds no GPU", "Look whether the machine, virtual or not, has been given one."
        elif "version mismatch" in said:
            remedy = f"The driver was updated while the old one runs: {RESTART}."
        elif "container" in f.places:
            remedy = "Start the container anew, with --gpus all; then look at nvidia-smi on the host."
        elif "couldn't communicate" in said:
            remedy = (f"The driver is installed and not loaded: {RESTART}; after an update of the kernel install it anew; "
                      "with Secure Boot its module must be signed.")
        yield Finding("driver", unusable, text, remedy)
    elif f.driver_module and not f.gpus:
        yield Finding("driver", WARNING, f"the NVIDIA driver {f.driver_module} is loaded, but out of reach here",
                      "Start the container with --gpus all (it takes the NVIDIA Container Toolkit on the host)."
                      if "container" in f.places else "Install the driver's programs, nvidia-smi among them.")
    elif f.pci_gpus and not f.gpus:
        yield Finding("driver", WARNING, f"{_count(f.pci_gpus, 'NVIDIA GPU')} in this machine, and no NVIDIA driver",
                      "Start the container with --gpus all, on a host that has the driver." if "container" in f.places else
                      "Install it from https://www.nvidia.com/drivers; on Ubuntu:" + command("sudo ubuntu-drivers install"))
    elif not f.gpus:
        none = "" if f.pci_gpus is None else " and no NVIDIA GPU"
        yield Finding("driver", OK, f"no NVIDIA driver{none}: the book needs none")


def _too_old(f):
    """Why the driver is too old for this build, as the end of a sentence; None if it is not."""
    oldest = oldest_driver(f, int(f.cuda_build.split(".")[0]))
    if oldest and () < numbers(f.driver) < numbers(oldest):  # a version that is not in numbers is not judged
        return f", which needs {oldest}"
    if f.driver_cuda and int(f.driver_cuda.split(".")[0]) < int(f.cuda_build.split(".")[0]):
        return f": it serves CUDA up to {f.driver_cuda}"
    return "" if f.cuda_error and "driver on your system is too old" in f.cuda_error else None


def hidden(f):
    """Whether CUDA_VISIBLE_DEVICES hides every GPU."""
    return f.environment.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")


def cuda(f):
    """Whether PyTorch can use the GPUs that the driver has; what `driver` has said is not said again."""
    if f.simulated:
        yield Finding("simulated GPUs", OK, f"{_count(f.simulated, 'simulated GPU')} in this process, in main memory: real "
                      "values and CUDA's rules, no speed. This report is about the real machine.")
    if not f.torch or f.gpus:
        return
    if f.hip_build:
        yield Finding("cuda", WARNING, "built for ROCm, and PyTorch sees no AMD GPU"
                      + (f": {_first_line(f.cuda_error)}" if f.cuda_error else ""),
                      "Install AMD's driver, and add this user to the groups render and video.")
    elif f.cuda_build and f.driver and _too_old(f) is None:
        if hidden(f):
            yield Finding("cuda", WARNING, "CUDA_VISIBLE_DEVICES hides every GPU", "Unset it before Python starts.")
        elif f.simulated:
            yield Finding("cuda", PROBLEM, "PyTorch could use no GPU when the simulation began, though the driver is there",
                          "Run python -m d2l_gpu in a terminal: it gives PyTorch's reason.")
        else:
            reason = _first_line(f.cuda_error) if f.cuda_error else "the driver shows it no GPU"
            yield Finding("cuda", PROBLEM, f"the driver is there, and PyTorch cannot use it: {reason}", _no_start(f, reason))


def _no_start(f, reason):
    """The way out where the driver answers and CUDA does not start."""
    if "802" in reason or "not yet initialized" in reason:
        return ("The GPUs of this server are joined by NVSwitch, and wait for the service nvidia-fabricmanager, of the "
                "driver's own version: its administrator starts it." + command("systemctl status nvidia-fabricmanager"))
    reload = ("After sleep, load a part of the driver anew:" + command("sudo rmmod nvidia_uvm && sudo modprobe nvidia_uvm")
              if "unknown error" in reason and f.system == "Linux" and not f.places else "")
    return (f"Restart Python, or the notebook's kernel. {reload}If it stays, {RESTART}. Then: nvidia-smi -q, and give the "
            "message to python -m d2l_gpu explain.")


def gpus(f):
    for i, gpu in enumerate(f.gpus):
        text = gpu.name + (f", {size(gpu.memory)}" if gpu.memory else "")
        text += f", {size(gpu.free)} of it free" if gpu.free is not None else ""
        if not f.hip_build and gpu.capability:
            text += ", compute capability {}.{}".format(*gpu.capability)
        if not usable(f, gpu):
            yield Finding(f"cuda:{i}", PROBLEM, *_unusable(f, gpu, text))
        elif gpu.memory and gpu.free is not None and gpu.memory - gpu.free - gpu.own > gpu.memory / 2:
            yield Finding(f"cuda:{i}", WARNING, f"{text}: other programs hold most of its memory",
                          "See them with nvidia-smi; shut down notebooks that you have left; or take another GPU.")
        else:
            old = not f.hip_build and gpu.capability and gpu.capability < (8, 0)
            yield Finding(f"cuda:{i}", OK, text + ("; no bfloat16 in hardware: mixed precision takes float16" if old else ""))
    if f.mps:
        yield Finding("mps", OK, "Apple's GPU can be used; it shares the main memory")
    if f.xpus:
        yield Finding("xpu", OK, f"{_count(f.xpus, 'Intel GPU')}, which PyTorch calls xpu; try_gpu() does not look for it")


def usable(f, gpu):
    """Whether this build of torch runs on the GPU, and a first sum did."""
    return gpu.error is None and (not gpu.capability or _has_code_for(gpu.capability, f.archs))


def _unusable(f, gpu, text):
    """What is wrong with the GPU, and the way out."""
    if gpu.capability and not _has_code_for(gpu.capability, f.archs):
        built_for = [have for _, have in _built_for(f.archs)]
        has = ", ".join("{}.{}".format(*have) for have in built_for)
        if gpu.capability >= min(built_for):
            way_out = install(f, "A newer torch may have it:")
        elif "Kaggle" in f.places:
            way_out = "Choose the accelerator GPU T4 x2 in the notebook's settings."
        elif gpu.capability >= (5, 0):  # Maxwell, Pascal, Volta: https://github.com/pytorch/pytorch/issues/172352
            way_out = install(f, "Install the build that still has it:")
        else:
            way_out = "No release of torch that this book needs has it."
        return (f"{text}: this build of torch has no code for it (it has {has})",
                way_out + " Or stay on the CPU: set CUDA_VISIBLE_DEVICES to -1 before Python starts.")
    said = gpu.error.lower()
    if "device-side assert" in said or "illegal memory access" in said or "unspecified launch failure" in said:
        way_out = "An earlier error has spoiled this process: restart Python, or the notebook's kernel."
    elif "out of memory" in said or "busy or unavailable" in said:
        way_out = "Another program holds the GPU: see nvidia-smi, and end what you have left running."
    else:
        way_out = "Restart Python; then give the message to python -m d2l_gpu explain."
    return f"{text}: a first sum on it failed: {_first_line(gpu.error)}", way_out


RULES = (python, torch, torchvision, driver, cuda, gpus)
