"""What the facts about the machine around the GPU mean: memory, cores, shared memory, processes, settings.

Each rule takes `Facts` and yields findings, as those in gpu_rules.py do.
"""

import re

from ..machine import _count
from .builds import install, managed
from .findings import OK, PROBLEM, WARNING, Finding, command, size
from .gpu_rules import hidden

SMALL_SHM = 2**30       # Docker gives 64 MiB; a few workers' batches of pictures want more
LITTLE_MEMORY = 2 * 2**30
LITTLE_DISK = 2**30
FEW_FILES = 1024        # what Linux gives by default, and what runs out: one for each tensor that a worker sends


def memory(f):
    if f.memory is None:
        return
    text, usable = size(f.memory), f.memory
    if f.memory_limit is not None and f.memory_limit < f.memory:
        text, usable = f"{text}, of which this container or job may use {size(f.memory_limit)}", f.memory_limit
    if f.memory_available is not None:
        usable = min(usable, f.memory_available)
        text += f"; {size(f.memory_available)} of the machine's is free"
    if usable < LITTLE_MEMORY:
        yield Finding("memory", WARNING, text, "Close other programs, or ask for more; start no DataLoader workers.")
    else:
        yield Finding("memory", OK, text)


def _may_use(f):
    """How many cores' worth of time this process may take; None if that is not known."""
    return f.cores if f.cores is None or f.cpu_limit is None else max(1, min(f.cores, int(f.cpu_limit)))


def cores(f):
    if f.cores is None:
        return
    text = f"{_count(f.cores, 'core')} for this process"
    if f.machine_cores and f.machine_cores > f.cores:
        text += f", of the machine's {f.machine_cores}"
    may_use = _may_use(f)
    if f.cpu_limit is not None and f.cpu_limit < f.cores:
        text += f", and the time of {f.cpu_limit:g} (a limit of the container or job)"
    if f.threads:
        text += f"; {_count(f.threads, 'thread')} for one operation"
    if f.threads and f.threads > may_use:
        yield Finding("cores", WARNING, text + ": the threads get in each other's way",
                      f"Set OMP_NUM_THREADS={may_use} before Python starts, or call torch.set_num_threads({may_use}).")
    else:
        yield Finding("cores", OK, text)


def shared_memory(f):
    """The DataLoader's workers hand their batches over in /dev/shm (https://github.com/pytorch/pytorch/issues/5040)."""
    if f.shm is None:
        return
    room, text = f.shm, size(f.shm)
    if f.shm_free is not None:
        room, text = f.shm_free, f"{text}, {size(f.shm_free)} of it free"
    if room >= SMALL_SHM:
        yield Finding("/dev/shm", OK, text)
        return
    if f.shm >= SMALL_SHM:
        remedy = "Look at what fills it, and delete the torch_ files of programs that are gone:" + command("ls -lh /dev/shm")
    elif "container" in f.places:
        remedy = ("Start the container with --shm-size=8g or --ipc=host (Kubernetes: an emptyDir of medium Memory at "
                  "/dev/shm), or set num_workers=0.")
    else:
        remedy = "Set num_workers=0, or enlarge it:" + command("sudo mount -o remount,size=8g /dev/shm")
    yield Finding("/dev/shm", WARNING, f"{text}: a DataLoader's workers hand their batches over through it; if one does not "
                  'fit, a worker dies of a "Bus error"', remedy)


def start_method(f):
    if f.start_method == "fork":
        yield Finding("start method", OK, "fork: DataLoader workers see what a notebook has defined, and must not touch CUDA")
    elif f.start_method:
        yield Finding("start method", OK, f"{f.start_method}: DataLoader workers import what they need, so a data set, "
                      "transform or lambda defined in a notebook does not reach them; put it into a module")


def open_files(f):
    if f.open_files is not None and f.system == "Linux" and f.open_files <= FEW_FILES:
        yield Finding("open files", WARNING, f'at most {f.open_files}: DataLoader workers may end with "Too many open files"',
                      "Before Python starts:" + command("ulimit -n 4096")
                      + "Or in Python:" + command("torch.multiprocessing.set_sharing_strategy('file_system')"))


def disk(f):
    if f.disk_free is not None and f.disk_free < LITTLE_DISK:
        yield Finding("disk", WARNING, f"{size(f.disk_free)} free for temporary files",
                      "Make room, or set TMPDIR to a folder that has some.")


def places(f):
    said = {
        "container": "in a container: the driver is the host's, and --gpus, --shm-size and limits are set at its start",
        "WSL": "in WSL: the driver is the one of Windows; install none in here",
        "Colab": "on Colab: the GPU is chosen under Runtime, Change runtime type; leave the torch that is there",
        "Kaggle": "on Kaggle: the GPU is chosen in the notebook's settings; take T4 x2, leave the torch that is there",
        "Jupyter": "in Jupyter: what is set in the environment must be set before the kernel starts",
    }
    for place in f.places:
        yield Finding(place, OK, said[place])


