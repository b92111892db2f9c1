"""The ratios that the book claims, measured here in one run: `make bench`, or `python tools/bench.py`.

    python tools/bench.py [--only NAME ...] [--pairs 7] [--steps 40] [--threads 1]

Both sides of a ratio are timed in turns (d2l_gpu.compare), and the ratio is the median over the pairs. At the end there is one
line for each, `ratio NAME VALUE`, for other programs to read. To add a ratio, write a function that yields its two sides and
give it a line in RATIOS.
"""

import argparse
import contextlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

import d2l_gpu as d2l  # noqa: E402
from bench_training import board_over_none, simulator_over_cpu, trainer_over_bare  # noqa: E402
from d2l_gpu.datasets import BatchedTensors, as_it_is, normalized  # noqa: E402
from d2l_gpu.ladder import BATCH, ladder, sixty_thousand  # noqa: E402
from d2l_gpu.results import format_ratio, format_time  # noqa: E402
from d2l_gpu.timing import compare  # noqa: E402


def rungs(slow, fast, images=None):
    """A ratio between two rungs of the training experiment: a pass over `images`, or over `steps` batches, at each."""
    @contextlib.contextmanager
    def sides(device, steps):
        by_name = {rung.name: rung for rung in ladder(device, images=images or BATCH * steps)}
        with by_name[slow].open() as slow_pass, by_name[fast].open() as fast_pass:
            yield slow_pass, fast_pass
    return sides


class IndexSelect:
    """The least that a pass in a new order takes: a permutation, and the rows of each batch picked."""

    def __init__(self, X, y):
        self.X, self.y = X, y

    def __iter__(self):
        for rows in torch.randperm(len(self.y), device=self.y.device).split(BATCH):
            yield self.X.index_select(0, rows), self.y.index_select(0, rows)


#: What gives batches of normalized images that lie in memory, without a transform. The best DataLoader is the fastest
#: that we found: no workers, and whole batches fetched by an index tensor.
LOADERS = {
    "tensor-dataset": lambda X, y: DataLoader(TensorDataset(X, y), BATCH, shuffle=True),
    "best-dataloader": lambda X, y: DataLoader(BatchedTensors(X, y), BATCH, shuffle=True, collate_fn=as_it_is),
    "device-loader": lambda X, y: d2l.DeviceLoader((X, y), BATCH, shuffle=True, device=X.device),
    "index-select": IndexSelect,
}


def loaders(slow, fast):
    """A ratio between two loaders alone: a pass over 60,000 images in main memory, nothing done with the batches."""
    @contextlib.contextmanager
    def sides(device, steps):
        images, labels = sixty_thousand()
        both = [LOADERS[name](normalized(images), labels) for name in (slow, fast)]
        yield tuple(lambda loader=loader: [None for _ in loader] for loader in both)
    return sides


@contextlib.contextmanager
def one_by_one(device, steps):
    """Products of 100 x 100, one after another against all at once."""
    A, B = (torch.randn(10 * steps, 100, 100, device=device) for _ in range(2))
    yield lambda: [a @ b for a, b in zip(A, B)], lambda: torch.bmm(A, B)


@contextlib.contextmanager
def fetch_each(device, steps):
    """The norms of products, each fetched by the host against all fetched at the end (K22: a fixed pair)."""
    A, B = (torch.randn(100, 100, device=device) for _ in range(2))
    yield (lambda: [(A @ B).norm().item() for _ in range(10 * steps)],
           lambda: torch.stack([(A @ B).norm() for _ in range(10 * steps)]).tolist())


@contextlib.contextmanager
def cpu_product(device, steps):
    """The product of 75 x 75 for each step (3000 x 3000 for 40) on the CPU against the device, data in place."""
    size = 75 * steps
    A, B = torch.randn(size, size), torch.randn(size, size)
    X, Y = A.to(device), B.to(device)
    yield lambda: A @ B, lambda: X @ Y


@contextlib.contextmanager
def pageable_copy(device, steps):
    """A copy to the device from pageable memory against one from pinned memory, 1 MiB for each step."""
    source, there = torch.ones(steps * 2**18), torch.empty(steps * 2**18, device=device)
    pinned = source.pin_memory()
    yield lambda: there.copy_(source), lambda: there.copy_(pinned, non_blocking=True)


#: name: (what is slow / what is fast, the two sides, whether they need CUDA)
RATIOS = {
    "tensors": ("pictures read one by one / TensorDataset", rungs("pictures", "TensorDataset"), False),
    "batched_fetch": ("TensorDataset / the same, batched fetch", rungs("TensorDataset", "TensorDataset, batched fetch"), False),
    "resident": ("batched fetch / data on the device", rungs("TensorDataset, batched fetch", "data on the device"), False),
    "fused_adam": ("Adam / fused Adam", rungs("data on the device", "fused Adam"), False),
    "no_item": (".item() each step / none", rungs("fused Adam", "no .item() in the loop"), False),
    "ladder/baseline": ("first rung / last one without a graph, 60,000 images",
                        rungs("pictures", "no .item() in the loop", images=60_000), False),
    "tensor-dataset/device-loader": ("TensorDataset / DeviceLoader, alone", loaders("tensor-dataset", "device-loader"), False),
    "best-dataloader/device-loader": ("best DataLoader / DeviceLoader, alone", loaders("best-dataloader", "device-loader"), False),
    "device-loader/index-select": ("DeviceLoader / bare loop, alone", loaders("device-loader", "index-select"), False),
    "one_product": ("many small products / one batched", one_by_one, False),
    "fetch_once": ("fetch every norm / fetch once", fetch_each, False),
    "trainer/bare": ("Trainer / the same loop by hand", trainer_over_bare, False),
    "board/none": ("100 epochs with a board / without", board_over_none, False),
    "simulator/cpu": ("MLP on a simulated GPU / on the CPU", simulator_over_cpu, False),
    "cuda_graph": ("no graph / graph of 16 steps", rungs("no .item() in the loop", "CUDA graph of 16 steps"), True),
    "product": ("product on the CPU / on the GPU", cpu_product, True),
    "pinned": ("copy, pageable / pinned", pageable_copy, True),
}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=RATIOS, metavar="NAME", help=f"of {', '.join(RATIOS)}")
    parser.add_argument("--pairs", type=int, default=7, help="runs of each side")
    parser.add_argument("--steps", type=int, default=40, help="batches in one pass, and the size of the other sides")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of one operation")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    device = d2l.try_gpu()
    print(f"{d2l.results.this_machine()['machine']}, torch {torch.__version__}, device {device}, "
          f"{options.threads} CPU thread(s), {options.pairs} pairs\n")
    print(f"{'name':31}{'slow':>10}{'fast':>10}{'ratio':>8}   {'middle half':15}what")
    values = {}
    for name, (what, sides, needs_cuda) in RATIOS.items():
        if (options.only and name not in options.only) or (needs_cuda and device.type != "cuda"):
            continue
        with sides(device, options.steps) as (slow, fast):
            ratio = compare(slow, fast, name, pairs=options.pairs)
        low, high = (format_ratio(value) for value in ratio.spread)
        print(f"{name:31}{format_time(ratio.slow.median):>10}{format_time(ratio.fast.median):>10}"
              f"{format_ratio(ratio.median):>8}   {f'{low} to {high}':15}{what}", flush=True)
        values[name] = ratio.median
    print()
    for name, value in values.items():
        print(f"ratio {name} {value:.3f}")
    return 0 if values else "no ratio was measured: those named need CUDA"


if __name__ == "__main__":
    sys.exit(main())
