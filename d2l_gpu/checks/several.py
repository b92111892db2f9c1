"""Checkers for chapter 14, several GPUs."""

import contextlib
import copy
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from ..streams import watch_streams
from ..transfers import count_transfers
from . import Hint, call, exercise, some_devices


@exercise("several-1")
def shares(answer):
    fixed = [(65, 2), (5, 4), (64, 2), (1, 8), (6, 4)]
    for n, devices in fixed + [(random.randrange(1, 200), random.randrange(1, 9)) for _ in range(20)]:
        got, right = call(answer, n, devices), [len(part) for part in torch.empty(n).chunk(devices)]
        if not isinstance(got, list) or any(type(size) is not int for size in got):
            raise Hint(f"return a list of whole numbers, not {got!r}.")
        if got == right:
            continue
        said = f"{n} rows on {devices} devices are split into {right}, and you returned {got}. "
        if sum(got) != n:
            raise Hint(said + f"Yours are {sum(got)} rows.")
        if [size for size in got if size] == right:
            raise Hint(said + "A device that gets nothing has no part.")
        if got and got[-1] > got[0]:
            raise Hint(said + "Do not leave all of the remainder to one device.")
        if len(got) > len(right) or got[0] < right[0] or sorted(got, reverse=True) != got:
            raise Hint(said + "All parts but the last are equally large, so that not every device need get one.")
        raise Hint(said + "Round up, and cut until nothing is left.")


class _Products(TorchDispatchMode):
    """The matrix products that are ordered, and whether one was ordered when another had been waited for."""

    def __init__(self, seen):
        super().__init__()
        self.seen, self.orders, self.late = seen, [], False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        product = func._schema.name in ("aten::mm", "aten::bmm", "aten::addmm")
        if product:
            self.late |= any(map(self.seen.done, self.orders))
        out = func(*args, **(kwargs or {}))
        if product:
            self.orders.append(self.seen.orders[-1])
        return out


@exercise("several-2")
def side_by_side(answer):
    with some_devices() as devices:
        if not devices or devices[0].type != "cuda":
            raise Hint("this exercise needs GPUs, and this release of torch cannot simulate any.")
        for order in (devices, devices[::-1]):
            matrices = [torch.randint(1, 5, (random.randrange(3, 9),) * 2, device=device).float() for device in order]
            wanted = [(A.cpu() @ A.cpu()) for A in matrices]
            with watch_streams() as seen, count_transfers() as used, _Products(seen) as products:
                got = call(answer, matrices)
                running = [order for order in products.orders if not seen.done(order)]
            if not isinstance(got, (list, tuple)) or len(got) != len(matrices):
                raise Hint(f"return a list with one product for each of the {len(matrices)} matrices.")
            for A, C in zip(matrices, got):
                if not isinstance(C, torch.Tensor) or C.device != A.device:
                    raise Hint(f"the product of a matrix on {A.device} should be a tensor on {A.device}.")
            if any(not torch.equal(C.cpu(), right) for C, right in zip(got, wanted)):
                raise Hint("these are not the products A @ A.")
            if products.late:
                raise Hint("a product was put into its queue when another had already been waited for: one card stood idle. Queue all "
                           "of them first.")
            if sum(used.copies.values()):
                raise Hint("something was copied between devices. To wait, no number has to be fetched.")
            if len(running) == len(products.orders):
                raise Hint("you returned while the products may still be running: wait for the cards.")
            if running:
                raise Hint("one card was waited for, and another may still be running. Without a device, torch.cuda.synchronize() waits "
                           "for the current one: name each.")


