"""Runs the parts one after another, each in a process of its own, and keeps the record on disk valid all the time."""

import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from .. import results
from . import environment, python

GRACE = 20  # seconds that a part gets past its time before it is stopped
MARK = "@report "


class Stopped(Exception):
    """Raised by a signal that asks the program to end; `number` is the signal's."""

    def __init__(self, number):
        super().__init__(f"stopped by signal {number}")
        self.number = number


def _stop(number, frame):
    raise Stopped(number)


def _end_with_parent():
    os.read(0, 1)  # ends when the recorder does, in whatever way; sys.stdin.read() would hold a lock that forks inherit
    try:
        os.killpg(0, signal.SIGKILL)  # this process leads a group of its own, with all that it started
    except (AttributeError, OSError):  # Windows
        os._exit(1)


def serve(part, plan):
    """Run one part in this process and print its reports, one a line; end when the recorder is gone."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for report in part(plan):
        print(MARK + json.dumps(report), flush=True)


def _lines(process):
    """The lines that a process prints, as they come; None when there are no more."""
    lines = queue.Queue()

    def read():
        for line in process.stdout:
            lines.put(line)
        lines.put(None)
    threading.Thread(target=read, daemon=True).start()
    return lines


def run_part(name, seconds, options, errors):
    """Yield the reports of a part that runs in a process of its own for at most `seconds` and the grace time.

    Raises RuntimeError with the last line of the process's errors if it fails, TimeoutError if it does not end.
    """
    command = python("d2l_gpu.record", "--only", name, "--seconds", f"{seconds:.1f}",
                     *(f"--{key}={value}" for key, value in options.items()))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, stdin=subprocess.PIPE,
                               start_new_session=True,  # so that it can be stopped with the processes that it starts
                               env=environment())
    lines, end = _lines(process), time.monotonic() + seconds + GRACE
    try:
        while True:
            try:
                line = lines.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise TimeoutError(f"stopped after {seconds + GRACE:.0f} s") from None
            if line is None:
                break
            if line.startswith(MARK):
                yield json.loads(line[len(MARK):])
        if process.wait(timeout=GRACE) != 0:
            errors.seek(0)
            last = [text for text in errors.read().splitlines() if text.strip()] or ["no message"]
            raise RuntimeError(f"exit status {process.returncode}: {last[-1]}")
    finally:
        if process.poll() is None:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except (AttributeError, ProcessLookupError):  # Windows; already gone
                process.kill()
        process.wait()
        process.stdout.close()
        process.stdin.close()


def _start(path, names, everything):
    """A new record, or, where only some parts are measured anew, the one on disk without those parts."""
    record = results.this_machine()
    if path is None:
        path = results.FOLDERS[0] / f"{results.slug(record['machine'])}.json"
    try:
        old = results.read(path)
    except ValueError:
        return record, path
    if everything or any(old[key] != record[key] for key in ("machine", "versions", "driver", "threads")):
        return record, path
    record["parts"] = [p for p in old["parts"] if p["part"] not in names]
    record["measurements"] = [m for m in old["measurements"] if m["part"] not in names]
    record["chapters"] = [] if "chapters" in names else old["chapters"]
    record["placement"] = None if "placement" in names else old["placement"]
    return record, path


def record(parts, minutes, options, path=None, everything=True, say=print):
    """Measure `parts` (a dict of name: share of the time) within `minutes` and write results/<machine>.json.

    The file is written after every report, whole or not at all, so it is valid whenever the program ends. Returns
    the record and the path. Raises Stopped, after writing, when SIGINT or SIGTERM asks the program to end.
    """
    end = time.monotonic() + 60 * minutes
    data, path = _start(Path(path) if path else None, parts, everything)
    say(f"{data['machine']}: {minutes:g} minutes, written to {path.name} as it is measured")
    handlers = {number: signal.signal(number, _stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for name, share in parts.items():
            left = end - time.monotonic()
            state = {"part": name, "state": "running", "seconds": 0.0, "note": ""}
            data["parts"].append(state)
            try:
                if left < 3:
                    state |= {"state": "skipped", "note": "no time was left"}
                else:
                    results.write(data, path)
                    _measure(name, min(left, 60 * minutes * share), options, data, state, path)
            except Stopped as stop:
                if state["state"] == "running":
                    state |= {"state": "cut short", "note": "; ".join(filter(None, [state["note"], str(stop)]))}
                results.write(data, path)
                raise
            results.write(data, path)
            say(f"{name}: {state['state']}, {state['seconds']:.0f} s{'; ' * bool(state['note'])}{state['note']}")
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return data, path


def _measure(name, seconds, options, data, state, path):
    start, notes, cut, found = time.monotonic(), [], False, False

    def close(how, note=None):
        notes.extend([note] if note else [])
        state.update(state=how, seconds=round(time.monotonic() - start, 1), note=results.clean("; ".join(notes), 2000))

    with tempfile.TemporaryFile("w+") as errors:
        reports = run_part(name, seconds, options, errors)
        try:
            for report in reports:
                if "entry" in report:
                    data["measurements"].append(report["entry"])
                elif "chapter" in report:
                    data["chapters"].append(report["chapter"])
                elif "placement" in report:
                    data["placement"] = report["placement"]
                else:
                    cut |= "cut" in report
                    notes.append(report.get("note") or report["cut"])
                found |= not {"note", "cut"} & set(report)
                close("running")
                results.write(data, path)
            close("cut short" if cut else "done" if found else "skipped")
        except TimeoutError as error:
            close("cut short", str(error))
        except RuntimeError as error:
            close("failed", str(error))
        finally:
            reports.close()
