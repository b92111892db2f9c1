"""GPUs in PyTorch: the helpers that the book's chapters import.

    import d2l_gpu as d2l

Names and signatures follow d2l.torch, the package of *Dive into Deep Learning* (https://d2l.ai). Importing this
package needs torch alone; matplotlib, torchvision and IPython are imported by the functions that use them. Where torch
cannot be imported, `doctor()` says why, `explain()` and `errors()` work, and every other name raises ImportError.
"""

from .doctor import allocator as _allocator
from .doctor.report import doctor  # this name is the function; the sub-package is reached by from d2l_gpu.doctor import ...

try:
    if _refusal := _allocator.refusal():  # importing torch would end this process
        raise ImportError(_refusal)
    import torch as _torch
    _torch.Tensor  # a file torch.py or a folder of that name can be imported, too
except Exception as error:  # not installed, a library missing or of another version, a numpy of another age ...
    _torch_error = error
else:
    _torch_error = None
    from . import results
    from .bottleneck import find_bottleneck
    from .checks import check
    from .compiling import compile_backend
    from .data import CLASSES, load_images
    from .devices import cpu, ensure_gpus, gpu, num_gpus, try_all_gpus, try_gpu
    from .graphs import GraphModel
    from .hardware import hardware
    from .launching import torchrun
    from .limits import MACHINES, roofline
    from .loading import DeviceLoader
    from .modules import Classifier, DataModule, HyperParameters, Module, add_to_class
    from .pipeline import expected_step, timeline
    from .plots import draw_results, draw_roofline
    from .prefetch import Prefetcher
    from .progress import ProgressBoard
    from .queues import QueueModel
    from .sources import MappedImages, Probe, Stream
    from .streams import watch_streams
    from .timing import Benchmark, Measurement, Ratio, Timer, compare, synchronize, time_it
    from .training import Trainer, to
    from .transfers import count_transfers

__all__ = [
    "Benchmark", "CLASSES", "Classifier", "DataModule", "DeviceLoader", "GraphModel", "HyperParameters", "MACHINES",
    "MappedImages", "Measurement", "Module", "Prefetcher", "Probe", "ProgressBoard", "QueueModel", "Ratio", "Stream",
    "Timer", "Trainer", "add_to_class", "check", "compare", "compile_backend", "count_transfers", "cpu", "doctor",
    "draw_results", "draw_roofline", "ensure_gpus", "errors", "expected_step", "explain", "find_bottleneck", "gpu",
    "hardware", "load_images", "num_gpus", "results", "roofline", "simulate_gpus", "simulated", "synchronize", "time_it",
    "timeline", "to", "torchrun", "try_all_gpus", "try_gpu", "watch_streams",
]
__version__ = "0.1.0"


def __getattr__(name):
    if name in ("errors", "explain"):  # these need no torch
        from .doctor import explain, knowledge
        return {"errors": knowledge.errors, "explain": explain.explain}[name]
    if _torch_error is not None and name in __all__:
        reason = (str(_torch_error).strip() or "no reason given").splitlines()[0]
        raise ImportError(f"d2l_gpu.{name} needs PyTorch, and importing it failed: {type(_torch_error).__name__}: {reason}\n"
                          "For the way out run: python -m d2l_gpu") from _torch_error
    if name in ("simulate_gpus", "simulated"):  # the simulator is large: only those who use it pay for it
        from . import simulator
        return getattr(simulator, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
