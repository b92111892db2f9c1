"""What machines measured: one JSON file each in results/, read, checked, written and put side by side.

This module needs the standard library alone (the book's pages read it without torch); only `this_machine` asks
torch. A record is a dict:

    format        1
    machine       what it is called on a page: the GPU's name, or the CPU's and its cores
    published     None for what was measured with this package; for others' figures {"source", "note"}
    date          of the measurement, YYYY-MM-DD, or of the publication; None where unknown
    versions      {"python": ..., "torch": ..., "torchvision": ..., "build": ...}, those that are known
    driver        version of NVIDIA's driver, or None
    cores         CPU cores that the process may use, or None; threads: of one operation, or None
    devices       a list of {"device", "name", "memory" (bytes or None), "note"}
    parts         what was run: a list of {"part", "state", "seconds", "note"}, state one of STATES
    measurements  a list of {"part", "name", "device", "unit", "median", "spread", "runs", "setting"}: the unit is
                  "s" (seconds) or "B" (bytes), spread the first and third quartile (None for one run), setting a flat
                  dict
    chapters      a list of {"chapter", "passed", "cells", "of", "seconds", "error"}: chapters run on this machine, the
                  code cells that ran and how many there are
    placement     None, or {"cases", "differences"}: simulated GPUs against this machine's
"""

import datetime
import getpass
import json
import math
import os
import platform
import re
import statistics
from pathlib import Path

FORMAT = 1
STATES = ("done", "cut short", "failed", "skipped", "running")
UNITS = ("s", "B")
_HERE = Path(__file__).resolve().parent
#: Where records are looked for: the repository's folder, and the copy that an installed package brings along.
FOLDERS = (_HERE.parent / "results", _HERE / "recorded")


# -------------------------------------------------------------------------------------- one form for all figures
def format_time(seconds):
    """A time in the unit that suits it, to three digits: 0.0123 is "12.3 ms"."""
    for unit, scale in (("s", 1), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)):
        if abs(seconds) >= 0.9995 * scale:
            break
    value = abs(seconds / scale)
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{seconds / scale:.{digits}f} {unit}"


def format_bytes(count):
    """A number of bytes to three digits, in powers of 1000: 4,000,000 is "4.00 MB"."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= 0.9995 * scale:
            value = count / scale
            return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {unit}"
    return f"{count:g} B"


def format_ratio(ratio):
    """A ratio as "1.2x"; from 100 on without decimals, below 0.1 with the digits that say something."""
    return f"{ratio:.0f}x" if ratio >= 99.95 else f"{ratio:.1f}x" if ratio >= 0.095 else f"{ratio:.2g}x"


def middle_half(values):
    """The first and third quartile of `values`, a list of at least one: half of them lie between the two."""
    if len(values) == 1:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def format_median(median, spread, runs, form=format_time, noun="run"):
    """The one form of a measured figure: "612 ms (598 to 640 ms, 7 runs)", without the spread where it is None."""
    count = f"{runs} {noun}" + "s" * (runs != 1)
    if spread is None:
        return f"{form(median)} ({count})"
    low, high = (form(value) for value in spread)
    if low.split()[1:] == high.split()[1:]:
        low = low.split()[0]  # the unit once
    return f"{form(median)} ({low} to {high}, {count})"


def format_entry(entry, spread=True):
    """The figure of one entry of a record, with its spread and runs unless `spread` is False."""
    form = format_bytes if entry["unit"] == "B" else format_time
    return format_median(entry["median"], entry["spread"], entry["runs"], form) if spread else form(entry["median"])


# --------------------------------------------------------------------------------------------- making a record
def entry(part, name, device, values, unit="s", **setting):
    """One measurement of a record: the median and the middle half of `values`, one for each run, in `unit` ("s" or "B").

    `device` is a device or its name; what else distinguishes the measurement goes into `setting`, such as `size=4096`.
    """
    values = [float(value) for value in values]
    return {"part": part, "name": name, "device": str(device), "unit": unit, "median": statistics.median(values),
            "spread": list(middle_half(values)) if len(values) > 1 else None, "runs": len(values), "setting": setting}


def this_machine(measurements=()):
    """A record of this machine, holding `measurements` (a list of what `entry` gives) and nothing personal."""
    import torch

    from .hardware import hardware

    found = hardware()
    versions = {"python": platform.python_version(), "torch": found.torch, "build": found.build}
    try:
        import torchvision
        versions["torchvision"] = torchvision.__version__
    except Exception:  # not installed, or of another torch
        pass
    devices = [{"device": d.device, "name": d.name, "memory": d.memory, "note": d.note} for d in found.devices]
    gpus = [d["name"] for d in devices if d["device"] != "cpu"]
    cpu = f"{devices[0]['name']}, {found.cores} core" + "s" * (found.cores != 1)
    machine = " + ".join(f"{gpus.count(name)} x {name}" if gpus.count(name) > 1 else name
                         for name in dict.fromkeys(gpus)) or cpu
    return {"format": FORMAT, "machine": machine, "published": None, "date": datetime.date.today().isoformat(),
            "versions": versions, "driver": found.driver, "cores": found.cores, "threads": torch.get_num_threads(),
            "devices": devices, "parts": [], "measurements": list(measurements), "chapters": [], "placement": None}


def slug(machine):
    """The file name, without .json, for a machine's name: "AMD EPYC, 2 cores" gives "amd-epyc-2-cores"."""
    return re.sub(r"[^a-z0-9]+", "-", machine.lower()).strip("-") or "machine"


