"""Checkers for chapter 10, profiling."""

import random
from collections import Counter

import torch
from torch.profiler import ProfilerAction

from . import Hint, call, exercise

_WORK = ("kernel", "gpu_memcpy", "gpu_memset")


# --------------------------------------------------------------------------------- the profiler itself
@exercise("profiling-1")
def calls(answer):
    for _ in range(2):
        n, first, inside, cosines = random.randrange(3, 8), random.randrange(2, 5), random.randrange(41, 45), random.randrange(60, 65)
        x, called = torch.ones(3), []

        def step():
            for _ in range(n + (not called) * first):  # the first call sets something up
                torch.sin(x)
            for _ in range(inside):
                x.sin_()
            for _ in range(cosines):
                torch.cos(x)
            called.append(True)

        got = call(answer, step, "aten::sin")
        if not called:
            raise Hint("your function never called step(). Run it once, then once under the profiler.")
        if isinstance(got, bool) or not isinstance(got, int):
            raise Hint(f"return the number of calls as an int, not {type(got).__name__}.")
        if got == n + first:
            raise Hint(f"{got} calls is right for the very first call of step, which sets something up. Call it once before you profile.")
        if got == n + inside or got == n + inside + first:
            raise Hint("you also counted aten::sin_, which is another operator. Compare the whole name.")
        if got and got in (len(called) * n, len(called) * n + first, (len(called) - 1) * n) and got != n:
            raise Hint(f"{got} calls is the sum over several calls of step. One call makes {n}.")
        if got != n:
            raise Hint(f"one call of step makes {n} calls of aten::sin, and you returned {got}.")
    try:
        absent = call(answer, step, "aten::tan")
    except (LookupError, StopIteration):
        raise Hint("an operator that was not called has no row. Then return 0.") from None
    if absent != 0:
        raise Hint(f"an operator that was not called has no row: then return 0, not {absent!r}.")


@exercise("profiling-2")
def profile_three(answer):
    order = ["sin", "cos", "tan", "exp", "sqrt", "abs", "neg", "ceil", "floor", "round"]  # one operator for each call of step
    x, count = torch.ones(3), [0]

    def step():
        getattr(torch, order[min(count[0], len(order) - 1)])(x)
        count[0] += 1

    got = call(answer, step)
    if not hasattr(got, "key_averages"):
        what = "nothing" if got is None else f"a {type(got).__name__}"
        raise Hint(f"your function returned {what}. Return the profiler, the object that `with ... as prof` gives.")
    try:
        rows = {row.key: row.count for row in got.key_averages()}
    except (AssertionError, RuntimeError):
        raise Hint("nothing was recorded. Did you call prof.step() after each step?") from None
    seen = [k + 1 for k, name in enumerate(order) if f"aten::{name}" in rows]
    if 1 in seen:
        raise Hint("the first call was recorded. A schedule with wait=1 leaves it out.")
    if 2 in seen and getattr(got, "schedule", None) and got.schedule(1) == ProfilerAction.WARMUP:
        raise Hint("your schedule is right, but the second call was recorded: prof.step() ends a step, so it comes after step().")
    if 2 in seen:
        raise Hint("the second call was recorded. It is for warming up: with warmup=1 the profiler runs, and throws it away.")
    if count[0] != 5:
        raise Hint(f"step was called {count[0]} times, and should be called 5 times.")
    if seen != [3, 4, 5]:
        raise Hint(f"recorded were the calls {seen or 'none'}, and should be the calls [3, 4, 5]. With active=3, three are.")
    schedule = getattr(got, "schedule", None)
    if schedule is None or rows.get("ProfilerStep*") != 3:
        raise Hint(f"{rows.get('ProfilerStep*', 0)} steps are marked in the table. Call prof.step() after each step, with a schedule.")
    if schedule(1) != ProfilerAction.WARMUP:
        raise Hint("the right calls were recorded, but the profiler did nothing in the second. It should warm up there: warmup=1.")


# ------------------------------------------------------------------------------------ traces as CUDA has them
def _event(cat, name, start, length, lane):
    return {"ph": "X", "cat": cat, "name": name, "pid": 0 if cat in (*_WORK, "gpu_user_annotation") else 4711, "tid": lane,
            "ts": start, "dur": length}


