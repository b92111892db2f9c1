"""Checkers for chapter 01, devices."""

import random

import torch

from . import Hint, call, exercise


def _device(answer, what):
    """`answer` if it is a torch.device, else a Hint."""
    if isinstance(answer, torch.device):
        return answer
    if answer is None:
        raise Hint(f"for {what} your function returned nothing. Is a return missing?")
    raise Hint(f"for {what} your function returned {answer!r}, a {type(answer).__name__}. "
               "Return a torch.device: torch.device('cpu'), torch.device('cuda', i).")


@exercise("devices-1")
def same_place(answer):
    i = random.randrange(2, 8)
    cases = [("cuda:0", "cuda:0", True), ("cpu", "cpu", True), ("cpu", "cuda:0", False), ("cuda:0", "cuda:1", False),
             ("cuda", "cuda:0", True), (f"cuda:{i}", f"cuda:{i}", True), (f"cuda:{i}", "cuda", False),
             ("cuda:0", "cuda", True), ("cpu:0", "cpu", True), ("mps", "cuda", False), ("cuda", "cuda", True)]
    why = {("cuda", "cuda:0"): "\"cuda\" without an index means the current GPU, which is number 0 here; == does not know that.",
           ("cuda:0", "cuda"): "it must not matter which of the two comes first.",
           ("cuda:0", "cuda:1"): "two GPUs are two devices with a memory each: the type alone does not decide.",
           (f"cuda:{i}", "cuda"): "\"cuda\" without an index is GPU 0 here, not any GPU.",
           ("cpu:0", "cpu"): "there is only one CPU device: with or without an index it is the same place.",
           ("mps", "cuda"): "both have no index, and still they are GPUs of different makers: compare the type too."}
    for a, b, same in cases:
        got = call(answer, torch.device(a), torch.device(b))
        if got is None:
            raise Hint("your function returned nothing. Is a return missing?")
        if bool(got) is not same:
            raise Hint(f"same_place({a}, {b}) should be {same}: " +
                       why.get((a, b), "compare the types first, then the indices."))


@exercise("devices-2")
def nth_device(answer):
    n = random.randrange(2, 9)
    for i, count in [(0, 1), (1, 2), (n - 1, n), (0, n)]:
        got = _device(call(answer, i, count), f"i={i}, n={count}")
        if got.type == "cuda" and got.index is None:
            raise Hint(f"for i={i} of {count} GPUs you returned {str(got)!r}, which is whatever GPU is current. "
                       "Give the index.")
        if got != torch.device("cuda", i):
            raise Hint(f"for i={i} of {count} GPUs you returned {str(got)!r}: that GPU exists, so it is 'cuda:{i}'.")
    for i, count in [(0, 0), (1, 1), (n, n), (n + 2, n), (1, 0)]:
        got = _device(call(answer, i, count), f"i={i}, n={count}")
        if got.type != "cpu":
            raise Hint(f"for i={i} of {count} GPUs you returned {str(got)!r}. With {count} GPUs the last index is "
                       f"{count - 1}, so this one does not exist: return the CPU.")
    for i in (-1, -n):
        try:
            got = call(answer, i, n)
        except ValueError as error:
            if str(i) not in str(error):
                raise Hint(f"a ValueError for i={i} is right, but its message ({str(error)!r}) does not say which value "
                           "was wrong. Name it.")
        except Exception as error:
            raise Hint(f"for i={i} you raised {type(error).__name__}: {error}. A bad argument is a ValueError in Python; "
                       "raise it yourself, before PyTorch sees the index.")
        else:
            raise Hint(f"for i={i} you returned {str(got)!r}. A negative index is a mistake of the caller: raise a "
                       "ValueError instead of hiding it.")


