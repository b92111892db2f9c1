"""Images to train on: a sample of Fashion-MNIST inside the package, and the full sets on request."""

import gzip
import hashlib
import zlib
from pathlib import Path

import torch

CLASSES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
"""What the labels 0 to 9 of Fashion-MNIST mean: `CLASSES[label]`. Source: the data set's own list, in lower case."""

_SAMPLE = Path(__file__).with_name("sample")
_FILES = {True: ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
          False: ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")}
# MD5 of the uncompressed files (torchvision's own sums are those of the compressed downloads, and it does not
# look again once a file is unpacked).
_MD5 = {
    "sample": {"train-images-idx3-ubyte": "5ea348305eca07bfe76ed7f42143dabf",
               "train-labels-idx1-ubyte": "a1647a8931db75920068476cfb1909a4",
               "t10k-images-idx3-ubyte": "c5442ce2f064c32bf3ec2983a505322f",
               "t10k-labels-idx1-ubyte": "a00963b89d54a5ab6dc42b2b2c57c0e7"},
    "FashionMNIST": {"train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
                     "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
                     "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
                     "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965"},
    "MNIST": {"train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
              "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
              "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
              "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637"},
}


def load_images(name="sample", train=True, root="data"):
    """Images and their labels, as two tensors on the CPU.

    `name` is "sample" (5,000 training and 1,000 test images of Fashion-MNIST, inside this package: no network,
    and the same everywhere), "FashionMNIST" or "MNIST" (60,000 and 10,000; torchvision downloads them once to
    the folder `root`, about 30 MB and 12 MB). `train=False` gives the test images.

    Returns `images`, uint8 of shape (N, 1, 28, 28) with values 0 to 255, and `labels`, int64 of shape (N,)
    with values 0 to 9.

    Raises ValueError for an unknown name, ImportError if torchvision is needed and missing, ConnectionError if
    a set cannot be downloaded, and ValueError, naming the file, if a file is damaged: no file is used whose
    checksum is not the published one.

    Source: Xiao, Rasul, Vollgraf, "Fashion-MNIST", 2017 (MIT license, see d2l_gpu/sample/LICENSE); LeCun,
    Cortes, Burges, "The MNIST database of handwritten digits".
    """
    if name not in _MD5:
        raise ValueError(f"unknown data set {name!r}: choose one of {', '.join(map(repr, _MD5))}")
    folder = _SAMPLE if name == "sample" else _download(name, root)
    images, labels = (_read(name, folder, file) for file in _FILES[train])
    count = len(labels) - 8  # the labels' header: magic number and count, 4 bytes each
    images = torch.frombuffer(images, dtype=torch.uint8, offset=16).view(count, 1, 28, 28)
    return images, torch.frombuffer(labels, dtype=torch.uint8, offset=8).long()


def _download(name, root):
    """Let torchvision download, verify and unpack the set `name`, unless it is there; returns the files' folder."""
    try:
        import torchvision
    except ImportError as error:
        raise ImportError(f"the full {name} needs torchvision (pip install torchvision); the embedded sample, "
                          'load_images("sample"), needs nothing') from error
    folder = Path(root) / name / "raw"
    if not all((folder / file).exists() for files in _FILES.values() for file in files):
        try:
            getattr(torchvision.datasets, name)(root, download=True)
        except (OSError, RuntimeError, EOFError) as error:  # no network, mirrors down, a cut download, a full disk
            reason = " ".join(f"{type(error).__name__}: {error}".split())  # torchvision's text has many lines
            raise ConnectionError(
                f"{name} could not be downloaded to {folder} ({reason}). Try again with a network, or use the "
                'embedded sample, which needs none: load_images("sample")') from error
    return folder


def _read(name, folder, file):
    """The bytes of one file in the IDX format of MNIST, checked against its published checksum."""
    path = folder / (f"{file}.gz" if name == "sample" else file)
    try:
        content = gzip.decompress(path.read_bytes()) if name == "sample" else path.read_bytes()
        damaged = hashlib.md5(content, usedforsecurity=False).hexdigest() != _MD5[name][file]
    except (OSError, EOFError, zlib.error) as error:  # unreadable, cut short, or no gzip file
        damaged = f"{type(error).__name__}: {error}"
    if damaged:
        way_out = ("install d2l_gpu again" if name == "sample" else
                   'delete it and call again, or use the embedded sample: load_images("sample")')
        reason = damaged if isinstance(damaged, str) else "its checksum is not the published one"
        raise ValueError(f"{path} is damaged ({reason}): {way_out}")
    return bytearray(content)