def _with_other_events(spans):
    """The spans among events of the kinds that a trace has besides: names of lanes, and arrows from orders to kernels."""
    other = [{"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "GPU 0"}}]
    for k, span in enumerate(s for s in spans if s["cat"] == "kernel"):
        other += [{"ph": "s", "id": k, "cat": "ac2g", "name": "ac2g", "pid": 4711, "tid": 1, "ts": span["ts"] - 5},
                  {"ph": "f", "id": k, "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": span["tid"], "ts": span["ts"], "bp": "e"}]
    events = spans + other
    random.shuffle(events)
    return events


def _union(intervals):
    total, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _intervals(spans, cats):
    return [(s["ts"], s["ts"] + s["dur"]) for s in spans if s["cat"] in cats]


def _two_streams():
    start, at, spans = random.randrange(10**6), 0, []
    for _ in range(4):
        idle, copy, long, short = (random.randrange(*r) for r in ((200, 300), (40, 60), (100, 150), (30, 50)))
        spans += [_event("user_annotation", "load", start + at, idle, 1), _event("cpu_op", "aten::addmm", start + at + idle, 30, 1),
                  _event("cuda_runtime", "cudaLaunchKernel", start + at + idle + 5, 10, 1)]
        at += idle
        spans += [_event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", start + at, copy, 7),
                  _event("gpu_user_annotation", "forward", start + at, copy + long + 90, 7),
                  _event("kernel", "ampere_sgemm_128x64_tn", start + at + copy, long, 7),
                  _event("kernel", "vectorized_elementwise_kernel", start + at + copy + 20, short, 13),  # inside the other
                  _event("gpu_memset", "Memset (Device)", start + at + copy + long + 60, 12, 7)]
        at += copy + long + 100
    return spans + [_event("cpu_op", "aten::item", start + at, 161 - at % 10, 1)]  # the whole ends in 1: no share has three digits


@exercise("profiling-3")
def busy_share(answer):
    spans = _two_streams()
    everything = _intervals(spans, {s["cat"] for s in spans})
    first, whole = min(everything)[0], max(e for _, e in everything) - min(everything)[0]
    work = _intervals(spans, _WORK)
    right = _union(work) / whole
    events = _with_other_events(spans)
    before = [dict(event) for event in events]
    got = call(answer, events)
    if isinstance(got, bool) or not isinstance(got, (int, float)):
        raise Hint(f"return the share as a float, not {type(got).__name__}.")
    if events != before:
        raise Hint("the list of events has changed. Leave it as it is.")
    wrong = {
        sum(e - s for s, e in work) / whole: "work on two streams overlaps, and you counted the same moment twice",
        _union(_intervals(spans, ("kernel",))) / whole: "these are the kernels alone; copies and memsets are work as well",
        _union(_intervals(spans, ("kernel", "gpu_memcpy"))) / whole: "a gpu_memset is work as well",
        _union(_intervals(spans, (*_WORK, "gpu_user_annotation"))) / whole: "a gpu_user_annotation is a label, gaps included, and no work",
        right * whole / (max(e for _, e in work) - min(work)[0]): "the whole is not from the first to the last work of the GPU, but "
                                                                  "from the first event of all to the end of the last",
        right * whole / (max(s for s, _ in everything) - first): "the whole reaches to the end of the last event, not to its start",
        1 - right: "this is the share in which the GPU was idle",
        100 * right: "these are percent; return a share between 0 and 1",
        _union(everything) / whole: "you counted what the host did too. Only some categories are work of the GPU",
    }
    for value, hint in wrong.items():
        if abs(got - value) < 1e-7 < abs(value - right):
            raise Hint(f"you returned {got:.3f}: {hint}.")
    if 1e-7 < abs(got - right) < 1e-2 and got == round(got, 3):
        raise Hint(f"you returned {got}, which is rounded. Return the share as it is, {right:.6f}.")
    if abs(got - right) > 1e-7:
        raise Hint(f"you returned {got:.3f}, and the GPU was busy for {right:.3f} of the time.")
    nothing = [e for e in spans if e["cat"] not in _WORK]
    if call(answer, nothing) != 0:
        raise Hint("a trace in which the GPU does nothing should give 0.")


def _steps():
    """Spans of four steps with five labels in their roles, and the labels' names by role.

    The GPU idles longest during `culprit`, twice a step. `busy` is the longest label, and the GPU works through it; `once` has the
    longest single gap and the longest mean; `often` occurs the most often and is idle all through; during `copies` the GPU copies.
    """
    names = dict(zip(("culprit", "busy", "once", "often", "copies"),
                     random.sample(["load", "augment", "forward", "backward", "update", "log", "move", "metrics"], 5)))
    at, spans = random.randrange(10**6), []

    def label(role, length, work, cat="kernel"):
        nonlocal at
        spans.append(_event("user_annotation", names[role], at, length, 1))
        spans.append(_event("cpu_op", "aten::copy_", at + 2, length - 4, 1))
        if work:
            spans.append(_event(cat, "work", at - 3, work + 3, 7))  # it began before the label did
            spans.append(_event("gpu_user_annotation", names[role], at - 3, (length if role == "busy" else work) + 3, 7))
        at += length + 1

    for k in range(4):
        label("busy", random.randrange(900, 950), 880)
        for _ in range(2):
            label("culprit", random.randrange(150, 160), 20)
        for _ in range(3):
            label("often", random.randrange(20, 30), 0)
        label("copies", random.randrange(400, 420), 390, "gpu_memcpy")
        label("once", 700 if k == 2 else 60, 10 if k == 2 else 50)
    return spans, names


@exercise("profiling-4")
def idle_label(answer):
    for _ in range(3):
        spans, names = _steps()
        role = {name: role for role, name in names.items()}
        got = call(answer, _with_other_events(spans))
        if not isinstance(got, str):
            raise Hint(f"return the name of a label, a str, not {type(got).__name__}.")
        if got in ("aten::copy_", "work"):
            raise Hint(f"{got!r} is no label. Labels are the events of category user_annotation.")
        if got not in role:
            raise Hint(f"no label is called {got!r}; there are {', '.join(role)}.")
        longest = Counter()
        for span in spans:
            if span["cat"] == "user_annotation":
                longest[span["name"]] += span["dur"]
        right = names["culprit"]
        if role[got] == "busy":
            raise Hint(f"{got!r} takes the longest, but the GPU works meanwhile. The longest is {right!r}: {longest[right]} us, "
                       "nearly all of it with an idle GPU.")
        if role[got] == "once":
            raise Hint(f"{got!r} has the longest single gap. Add up the idle time of each label over all steps, without dividing.")
        if role[got] == "often":
            raise Hint(f"{got!r} occurs the most often, and the GPU is idle all through it, but each time is short. Add up the idle "
                       "time itself: not the occurrences, and not the share of the label.")
        if role[got] == "copies":
            raise Hint(f"during {got!r} the GPU copies. A gpu_memcpy is work as well.")
