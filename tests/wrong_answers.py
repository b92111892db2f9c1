"""Plausible wrong answers to the exercises: for each, words that its hint must contain."""

import torch

cpu, cuda = torch.device("cpu"), torch.device("cuda")


def card(i):
    return torch.device("cuda", i)


def _rows(csv):
    return [line.split(", ") for line in csv.strip().splitlines()]


def _checked(i):
    if i < 0:
        raise ValueError(f"negative index {i}")


def _nth(compare=lambda i, n: i < n, check=_checked, make=card):
    def answer(i, n):
        check(i)
        return make(i) if compare(i, n) else cpu
    return answer


def _freest(key, make=lambda row, rows: card(int(row[0])), empty=True):
    def answer(csv):
        rows = _rows(csv)
        if not rows and empty:
            return cpu
        row = max(rows, key=key)
        return make(row, rows)
    return answer


def _wrong_order(built_for, driver, gpus):
    if driver is None:
        return "no driver"
    if built_for is None:
        return "cpu-only build"
    return "driver too old" if int(driver.split(".")[0]) < int(built_for.split(".")[0]) else "ok" if gpus else "no gpu visible"


def _diagnose(too_old, visible=True, none="cpu-only build"):
    def answer(built_for, driver, gpus):
        if built_for is None:
            return none
        if driver is None:
            return "no driver"
        if too_old(built_for, driver):
            return "driver too old"
        return "ok" if gpus or not visible else "no gpu visible"
    return answer


def _major(version):
    return int(version.split(".")[0])


def _fresh_value_error(i):
    if i < 0:
        raise ValueError("bad index")


WRONG = {
    "devices-1": {
        "== does not know that": lambda a, b: a == b,
        "the type alone does not decide": lambda a, b: a.type == b.type,
        "compare the type too": lambda a, b: (a.index or 0) == (b.index or 0) if "cpu" not in (a.type, b.type) else a.type == b.type,
        "which of the two comes first": lambda a, b: a.type == b.type and (a.index == b.index or a.index is None and b.index == 0),
        "not any GPU": lambda a, b: a.type == b.type and (a.index == b.index or None in (a.index, b.index)),
        "Is a return missing": lambda a, b: print(end=""),
    },
    "devices-2": {
        "the last index is": _nth(lambda i, n: i <= n),
        "that GPU exists": _nth(lambda i, n: i + 1 < n),
        "Give the index": _nth(make=lambda i: cuda),
        "a str": _nth(make=lambda i: f"cuda:{i}"),
        "hiding it": lambda i, n: card(i % n) if i < n else cpu,
        "you raised RuntimeError": _nth(check=lambda i: torch.device(f"cuda:{i}")),
        "Name it": _nth(check=_fresh_value_error),
    },
    "devices-3": {
        "chose by utilization": _freest(lambda r: -int(r[4])),
        "the larger card": _freest(lambda r: int(r[3])),
        "the least used card": _freest(lambda r: -int(r[2])),
        "compare numbers, not text": _freest(lambda r: str(int(r[3]) - int(r[2]))),
        "It is not the line number": _freest(lambda r: int(r[3]) - int(r[2]), lambda row, rows: card(rows.index(row))),
        "No GPU means the CPU": _freest(lambda r: int(r[3]) - int(r[2]), empty=False),
        "a str": _freest(lambda r: int(r[3]) - int(r[2]), lambda row, rows: f"cuda:{row[0]}"),
    },
    "devices-4": {
        "name the build first": _wrong_order,
        "needs a driver for CUDA 13": _diagnose(lambda built, driver: False),
        'as text, "9" comes after': _diagnose(lambda built, driver: driver.split(".")[0] < built.split(".")[0]),
        "backward compatible": _diagnose(lambda built, driver: _major(driver) != _major(built)),
        "of a lower minor version": _diagnose(lambda built, driver: float(driver) < float(built)),
        "hides it": _diagnose(lambda built, driver: _major(driver) < _major(built), visible=False),
        "Return one of": _diagnose(lambda built, driver: False, none="cpu"),
    },
}