def clean(text, limit=300):
    """`text` without what is personal: of paths the last part stays, host and user name are taken out."""
    text = re.sub(r"(?:[A-Za-z]:)?(?:[\\/][\w.+@~-]+){2,}", lambda m: re.split(r"[\\/]", m[0])[-1], str(text))
    for name in _personal_names():
        text = re.sub(rf"\b{re.escape(name)}\b", "...", text)
    return text[:limit]


def _personal_names():
    try:
        names = {platform.node(), getpass.getuser()}
    except (OSError, KeyError):  # no entry for this user
        names = {platform.node()}
    return {name for name in names if len(name) > 3 and name not in ("root", "user", "localhost", "linux")}


# ------------------------------------------------------------------------------------- checking, reading, writing
_FIELDS = {"machine": str, "published": (dict, type(None)), "date": (str, type(None)), "versions": dict,
           "driver": (str, type(None)), "cores": (int, type(None)), "threads": (int, type(None)), "devices": list,
           "parts": list, "measurements": list, "chapters": list, "placement": (dict, type(None))}
_ROWS = {"devices": {"device", "name", "memory", "note"}, "parts": {"part", "state", "seconds", "note"},
         "measurements": {"part", "name", "device", "unit", "median", "spread", "runs", "setting"},
         "chapters": {"chapter", "passed", "cells", "of", "seconds", "error"}}


def _is_figure(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def problems(record):
    """What is wrong with a record, as a list of sentences; empty if it is valid."""
    if not isinstance(record, dict) or not isinstance(record.get("format"), int):
        return ["it is no record: it has no format number"]
    if record["format"] > FORMAT:
        return [f"its format is {record['format']}, newer than this package, which reads {FORMAT}: update the package"]
    wrong = [f"{key} is missing or of the wrong type" for key, kind in _FIELDS.items()
             if key not in record or not isinstance(record[key], kind)]
    for key, keys in _ROWS.items():
        rows = record.get(key) if isinstance(record.get(key), list) else []
        wrong += [f"{key}, entry {k}: needs {', '.join(sorted(keys))}" for k, row in enumerate(rows)
                  if not isinstance(row, dict) or not keys <= set(row)]
    if wrong:
        return wrong
    for k, row in enumerate(record["measurements"]):
        spread = row["spread"]
        if not _is_figure(row["median"]) or row["unit"] not in UNITS or not isinstance(row["setting"], dict):
            wrong.append(f"measurements, entry {k}: no figure with a unit and a setting")
        elif spread is not None and not (isinstance(spread, list) and len(spread) == 2 and all(map(_is_figure, spread))
                                         and spread[0] <= row["median"] <= spread[1]):
            wrong.append(f"measurements, entry {k}: the median is outside its spread")
    wrong += [f"parts, entry {k}: unknown state {row['state']!r}" for k, row in enumerate(record["parts"])
              if row["state"] not in STATES]
    if record["date"] is not None and not re.fullmatch(r"\d{4}-\d\d-\d\d", record["date"]):
        wrong.append(f"date {record['date']!r} is not YYYY-MM-DD")
    return wrong


def write(record, path):
    """Write a record as JSON, all of it or nothing: a program killed meanwhile leaves the file as it was.

    Raises ValueError, naming what is wrong, if the record is not valid or holds this host's or user's name.
    """
    wrong = problems(record)
    text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n" if not wrong else ""
    wrong += [f"it names this host or user ({name})" for name in _personal_names() if re.search(rf"\b{re.escape(name)}\b", text)]
    if wrong:
        raise ValueError(f"{Path(path).name} was not written: {'; '.join(wrong)}")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.tmp")
    with open(draft, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)


def read(path):
    """The record in a file. Raises ValueError, naming the file and what is wrong with it."""
    path = Path(path)
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from error
    wrong = problems(record)
    if wrong:
        raise ValueError(f"{path.name} is not used: {wrong[0]}")
    return record


def read_all(folder=None, say=print):
    """All records of a folder (by default those that come with the book): measured ones by name, then published.

    A file that cannot be used is named, with the reason, by `say`, and left out.
    """
    if folder is None:
        folder = next((f for f in FOLDERS if f.is_dir()), FOLDERS[0])
    records = []
    for path in sorted(Path(folder).glob("*.json")):
        try:
            records.append(read(path))
        except ValueError as error:
            say(f"results: {error}")
    return sorted(records, key=lambda r: (r["published"] is not None, r["machine"]))


def find(record, part, name=None, **setting):
    """The measurements of a record in `part`, as a list; with that `name` and `setting` where they are given."""
    return [e for e in record["measurements"] if e["part"] == part and name in (None, e["name"])
            and all(e["setting"].get(key) == value for key, value in setting.items())]
