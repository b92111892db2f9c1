"""A script in several processes of this machine, started from a notebook: `torchrun`."""

import contextlib
import os
import queue
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

_LOOPBACK = "127.0.0.1"
_GRACE = 5  # seconds for what was asked to end
_NOTICE = re.compile(r"^\[Gloo\] |connected to \d+ peer ranks")  # torch 2.9 prints one for each process


def torchrun(script, *arguments, processes=2, machines=1, timeout=120):
    """Run `script` in several processes as PyTorch's launcher does, print what they print, and return when all have ended.

        d2l.torchrun("train.py", "--epochs", 3, processes=2)

    is, in a terminal,

        torchrun --standalone --nproc-per-node=2 train.py --epochs 3

    with these additions, for notebooks: it finds the launcher of this Python; the processes share the cores and meet on the
    loopback interface; after `timeout` seconds, at an interrupt and at an error it ends them all, and none is left behind.
    What they write to stdout comes as they write it, what local rank 0 writes to stderr, at the end.

    `machines=2` starts two launchers that meet at a port, as they would on two machines, each with `processes` processes, and
    hides the cards from them: they share those of this machine, and two processes must not share one.

    Raises FileNotFoundError without the script, TimeoutError after `timeout`, and RuntimeError if a process fails, with the
    number of the one that failed first and the end of what it wrote to stderr. Needs psutil, which Jupyter brings along.
    """
    if not Path(script).is_file():
        raise FileNotFoundError(f"there is no script {str(script)!r} in {Path.cwd()}: write it to a file first")
    for name, value in (("processes", processes), ("machines", machines)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}={value!r} should be a number of at least 1")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as logs, contextlib.ExitStack() as stack:
        port, lines, launchers, readers, family = _free_port(), queue.Queue(), [], [], set()
        stack.callback(_end, launchers, family)
        for node in range(machines):
            own = Path(logs) / str(node)
            own.mkdir()
            report = stack.enter_context(open(own / "launcher.txt", "wb"))
            command = _command(own, processes, machines, port, windows=os.name == "nt")
            launchers.append(subprocess.Popen([*command, str(script), *map(str, arguments)], stdin=subprocess.DEVNULL,
                                              stdout=subprocess.PIPE, stderr=report, env=_environment(processes, machines),
                                              text=True, encoding="utf-8", errors="replace"))
            readers.append(threading.Thread(target=_read, args=(launchers[-1].stdout, lines), daemon=True))
            readers[-1].start()
        failed = _follow(launchers, family, lines, timeout)
        _end(launchers, family)
        for reader in readers:  # the last lines; not for ever, should something else hold the pipe
            reader.join(_GRACE)
        while not lines.empty():
            print(lines.get(), end="", flush=True)
        if failed is not None:
            raise RuntimeError(_why(Path(logs) / str(failed), launchers[failed].returncode))
        for path in sorted(Path(logs).glob("*/*/attempt_*/0/stderr.log")):
            sys.stderr.write(path.read_text(encoding="utf-8", errors="replace"))


def _command(logs, processes, machines, port, windows):
    """The launcher's command line, up to the script."""
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}", f"--local-addr={_LOOPBACK}",
               f"--log-dir={logs}", "--redirects=2"]
    if machines > 1:
        return [*command, f"--nnodes={machines}", "--rdzv-id=d2l", "--rdzv-backend=c10d", f"--rdzv-endpoint={_LOOPBACK}:{port}"]
    if windows:  # the launcher's server asks for libuv, which builds for Windows may lack: let it meet itself in a file
        return [*command, "--rdzv-backend=c10d", "--rdzv-conf=store_type=file", f"--rdzv-endpoint={logs / 'meeting'}"]
    return [*command, "--standalone"]


def _environment(processes, machines):
    """The variables for the processes: what the user has set is kept."""
    share = max(1, (os.cpu_count() or 1) // (processes * machines))
    settings = {"OMP_NUM_THREADS": str(share), "PYTHONIOENCODING": "utf-8"}  # unset, the launcher prints a warning and takes 1
    if os.name == "nt":
        settings["USE_LIBUV"] = "0"
    else:  # not the interface of this machine's name, which need not lead anywhere
        settings |= {"GLOO_SOCKET_IFNAME": name for _, name in socket.if_nameindex() if name in ("lo", "lo0")}
    return settings | os.environ | ({"CUDA_VISIBLE_DEVICES": ""} if machines > 1 else {})


def _free_port():
    with socket.socket() as free:
        free.bind((_LOOPBACK, 0))
        return free.getsockname()[1]


def _read(stream, lines):
    """Put the lines of a launcher into the queue `lines`, without torch 2.9's notices: one from each process, and where two of
    them share a line, an empty one follows."""
    empty = 0
    with stream:
        for line in stream:
            if _NOTICE.search(line):
                empty += line.count("[Gloo] ") - 1
            elif empty > 0 and not line.strip():
                empty -= 1
            else:
                lines.put(line)


def _follow(launchers, family, lines, timeout):
    """Show the lines as they come until all launchers have ended; the number of one that failed, or None."""
    end, look = time.monotonic() + timeout, 0.0
    while True:
        codes = [launcher.poll() for launcher in launchers]
        if time.monotonic() > look:  # a launcher that is killed leaves its processes behind
            family |= _children(launchers)
            look = time.monotonic() + 1
        with contextlib.suppress(queue.Empty):
            print(lines.get(timeout=0.05), end="", flush=True)
        if any(codes):
            return next(k for k, code in enumerate(codes) if code)
        if None not in codes:
            return None
        if time.monotonic() > end:
            raise TimeoutError(f"the processes had not ended after {timeout} seconds, and were ended. A process that waits for "
                               "another which does not come waits for long: do all make the same calls, in the same order?")


def _children(launchers):
    import psutil
    found = set()
    for launcher in launchers:
        if launcher.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):
                found.update(psutil.Process(launcher.pid).children(recursive=True))
    return found


def _end(launchers, family):
    """End the launchers and all that they started: first politely, after a while by force."""
    import psutil
    family |= _children(launchers)
    for process in [*family, *launchers]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    psutil.wait_procs(family, timeout=_GRACE)
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    for launcher in launchers:
        try:
            launcher.wait(_GRACE)
        except subprocess.TimeoutExpired:
            launcher.kill()
            launcher.wait()


def _why(logs, code):
    """What failed, from the launcher's report and from what the process wrote."""
    report = (logs / "launcher.txt").read_text(encoding="utf-8", errors="replace")
    first = report.rpartition("Root Cause")[2]
    found = re.search(r"rank\s*: (\d+) \(local_rank: (\d+)\)\s+exitcode\s*: (-?\d+)", first)
    if not found:
        return f"torchrun ended with code {code}:\n{_tail(report)}"
    rank, local, code = found.groups()
    words = "".join(path.read_text(encoding="utf-8", errors="replace") for path in logs.glob(f"*/attempt_*/{local}/stderr.log"))
    if "Traceback (most recent call last)" in words:  # gloo's threads abort a process that an exception ends, and say so
        words = re.split(r"^(?:terminate called|Fatal Python error)", words, maxsplit=1, flags=re.MULTILINE)[0]
    ended = f"was ended by signal {code[1:]}" if code.startswith("-") else f"failed first, with exit code {code}"
    return f"rank {rank} {ended}, and torchrun ended the others.\n{_tail(words)}".rstrip()


def _tail(words, lines=20):
    return "\n".join(words.rstrip().splitlines()[-lines:])