def visible(f):
    """CUDA reads the list up to the first entry that is no GPU, and shows none if one is named twice.

    Source: NVIDIA, CUDA C++ Programming Guide, "CUDA Environment Variables".
    """
    name = "CUDA_VISIBLE_DEVICES"
    value = f.environment.get(name)
    if value is None or hidden(f):
        return  # gpu_rules.cuda says what hiding does
    entries = [entry.strip() for entry in value.split(",")]
    wrong = [entry for entry in entries if not re.fullmatch(r"\d+|(GPU|MIG)-[\w/-]+", entry)]
    beyond = [entry for entry in entries if entry.isdecimal() and f.cards is not None and int(entry) >= f.cards]
    if wrong:
        yield Finding(name, WARNING, f"{value!r}: {wrong[0]!r} is no GPU's number, and CUDA reads no further",
                      "Write numbers alone: 0, or 0,1.")
    elif len(set(entries)) < len(entries):
        yield Finding(name, WARNING, f"{value!r} names a GPU twice, and CUDA then shows none", "Name each once.")
    elif beyond:
        yield Finding(name, WARNING, f"{value!r}: GPU {beyond[0]} is not there ({_count(f.cards, 'GPU')}, from 0), and CUDA "
                      "reads no further", f"Write numbers below {f.cards}.")
    else:
        yield Finding(name, OK, f"{value}: only these GPUs are visible, and PyTorch counts them from cuda:0")


def settings(f):
    """Variables of the environment that change what is measured or what runs."""
    env = f.environment
    if env.get("CUDA_LAUNCH_BLOCKING", "0") not in ("", "0"):
        yield Finding("CUDA_LAUNCH_BLOCKING", WARNING, "every kernel is waited for: good for finding an error, slow for all "
                      "else", "Unset it once the error is found.")
    if env.get("PYTORCH_NO_CUDA_MEMORY_CACHING"):
        yield Finding("PYTORCH_NO_CUDA_MEMORY_CACHING", WARNING, "every tensor asks the driver for memory, which is slow",
                      "Unset it.")
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        if env.get(name) and name not in (f.torch_error or ""):
            yield Finding(name, OK, f"the allocator of GPU memory is told {env[name]}")
    if env.get("NVIDIA_TF32_OVERRIDE"):
        yield Finding("NVIDIA_TF32_OVERRIDE", OK, f"{env['NVIDIA_TF32_OVERRIDE']}: it overrides what PyTorch says about TF32")
    threads = env.get("OMP_NUM_THREADS", "").strip()
    if threads and not re.fullmatch(r"\d+(,\d+)*", threads):
        yield Finding("OMP_NUM_THREADS", WARNING, f"{threads!r} is no number, and is not heeded",
                      "Set it to a number, or unset it.")
    elif threads and (may_use := _may_use(f)) and (n := int(threads.split(",")[0])) < may_use:
        if n == 1 or 2 * n < may_use:  # half of them is usual: a core may count twice
            yield Finding("OMP_NUM_THREADS", WARNING, f"{threads}: operations on the CPU leave most of {may_use} cores idle",
                          f"Unset it, or set it to {may_use}, before Python starts. (torchrun sets it to 1 for each of its "
                          "processes.)")
        else:
            yield Finding("OMP_NUM_THREADS", OK, f"{threads}: so many of {may_use} cores work on one operation")
    simulate = env.get("D2L_GPU_SIMULATE", "").strip()
    if simulate and not simulate.isdecimal():
        yield Finding("D2L_GPU_SIMULATE", PROBLEM, f"{simulate!r} is no number of GPUs: ensure_gpus() refuses it",
                      "Set it to 0, 1 or 2, or unset it.")
    elif simulate:
        yield Finding("D2L_GPU_SIMULATE", OK, f"{simulate}: so many GPUs are simulated where a chapter needs some and none "
                      "is real")


def wheels(f):
    """Wheels of one library for two versions of CUDA write the same files: nvidia/cudnn/lib/libcudnn.so.9, for instance."""
    families = {}
    for name in f.wheels:
        library, cuda = name.rsplit("-cu", 1)
        families.setdefault(library, []).append(cuda)
    twice = {library: found for library, found in families.items() if len(found) > 1}
    if twice:
        library, found = min(twice.items())
        keep = f.cuda_build.split(".")[0] if f.cuda_build else max(found)
        drop = " ".join(f"{name}-cu{cuda}" for name in sorted(twice) for cuda in twice[name] if cuda != keep)
        yield Finding("CUDA wheels", WARNING, f"{library} is installed for CUDA {' and '.join(sorted(found))}: both write "
                      "the same files, and torch may load the wrong one",
                      install(f, "") if managed(f) else "Take out the others, and install torch anew:"
                      + command(f"python -m pip uninstall {drop}") + install(f, "Then:"))


def unknown(f):
    for said in f.unknown:
        yield Finding("unknown", WARNING, f"could not be found out: {said}")


RULES = (visible, memory, cores, shared_memory, start_method, open_files, disk, wheels, settings, places, unknown)
