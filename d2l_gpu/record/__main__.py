"""Measure this machine and write results/<machine>.json.

    python -m d2l_gpu.record --minutes 8

The most telling comes first: matrix products, the training experiment rung by rung, copies, single operations and training
steps from tiny to large, mixed precision, the profiler's own cost, streams, memory, torch.compile, convolutions with the
channels last, simulated GPUs against real ones, and every chapter's cells on the real devices. It needs torch, torchvision
and matplotlib. Stop it whenever you like: what is done is in the file.
"""

import argparse
import sys

from . import recorder


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m d2l_gpu.record", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=8, help="the time that all parts may take together")
    parser.add_argument("--parts", help="a comma between names: only these, the rest of the file is kept")
    parser.add_argument("--file", help="where to write (default: results/<machine>.json)")
    parser.add_argument("--images", type=int, default=60_000, help="images in one pass of the training experiment")
    parser.add_argument("--largest", type=int, default=8192, help="rows of the largest matrix")
    parser.add_argument("--only", help=argparse.SUPPRESS)  # one part, in this process
    parser.add_argument("--seconds", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)

    from . import parts
    from .reports import Plan
    if options.only:
        recorder.serve(parts.PARTS[options.only][0], Plan(options.seconds, options.images, options.largest))
        return 0
    names = [name.strip() for name in options.parts.split(",")] if options.parts else list(parts.PARTS)
    unknown = [name for name in names if name not in parts.PARTS]
    if unknown:
        parser.error(f"no part is called {unknown[0]!r}; there are {', '.join(parts.PARTS)}")
    shares = {name: parts.PARTS[name][1] if not options.parts else 1.0 for name in names}
    try:
        data, path = recorder.record(shares, options.minutes, {"images": options.images, "largest": options.largest},
                                     options.file, everything=not options.parts)
    except recorder.Stopped as stop:
        print(f"{stop}; what was measured is in the file")
        return 128 + stop.number
    print(f"{len(data['measurements'])} measurements in {path.name}")
    return 0 if any(p["state"] in ("done", "cut short") for p in data["parts"]) else 1


if __name__ == "__main__":
    sys.exit(main())
