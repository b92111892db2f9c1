"""GPUs in PyTorch: the helpers that the book's chapters import.

    import d2l_gpu as d2l

Names and signatures follow d2l.torch, the package of *Dive into Deep Learning* (https://d2l.ai). Importing this
package needs torch alone; matplotlib, torchvision and IPython are imported by the functions that use them.
"""

from .checks import check
from .data import CLASSES, load_images
from .devices import cpu, gpu, hardware, num_gpus, try_all_gpus, try_gpu
from .progress import ProgressBoard
from .training import Classifier, DataModule, HyperParameters, Module, Trainer, add_to_class, to

__all__ = ["Classifier", "DataModule", "HyperParameters", "Module", "ProgressBoard", "Trainer", "add_to_class", "to",
           "CLASSES", "check", "cpu", "gpu", "hardware", "load_images", "num_gpus", "try_all_gpus", "try_gpu"]
__version__ = "0.1.0"
