"""A model of loading and training: when each batch is loaded, copied and computed. It needs nothing, not even torch.

It follows torch/utils/data/dataloader.py: batches go to the workers in turn and come back in order; each worker has at
most `prefetch` batches in hand; when the loop takes a batch, the worker that made it is given another. What is left out:
starting the workers, passing batches between processes, the main process's own need of a core, and the variation of real
times. Nothing here measures: seconds go in, and seconds come out.
"""

from typing import NamedTuple


class Span(NamedTuple):
    """Something that happens to one batch, from `start` to `end`, in seconds."""
    batch: int
    start: float
    end: float


class Timeline(NamedTuple):
    """What `timeline` found: `lanes`, the loads of each worker (without workers one lane, the main process), and the
    GPU's `copies` and `computes`: lists of `Span`."""
    lanes: list
    copies: list
    computes: list

    def per_batch(self, after=0):
        """Seconds from the end of one batch to the end of the next, averaged from batch `after` on.

        The first batches include the start. Batches come in bursts of as many as there are workers: average over a
        multiple of that. Raises ValueError if there is no batch `after`.
        """
        return self._window(after) / (len(self.computes) - after)

    def idle(self, after=0):
        """The share of the time, from batch `after` on, in which the GPU neither computes nor copies: from 0 to 1.

        Raises ValueError if there is no batch `after`.
        """
        busy = sum(span.end - span.start for span in self.copies[after:] + self.computes[after:])
        window = self._window(after)
        return max(0.0, 1 - busy / window) if window else 0.0

    def _window(self, after):
        if not 0 <= after < len(self.computes):
            raise ValueError(f"after must be from 0 to {len(self.computes) - 1}, not {after}")
        return self.computes[-1].end - (self.computes[after - 1].end if after else 0.0)


def timeline(load, compute, workers=0, prefetch=2, batches=12, copy=0.0, cores=None, sync=True):
    """Simulate the first `batches` batches of a training loop that a DataLoader feeds.

    `load`, `copy` and `compute` are the seconds that a batch takes in a worker, over the bus and on the GPU; `load` may be
    a function of the batch's number. With `workers=0` the main process loads. `prefetch` is the DataLoader's
    `prefetch_factor`. At most `cores` workers load at a time (None: all): the others wait for a core.

    The GPU does one thing after another. A copy starts when the GPU has done what came before, and the host waits for it:
    a plain `.to(device)`. With `sync` the host also waits for the computation, as a loop does that reads the loss in every
    step; without it, it goes on to the next batch meanwhile.

    Gives a `Timeline`. Raises ValueError for a time below zero, or a number of workers, cores or batches that cannot be.
    """
    _check(workers=(workers, 0), prefetch=(prefetch, 1), batches=(batches, 1), copy=(copy, 0), compute=(compute, 0),
           cores=(1 if cores is None else cores, 1), load=(0 if callable(load) else load, 0))
    seconds = load if callable(load) else lambda batch: load
    lanes, copies, computes = [[] for _ in range(max(1, workers))], [], []
    core_free = [0.0] * min(workers, cores or workers)
    asked = [0.0] * (prefetch * workers)  # when batch k was put into its worker's queue
    host = gpu = 0.0  # when each is free
    for k in range(batches):
        lane = lanes[k % len(lanes)]
        if workers:
            start = max(asked[k], lane[-1].end if lane else 0.0)
            core = max((c for c in core_free if c <= start), default=min(core_free))
            start = max(start, core)
            core_free[core_free.index(core)] = start + seconds(k)
        else:
            start = host
        lane.append(Span(k, start, start + seconds(k)))
        taken = max(host, lane[-1].end)
        asked.append(taken)
        begin = max(taken, gpu)
        copies.append(Span(k, begin, begin + copy))
        computes.append(Span(k, begin + copy, begin + copy + compute))
        gpu = computes[-1].end
        host = gpu if sync else copies[-1].end
    return Timeline(lanes, copies, computes)


def expected_step(load, compute, workers=0, copy=0.0, cores=None, sync=True):
    """The least seconds per batch in the long run, where `load`, `copy` and `compute` are the averages of a batch.

    With N workers max(load / N, copy + compute): the slower side sets the pace. Without workers load + copy + compute, one
    after another; a loop that does not wait for the GPU (`sync=False`) loads while it computes, copy + max(load, compute).
    `cores` bounds how many workers count. `timeline` comes to the same where all batches take equally long.
    Raises ValueError for a time below zero, or a number of workers or cores that cannot be.
    """
    _check(workers=(workers, 0), copy=(copy, 0), compute=(compute, 0), load=(load, 0), cores=(1 if cores is None else cores, 1))
    if workers:
        return max(load / min(workers, cores or workers), copy + compute)
    return copy + (load + compute if sync else max(load, compute))


def _check(**values):
    for name, (value, least) in values.items():
        if not value >= least:
            raise ValueError(f"{name} must be {least} or more, not {value}")
