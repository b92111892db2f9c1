"""Checkers for chapter 02, tensors on a GPU."""

import math
import random

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import Hint, call, exercise, some_devices


@exercise("tensors-1")
def tensor_bytes(answer):
    a, b = random.randrange(2, 50), random.randrange(2, 50)
    cases = [((a, b), torch.float32, ""),
             ((a, b), torch.float64, "A float64 takes 8 bytes: ask the dtype."),
             ((a, b), torch.bfloat16, "A bfloat16 takes 2 bytes: ask the dtype."),
             ((a,), torch.bool, "A bool takes a whole byte."),
             ((a, b, 3), torch.uint8, "All dimensions count."),
             ((), torch.float32, "A tensor without dimensions holds one number."),
             ((a, 0), torch.int64, "No rows or columns, no numbers."),
             ((10**6, 10**6, a), torch.float32, "")]  # nobody can make this one
    for shape, dtype, why in cases:
        got, expected = call(answer, shape, dtype), math.prod(shape) * dtype.itemsize
        if got is None:
            raise Hint("your function returned nothing. Is a return missing?")
        if got == math.prod(shape) and got != expected:
            raise Hint(f"for {shape} and {dtype} you returned {got}: that is how many numbers there are. "
                       "Multiply by the bytes of one.")
        if got == 8 * expected and expected:
            raise Hint(f"for {shape} and {dtype} you returned {got}: those are bits. A byte is 8 of them.")
        if shape and got == sum(shape) * dtype.itemsize != expected:
            raise Hint(f"for {shape} and {dtype} you returned {got}: the dimensions are multiplied, not added.")
        if got != expected:
            raise Hint(f"for {shape} and {dtype} you returned {got}, expected {expected}. {why}")


@exercise("tensors-2")
def allocation(answer):
    def units(shape, dtype):
        return -(-math.prod(shape) * dtype.itemsize // 512) * 512

    n = random.randrange(3, 9)
    cases = [[((500, 500), torch.float32)], [((128,), torch.float32)], [((n,), torch.uint8)] * n,
             [((1001, n), torch.float32), ((1001, n), torch.int64)], [((0,), torch.float32)], []]
    for tensors in cases:
        got, expected = call(answer, list(tensors)), sum(units(*t) for t in tensors)
        exact = sum(math.prod(shape) * dtype.itemsize for shape, dtype in tensors)
        if got is None:
            raise Hint("your function returned nothing. Is a return missing?")
        if got == expected:
            continue
        said = f"for {tensors} you returned {got}, expected {expected}."
        if got == exact:
            raise Hint(f"{said} These are the numbers' own bytes: round each tensor up to a multiple of 512.")
        if got == -(-exact // 512) * 512:
            raise Hint(f"{said} Each tensor gets units of its own: round every tensor, then add.")
        if got == sum(b // 512 * 512 for b in (math.prod(s) * d.itemsize for s, d in tensors)):
            raise Hint(f"{said} You rounded down: then the last numbers have no place.")
        if got == sum((math.prod(s) * d.itemsize // 512 + 1) * 512 for s, d in tensors):
            raise Hint(f"{said} Bytes that fill their units exactly (and none at all) need no further unit.")
        raise Hint(said)


class _Draws(TorchDispatchMode):
    """Notes on which devices random numbers are drawn: simulated GPUs draw the CPU's, so the values do not tell."""

    def __init__(self):
        super().__init__()
        self.places = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded in func.tags and isinstance(out, torch.Tensor):
            self.places.add(out.device.type)
        return out


@exercise("tensors-3")
def noise_like(answer):
    seed = random.randrange(10_000)
    with some_devices() as devices:
        for device in [torch.device("cpu"), *devices]:
            for dtype in (torch.float32, torch.float64):
                x = torch.ones(5, 8, dtype=dtype, device=device)
                state = torch.get_rng_state()
                with _Draws() as drawn:
                    got = call(answer, x, seed)
                if not isinstance(got, torch.Tensor):
                    raise Hint(f"your function returned {got!r}. Return a tensor.")
                if not torch.equal(state, torch.get_rng_state()):
                    raise Hint("the program's other random numbers changed: you used or seeded the global generator. "
                               "Make a torch.Generator of your own.")
                if got.device != x.device:
                    raise Hint(f"x is on {x.device}, your noise on {got.device}. Move it there.")
                if got.dtype != dtype:
                    raise Hint(f"x is {dtype}, your noise {got.dtype}. Take over the dtype too.")
                if got.shape != x.shape:
                    raise Hint(f"x has shape {tuple(x.shape)}, your noise {tuple(got.shape)}.")
                if drawn.places - {"cpu"}:
                    raise Hint(f"you drew the numbers on {x.device}. Each kind of device has its own algorithm, so they differ "
                               "from device to device. Draw on the CPU, then move.")
                noise = torch.randn(5, 8, generator=torch.Generator().manual_seed(seed), dtype=dtype)
                again = call(answer, x, seed)
                if not torch.equal(got.cpu(), again.cpu()):
                    raise Hint(f"with seed {seed} two calls gave different numbers.")
                if torch.equal(got.cpu(), call(answer, x, seed + 1).cpu()):
                    raise Hint("another seed gave the same numbers.")
                if not torch.allclose(got.cpu(), noise):
                    raise Hint(f"the numbers on {x.device} are not those that a CPU generator with this seed gives. "
                               "Draw on the CPU in the dtype of x, then move.")


@exercise("tensors-4")
def best_rows(answer):
    with some_devices() as devices:
        for device in [torch.device("cpu"), *devices]:
            n, d = random.randrange(6, 12), 5
            values = torch.randperm(n * d, generator=torch.Generator().manual_seed(random.randrange(999)))
            batch = values.float().view(n, d).to(device)
            for scores in (torch.arange(1.0, n + 1).roll(n // 2), torch.arange(1.0, n + 1), torch.arange(n, 0, -1.0)):
                for k in (1, 3, n):
                    given = batch.clone()
                    got = call(answer, given, scores.to(device), k)
                    if not isinstance(got, torch.Tensor):
                        raise Hint(f"your function returned {got!r}. Return a tensor.")
                    want = batch.cpu()[scores.argsort(descending=True)[:k]]
                    if got.shape != want.shape:
                        raise Hint(f"for k={k} your result has shape {tuple(got.shape)}, expected {tuple(want.shape)}.")
                    if got.device != batch.device:
                        raise Hint(f"the batch is on {batch.device}, your result on {got.device}: it should stay there.")
                    if not torch.equal(got.cpu(), want):
                        if torch.equal(got.cpu(), want.flip(0)):
                            raise Hint("the rows are right and in the wrong order: best first.")
                        if torch.equal(got.cpu(), batch.cpu()[:k]):
                            raise Hint("these are the first rows. Choose by the scores.")
                        raise Hint(f"these are not the {k} rows with the highest scores, best first.")
                    if got.untyped_storage().nbytes() != k * d * 4:
                        raise Hint(f"your {k} rows of {k * d * 4} bytes keep {got.untyped_storage().nbytes()} bytes alive: "
                                   "they are a view of something larger. Copy them.")
                    if got.data_ptr() == given.data_ptr():
                        raise Hint("your result is the batch itself: a later change to it would change your rows.")
