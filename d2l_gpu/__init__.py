"""GPUs in PyTorch: the helpers that the book's chapters import.

    import d2l_gpu as d2l

Names and signatures follow d2l.torch, the package of *Dive into Deep Learning* (https://d2l.ai). Importing this
package needs torch alone; matplotlib, torchvision and IPython are imported by the functions that use them.
"""

from . import results
from .checks import check
from .data import CLASSES, load_images
from .devices import cpu, gpu, hardware, num_gpus, try_all_gpus, try_gpu
from .plots import draw_results
from .timing import Benchmark, Measurement, Ratio, Timer, compare, synchronize, time_it

__all__ = ["Benchmark", "CLASSES", "Measurement", "Ratio", "Timer", "check", "compare", "cpu", "draw_results", "gpu",
           "hardware", "load_images", "num_gpus", "results", "synchronize", "time_it", "try_all_gpus", "try_gpu"]
__version__ = "0.1.0"
