"""torchrun(): what the processes print arrives, who failed is named, and whatever happens no process is left behind."""

import io
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import psutil
import pytest

import d2l_gpu as d2l
from d2l_gpu import launching

MEET = """
import os, sys
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
if dist.get_rank() == 0:
    print("sum", total.item(), "arguments", *sys.argv[1:])
if os.environ["LOCAL_RANK"] == "0":
    print("local", os.environ["LOCAL_WORLD_SIZE"], "cards", torch.cuda.device_count(), file=sys.stderr)
dist.barrier()
dist.destroy_process_group()
"""
SLEEP = "import time\nprint('asleep', flush=True)\ntime.sleep(300)\n"


def of(script):
    """The processes that run the script or launch it, this one not counted."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(script) in process.cmdline() and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            pass
    return found


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"

    def write(text):
        path.write_text(text)
        return path

    yield write
    left = of(path)
    for process in left:
        process.kill()
    assert not left


def test_processes_meet_and_what_they_print_arrives(script, capfd):
    path = script(MEET)
    d2l.torchrun(path, "--epochs", 3)
    out, err = capfd.readouterr()
    assert out == "sum 3.0 arguments --epochs 3\n"
    assert err.startswith("local 2 ") and len(err.splitlines()) == 1


def test_torch_s_notices_are_left_out_also_where_two_share_a_line():
    notice = "[Gloo] Rank {} is connected to 1 peer ranks. Expected number of connected peer ranks is : 1"
    printed = f"{notice.format(0)}\n\n{notice.format(1)}{notice.format(0)}\n\n\nx\n"
    lines = queue.Queue()
    launching._read(io.StringIO(printed), lines)
    assert list(lines.queue) == ["\n", "\n", "x\n"]  # what the script printed


def test_two_machines_meet_at_a_port_and_see_no_cards(script, capfd):
    d2l.torchrun(script(MEET), processes=1, machines=2)
    out, err = capfd.readouterr()
    assert out == "sum 3.0 arguments\n" and err == 2 * "local 1 cards 0\n"


def test_where_the_launcher_has_no_libuv_it_meets_itself_in_a_file(script, tmp_path):
    command = launching._command(tmp_path, 2, 1, 0, windows=True)
    done = subprocess.run([*command, str(script(MEET))], capture_output=True, text=True, timeout=120,
                          env=launching._environment(2, 1) | {"USE_LIBUV": "0"})
    assert done.returncode == 0 and "sum 3.0" in done.stdout


@pytest.mark.parametrize("machines", [1, 2])
def test_the_first_that_fails_is_named_and_ends_the_others(script, machines):
    path = script("import os, time\nif os.environ['RANK'] == '1':\n    raise ValueError('no batch left')\ntime.sleep(300)\n")
    with pytest.raises(RuntimeError, match="rank 1 failed first, with exit code 1") as raised:
        d2l.torchrun(path, processes=2 // machines, machines=machines)
    assert str(raised.value).endswith("ValueError: no batch left")


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_a_process_that_was_killed_is_named(script):
    path = script("import os, signal, time\nif os.environ['RANK'] == '1':\n    os.kill(os.getpid(), signal.SIGKILL)\ntime.sleep(300)\n")
    with pytest.raises(RuntimeError, match="rank 1 was ended by signal 9"):
        d2l.torchrun(path)


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_an_exception_is_what_is_shown_last_even_if_the_process_aborts_after_it(script):
    path = script("import os, sys, traceback\nif os.environ['RANK'] == '1':\n    try:\n        raise ValueError('no batch left')\n"
                  "    except ValueError:\n        traceback.print_exc()\n        print('terminate called without an active exception',"
                  " file=sys.stderr, flush=True)\n        os.abort()\n")
    with pytest.raises(RuntimeError, match="rank 1 was ended by signal 6") as raised:
        d2l.torchrun(path)
    assert str(raised.value).endswith("ValueError: no batch left")


def test_a_launch_that_never_begins_says_why(script, monkeypatch):
    path = script(SLEEP)
    command = launching._command
    monkeypatch.setattr(launching, "_command", lambda *args, **options: [*command(*args, **options), "--no-such-option"])
    with pytest.raises(RuntimeError, match="torchrun ended with code 2:(?s:.)*--no-such-option"):
        d2l.torchrun(path)


def test_after_the_time_limit_nothing_runs_even_if_the_processes_never_stop_printing(script, capfd, monkeypatch):
    path = script("import time\nwhile True:\n    print('awake')\n    time.sleep(0.01)\n")
    shown = []
    monkeypatch.setattr(launching, "print", lambda line, **options: (shown.append(line), print(line, **options)), raising=False)
    monkeypatch.setattr(launching, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + 1000 * (len(shown) > 5)))
    with pytest.raises(TimeoutError, match="after 500 seconds"):
        d2l.torchrun(path, timeout=500)
    assert not of(path)
    assert capfd.readouterr().out.startswith("awake\n")  # what came before the end is shown


def when_asleep(path, act):
    """Do something from another thread, as soon as two processes run the script."""
    def wait():
        for _ in range(600):
            if sum("torch.distributed.run" not in process.cmdline() for process in of(path)) == 2:
                break
            time.sleep(0.1)
        time.sleep(1.5)  # the processes are looked for once a second
        act()
    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_after_an_interrupt_nothing_runs(script):
    path = script(SLEEP)
    thread = when_asleep(path, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        d2l.torchrun(path)
    thread.join()
    assert not of(path)


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_processes_that_ignore_the_request_to_end_are_killed_and_so_are_those_of_a_killed_launcher(script, monkeypatch):
    monkeypatch.setattr(launching, "_GRACE", 1)
    path = script("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP)

    def kill():
        for process in of(path):
            if "torch.distributed.run" in process.cmdline():
                process.kill()

    thread = when_asleep(path, kill)
    with pytest.raises(RuntimeError, match="torchrun ended with code -9"):
        d2l.torchrun(path)
    thread.join()
    assert not of(path)


def test_what_cannot_be_started_is_refused(tmp_path, script):
    with pytest.raises(FileNotFoundError, match="there is no script 'train.py'"):
        d2l.torchrun("train.py")
    for wrong in (0, True, "2"):
        with pytest.raises(ValueError, match="processes="):
            d2l.torchrun(script(SLEEP), processes=wrong)


def test_what_the_user_has_set_is_kept(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    given = launching._environment(2, 1)
    assert (given["OMP_NUM_THREADS"], given["GLOO_SOCKET_IFNAME"], given["CUDA_VISIBLE_DEVICES"]) == ("7", "eth7", "1")
    assert launching._environment(1, 2)["CUDA_VISIBLE_DEVICES"] == ""
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert launching._environment(2, 1)["OMP_NUM_THREADS"] == "4"
    assert sys.executable in launching._command("logs", 2, 1, 0, windows=False)
