"""What makes the slow script slow, counted while a function of its form trains: nothing is timed."""

import contextlib
import weakref
from collections import Counter

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import dataloader

from ..checks import call
from ..data import load_images
from . import slow


def some(count, train):
    """So many images of the sample and their labels, drawn afresh."""
    images, labels = load_images(train=train)
    rows = torch.randperm(len(labels))[:count]
    return images[rows], labels[rows]


class _Watch(TorchDispatchMode):
    """Counts values that are fetched, and operators on single pictures."""

    def __init__(self):
        super().__init__()
        self.counts, self.updating = Counter(), False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.counts["fetched"] += not self.updating and func._schema.name == "aten::_local_scalar_dense"
        self.counts["single"] += isinstance(out, torch.Tensor) and out.numel() == 28 * 28
        return out


class _Token:
    """Lives as long as the graph that it is attached to."""


def habits(train, device):
    """The slow script's habits that the function `train` has: what they are called, and words on each with its count."""
    n, tests, passes = 5 * 64, 64, 3
    watch, seen, graphs, workers = _Watch(), Counter(), [], dataloader._MultiProcessingDataLoaderIter.__init__
    empty_cache = torch.cuda.empty_cache

    def forward(module, given, out):
        seen["anomaly"] += module.training and torch.is_anomaly_enabled()
        seen["one by one"] += not module.training and len(out) == 1
        seen["evaluation graphs"] += not module.training and out.requires_grad
        if module.training and out.grad_fn is not None:
            token = out.grad_fn.metadata["d2l"] = _Token()
            graphs.append(weakref.ref(token))

    def begun(optimizer, args, kwargs):  # an optimizer's counters lie on the CPU
        watch.updating = True

    def stepped(optimizer, args, kwargs):
        watch.updating = False
        seen["steps"] += 1
        seen["unfused"] += not optimizer.param_groups[0].get("fused")
        seen["graphs"] = max(seen["graphs"], sum(token() is not None for token in graphs))

    def started(self, *args):
        seen["workers"] += 1
        return workers(self, *args)

    def emptied():
        seen["emptied"] += 1
        return empty_cache()

    net = slow.network()
    net.register_forward_hook(forward)
    with contextlib.ExitStack() as stack:
        stack.callback(register_optimizer_step_pre_hook(begun).remove)
        stack.callback(register_optimizer_step_post_hook(stepped).remove)
        stack.callback(setattr, torch.cuda, "empty_cache", empty_cache)
        stack.callback(setattr, dataloader._MultiProcessingDataLoaderIter, "__init__", workers)
        torch.cuda.empty_cache, dataloader._MultiProcessingDataLoaderIter.__init__ = emptied, started
        stack.enter_context(torch.autograd.set_detect_anomaly(False))
        stack.enter_context(watch)
        call(train, net, some(n, True), some(tests, False), device, passes, 0)
    steps, counts = max(1, seen["steps"]), watch.counts
    found = {
        "pictures one by one": counts["single"] >= n and
        f"each picture is prepared by itself, in {counts['single'] / (passes * (n + tests)):.0f} operators",
        "tests one by one": seen["one by one"] >= tests and f"the network sees the {tests} test pictures in {tests} calls",
        "anomaly detection": seen["anomaly"] and "backward runs with anomaly detection, which is for hunting a NaN",
        "fetches": counts["fetched"] > 3 * steps and
        f"{counts['fetched'] / steps:.0f} values are fetched for each step (if, item, int)",
        "plain Adam": seen["unfused"] and "the optimizer updates in many small operators (fused=True)",
        "graphs in evaluation": seen["evaluation graphs"] and "evaluation builds graphs",
        "graphs kept": seen["graphs"] > 2 and
        f"up to {seen['graphs']} graphs are kept at once (a sum of losses with their history)",
        "emptied caches": seen["emptied"] >= steps and "the allocator's cache is emptied in each step",
        "new workers": seen["workers"] > 2 and f"workers were started {seen['workers']} times",
    }
    return {name: words for name, words in found.items() if words}
