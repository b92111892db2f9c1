"""Make the embedded Fashion-MNIST sample in d2l_gpu/sample/ from the full data set.

    apt-get install dataset-fashion-mnist        # or put the four original .gz files in a folder of your own
    python tools/make_sample.py [FOLDER]

Takes the first 500 training and the first 100 test images of each class, in their original order, and writes
them as four gzip files in the format of the originals (IDX). The same input gives the same bytes.
"""

import gzip
import hashlib
import sys
from pathlib import Path

FOLDER = Path("/usr/share/datasets/fashion-mnist")
SAMPLE = Path(__file__).parents[1] / "d2l_gpu" / "sample"
PIXELS = 28 * 28


def read(path, header):
    """The bytes of an IDX file after its header (4 bytes of magic, then 4 for each dimension)."""
    return gzip.decompress(path.read_bytes())[header:]


def write(path, dimensions, body):
    magic = bytes([0, 0, 8, len(dimensions)])  # 8: unsigned bytes
    content = magic + b"".join(d.to_bytes(4, "big") for d in dimensions) + body
    path.write_bytes(gzip.compress(content, compresslevel=9, mtime=0))
    print(f"{path.name}: {path.stat().st_size:,} bytes, SHA-256 of the content {hashlib.sha256(content).hexdigest()}")


def main(folder):
    SAMPLE.mkdir(exist_ok=True)
    for split, per_class in (("train", 500), ("t10k", 100)):
        images = read(folder / f"{split}-images-idx3-ubyte.gz", 16)
        labels = read(folder / f"{split}-labels-idx1-ubyte.gz", 8)
        taken, counts = [], [0] * 10
        for i, label in enumerate(labels):
            if counts[label] < per_class:
                counts[label] += 1
                taken.append(i)
        assert counts == [per_class] * 10, f"{split}: too few images of a class: {counts}"
        pixels = b"".join(images[i * PIXELS:(i + 1) * PIXELS] for i in taken)
        write(SAMPLE / f"{split}-images-idx3-ubyte.gz", (len(taken), 28, 28), pixels)
        write(SAMPLE / f"{split}-labels-idx1-ubyte.gz", (len(taken),), bytes(labels[i] for i in taken))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