@exercise("devices-3")
def freest_gpu(answer):
    def table(*rows):
        return "\n".join(f"{index}, {name}, {used}, {total}, {busy}" for index, name, used, total, busy in rows) + "\n"

    T4, H200, A = "Tesla T4", "NVIDIA H200", "NVIDIA RTX A6000"
    free = random.randrange(9_000, 14_000)
    cases = [  # each table catches one mistake and lets the others through
        (table((0, A, 39_140, 49_140, 0), (1, A, 40_000, 49_140, 0), (2, A, 39_200, 49_140, 0)), 0,
         "comparing text, where \"9\" comes after \"1\". Compare numbers."),
        (table((0, T4, 14_000, 15_360, 0), (1, A, 3_000, 49_140, 99)), 1,
         "choosing by utilization. A GPU that is busy now may"
         " have room, and an idle one may be full."),
        (table((0, H200, 140_000, 143_771, 50), (1, T4, 15_360 - free, 15_360, 0)), 1,
         "choosing the larger card. Subtract what is used from the total."),
        (table((0, T4, 200, 15_360, 50), (1, H200, 90_000, 143_771, 0)), 1,
         "choosing the least used card. Subtract what is used from the total."),
        (table((3, T4, 15_000, 15_360, 0), (5, T4, 100, 15_360, 0)), 5,
         "taking the line number. The index is in the first column: some GPUs may be missing from the list."),
        (table((0, "NVIDIA A100-SXM4-40GB", 100, 40_960, 0)), 0, "taking the wrong column: there is one GPU, number 0."),
    ]
    for csv, index, why in cases:
        got = _device(call(answer, csv), f"the table\n\n{csv}\n")
        if got != torch.device("cuda", index):
            rows = [row.split(", ") for row in csv.split("\n") if row]
            free = ", ".join(f"{int(total) - int(used)} MiB on {i}" for i, _, used, total, _ in rows)
            raise Hint(f"for the table\n\n{csv}\nyou returned {str(got)!r}, expected 'cuda:{index}' (free: {free}). "
                       f"One way to get this: {why}")
    for csv in ("", "\n"):
        try:
            got = call(answer, csv)
        except (ValueError, IndexError) as error:
            raise Hint(f"an empty table raised {type(error).__name__}: {error}. No GPU means the CPU.")
        if _device(got, "an empty table").type != "cpu":
            raise Hint(f"for an empty table you returned {str(got)!r}: no GPU means the CPU.")


@exercise("devices-4")
def diagnose(answer):
    verdicts = {"ok", "cpu-only build", "no driver", "driver too old", "no gpu visible"}
    big = random.randrange(11, 15)
    cases = [
        (("13.0", "13.0", 1), "ok", "build and driver match, and there is a GPU."),
        ((None, None, 0), "cpu-only build", "both are missing, but a driver would not help this build: name the build first."),
        ((None, "13.0", 0), "cpu-only build", "the driver is there, and this build cannot use it."),
        (("13.0", None, 0), "no driver", "the build has CUDA, and there is no driver to talk to."),
        (("13.0", "12.8", 0), "driver too old", "a build for CUDA 13 needs a driver for CUDA 13."),
        ((f"{big}.1", "9.2", 0), "driver too old", f"9.2 is older than {big}.1. Compare numbers: as text, \"9\" comes after \"1\"."),
        (("12.6", "13.0", 2), "ok", "a newer driver runs an older build: drivers are backward compatible."),
        (("13.2", "13.0", 1), "ok", "within one major version a build runs on a driver of a lower minor version."),
        (("13.0", "13.0", 0), "no gpu visible", "nothing is wrong with the software: there is no GPU, or CUDA_VISIBLE_DEVICES hides it."),
    ]
    for args, expected, why in cases:
        got = call(answer, *args)
        if not isinstance(got, str) or got.lower() not in verdicts:
            raise Hint(f"diagnose{args} returned {got!r}. Return one of {', '.join(sorted(map(repr, verdicts)))}.")
        if got.lower() != expected:
            raise Hint(f"diagnose{args} returned {got!r}, expected {expected!r}: {why}")
