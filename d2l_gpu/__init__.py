"""GPUs in PyTorch: the helpers that the book's chapters import.

    import d2l_gpu as d2l

Names and signatures follow d2l.torch, the package of *Dive into Deep Learning* (https://d2l.ai). Importing this
package needs torch alone; matplotlib, torchvision and IPython are imported by the functions that use them.
"""

from . import results
from .bottleneck import find_bottleneck
from .checks import check
from .data import CLASSES, load_images
from .devices import cpu, ensure_gpus, gpu, num_gpus, try_all_gpus, try_gpu
from .hardware import hardware
from .limits import MACHINES, roofline
from .loading import DeviceLoader
from .modules import Classifier, DataModule, HyperParameters, Module, add_to_class
from .pipeline import expected_step, timeline
from .plots import draw_results, draw_roofline
from .progress import ProgressBoard
from .timing import Benchmark, Measurement, Ratio, Timer, compare, synchronize, time_it
from .training import Trainer, to
from .transfers import count_transfers

__all__ = [
    "Benchmark", "CLASSES", "Classifier", "DataModule", "DeviceLoader", "HyperParameters", "MACHINES", "Measurement",
    "Module", "ProgressBoard", "Ratio", "Timer", "Trainer", "add_to_class", "check", "compare", "count_transfers",
    "cpu", "draw_results", "draw_roofline", "ensure_gpus", "expected_step", "find_bottleneck", "gpu", "hardware",
    "load_images", "num_gpus", "results", "roofline", "simulate_gpus", "simulated", "synchronize", "time_it",
    "timeline", "to", "try_all_gpus", "try_gpu",
]
__version__ = "0.1.0"


def __getattr__(name):
    if name in ("simulate_gpus", "simulated"):  # the simulator is large: only those who use it pay for it
        from . import simulator
        return getattr(simulator, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