@exercise("several-3")
def local_loss(answer):
    for processes in (2, 2, 3, 4):
        sizes = random.sample(range(1, 20), processes)
        total = sum(sizes)
        net, X, y = nn.Linear(5, 3), torch.randn(total, 5), torch.randint(3, (total,))
        whole = torch.autograd.grad(F.cross_entropy(net(X), y), net.weight)[0]
        parts = []
        for A, b in zip(X.split(sizes), y.split(sizes)):
            loss = call(answer, net(A), b, total, processes)
            if not isinstance(loss, torch.Tensor) or loss.dim() or not loss.requires_grad:
                raise Hint("return the loss as a tensor without dimensions on which backward() can be called.")
            parts.append(torch.autograd.grad(loss, net.weight)[0])
        mean = sum(parts) / processes  # what DDP makes of them
        if torch.allclose(mean, whole, rtol=1e-4, atol=1e-6):
            continue
        for factor, advice in ((processes, "DDP adds up the gradients and then divides by the number of processes: undo that."),
                               (1 / total, "A mean over all samples is wanted, and this is a sum."),
                               (processes / total, "A mean over all samples is wanted: divide by their number.")):
            if torch.allclose(mean * factor, whole, rtol=1e-4, atol=1e-6):
                raise Hint(f"with parts of {sizes} samples the gradient is too small or too large by one factor. {advice}")
        raise Hint(f"with parts of {sizes} samples the gradient is not that of the whole. A sample must count the same in whatever part "
                   "it is; in a mean over its own part it does not.")


@contextlib.contextmanager
def _one_process():
    """A process group of this process alone."""
    if dist.is_initialized():
        yield
        return
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


@exercise("several-4")
def accumulate(answer):
    with _one_process():
        net = nn.Linear(4, 3)
        plain, ddp = copy.deepcopy(net), nn.parallel.DistributedDataParallel(net)
        exchanged, entered, no_sync = [], [], ddp.no_sync

        def counted(group, bucket):
            exchanged.append(bucket.buffer().norm())  # the small net has one bucket
            return allreduce_hook(group, bucket)

        def noted():
            entered.append(True)
            return no_sync()

        ddp.register_comm_hook(None, counted)
        ddp.no_sync = noted
        for net in (ddp, plain):
            net.optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
        for attempt in range(2):
            k = random.randrange(3, 7)
            batches = [(torch.randn(8, 4), torch.randint(3, (8,))) for _ in range(k)]
            exchanged.clear(), entered.clear()
            call(answer, ddp, batches, ddp.optimizer)
            plain.optimizer.zero_grad()
            F.cross_entropy(plain(torch.cat([X for X, _ in batches])), torch.cat([y for _, y in batches])).backward()
            before = plain.weight.detach().clone()
            plain.optimizer.step()
            _judge(k, len(exchanged), entered)
            moved, right = ddp.module.weight.detach() - before, plain.weight.detach() - before
            if torch.allclose(moved, right, atol=1e-5):
                if not torch.allclose(exchanged[0], torch.cat([p.grad.flatten() for p in plain.parameters()]).norm(), rtol=1e-3):
                    raise Hint("what was exchanged were not the gradients of all batches: the others came later, and every process kept "
                               "its own. The last backward has to be the one that exchanges.")
                continue
            if attempt:
                raise Hint("the first call was right, and the second was not: gradients of the first were still there.")
            if torch.allclose(moved, k * right, atol=1e-5):
                raise Hint(f"the update is {k} times too long: divide each loss by the number of batches.")
            if not moved.any():
                raise Hint("the weights have not changed: one optimizer.step() at the end.")
            raise Hint("the update is not that of all batches together. One step, after the last backward.")


def _judge(k, exchanges, entered):
    if exchanges == 0 and not entered:
        raise Hint("the gradients were never exchanged: call net, the wrapper, and not the network in it.")
    if exchanges == 0:
        raise Hint("the gradients were never exchanged: the last backward must be outside of no_sync.")
    if exchanges > 1 and entered:
        raise Hint(f"{exchanges} exchanges for {k} batches, although you use no_sync. Whether gradients will be exchanged is settled in the "
                   "forward pass: it belongs inside, too.")
    if exchanges > 1:
        raise Hint(f"{exchanges} exchanges for {k} batches: all but the last should be under net.no_sync().")
