"""Recording a machine: what is done is on disk and valid, whatever happens; nothing here depends on speed."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from torch.utils.data import DataLoader

from d2l_gpu import datasets, ladder, results
from d2l_gpu.record import __main__ as command
from d2l_gpu.record import chapters, compiling, operations, parts, placement, precision, recorder
from d2l_gpu.record.reports import Plan
from d2l_gpu.simulator import simulate_gpus
from d2l_gpu.timing import Measurement

ROOT = results.FOLDERS[0].parent
ONE_THREAD = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def start(path, *arguments):
    return subprocess.Popen([sys.executable, "-m", "d2l_gpu.record", "--file", str(path), *arguments], env=ONE_THREAD, cwd=path.parent,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def state(record, part):
    return {row["part"]: row["state"] for row in record["parts"]}.get(part)


def test_operators_are_counted_by_the_step_and_not_by_the_run(monkeypatch):
    x = torch.ones(3)
    monkeypatch.setattr(parts, "training_step", lambda *args: lambda: [x.sin() for _ in range(5)])
    plain, profiled = (report["entry"] for report in parts.profiler(Plan(0)))  # no time is left: one run of each
    assert plain["setting"]["operators"] == 5 and plain["runs"] == 1


def test_a_small_recording_has_every_rung_and_size(tmp_path):
    path = tmp_path / "machine.json"
    process = start(path, "--minutes", "2", "--parts", "products,ladder", "--images", "128", "--largest", "64")
    text = process.communicate()[0]
    assert process.returncode == 0, text
    record = results.read(path)
    assert state(record, "products") == state(record, "ladder") == "done", text
    every = [rung.name for rung in ladder.ladder("cpu")]
    if "rung 'torch.compile' failed" in text:  # no compiler here
        every.remove("torch.compile")
    assert [e["name"] for e in results.find(record, "ladder")] == every
    assert sorted(e["setting"]["size"] for e in results.find(record, "products", "product")) == [16, 32, 64, 64]
    assert record["threads"] == 1 and record["published"] is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_the_other_parts_measure_what_a_cpu_can():
    plan = Plan(60, images=128, largest=64)
    steps = [report["entry"] for report in parts.mixed_precision(plan)]
    assert [e["setting"]["dtype"] for e in steps] == ["float32", "bfloat16"] * 3 + ["float32"] * 2
    assert len({e["name"] for e in steps}) == 5
    assert [report["entry"]["setting"]["bytes"] for report in parts.copies(plan)] == [4096]
    plain, profiled = (report["entry"] for report in parts.profiler(plan))
    assert (plain["name"], profiled["name"]) == ("training step", "training step, profiled")
    assert plain["runs"] == profiled["runs"] == 7 and plain["setting"] == profiled["setting"]
    assert list(parts.streams(plan)) == [{"note": "streams: need CUDA"}]
    assert list(parts.memory.part(plan)) == [{"note": "memory: needs CUDA"}]
    late = Plan(0)
    bounded = (parts.ladder, parts.copies, parts.operations, parts.training_steps, parts.mixed_precision, parts.channels_last)
    assert [list(report) for part in bounded for report in part(late)] == [["cut"]] * 6


def test_both_layouts_are_measured_in_both_precisions():
    rows = [report["entry"] for report in parts.channels_last(Plan(60, largest=8))]
    assert [(e["name"], e["setting"]["dtype"]) for e in rows] == [
        (f"convolutions{last}", dtype) for dtype in ("float32", "bfloat16") for last in ("", ", channels last")]


def test_the_first_compiled_call_and_the_later_ones_are_measured(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    monkeypatch.setattr(compiling, "compile_backend", lambda device: "inductor")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")  # put back after the test
    names = [report["entry"]["name"] for report in parts.compiled(Plan(60, largest=64))]
    assert names == ["loading the compiler"] + [name + kind for name in ("chain of 8 operations", "training step")
                                                for kind in (", first compiled call", "", ", compiled")]
    assert [list(report) for report in parts.compiled(Plan(0, largest=64))] == [["entry"], ["cut"]]
    monkeypatch.setattr(compiling, "compile_backend", lambda device: "eager")
    assert list(parts.compiled(Plan(60))) == [{"note": "compile: torch.compile makes no kernels here"}]


def test_the_compiled_rung_meets_both_sizes_of_a_batch_before_it_is_timed(monkeypatch):
    sizes = []

    def compile(net, **options):
        net.register_forward_hook(lambda net, inputs, output: sizes.append(len(inputs[0])))
        return net

    monkeypatch.setattr(torch, "compile", compile)
    rung = next(rung for rung in ladder.ladder("cpu", images=200) if rung.compiled)
    with rung.open() as train:
        assert sorted(sizes) == [8, 64]
        assert 2.1 < train()[1] < 2.6 and sorted(sizes) == [8, 8, 64, 64, 64, 64]


def run_once(step, name, **options):
    """Stands for `time_it`: it runs what is to be timed, and depends on no clock."""
    step()
    return Measurement(name, [1e-3])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_single_operations_and_steps_from_tiny_to_large_are_measured(monkeypatch):
    monkeypatch.setattr(operations, "time_it", run_once)
    plan = Plan(600, images=64, largest=64)
    found = [report["entry"] for report in parts.operations(plan)]
    assert [(e["name"], e["setting"]["numbers"]) for e in found] == [
        ("add 1 number", 1), ("add 1 number and fetch it", 1), ("add many numbers", 64**2)]
    steps = [report["entry"] for report in parts.training_steps(plan)]
    one, three = "CNN, 1 convolution", "CNN, 3 convolutions"
    assert [(e["name"], e["setting"].get("width"), e["setting"]["batch"]) for e in steps] == [
        ("regression", None, 32), ("regression", None, 3_200), (one, 16, 16), (one, 16, 64), (one, 64, 16), (one, 64, 64),
        (three, 64, 16), (three, 64, 64)]


def test_a_step_that_would_take_too_long_is_cut_and_named(monkeypatch):
    monkeypatch.setattr(operations, "time_it", lambda step, name, **options: Measurement(name, [3.0]))
    cut = [report["cut"] for report in parts.training_steps(Plan(60, images=64, largest=16)) if "cut" in report]
    assert cut == [f"training steps on {device}: no time for CNN, 1 convolution at width 16, batch 64" for device in parts.devices()]


@pytest.mark.parametrize("half, tolerance", [(None, 1e-6), (torch.bfloat16, 1e-2)])
def test_uneven_pieces_of_a_batch_have_the_gradient_of_the_whole(half, tolerance):
    X, net = torch.randn(10, 8), torch.nn.Linear(8, 10)
    pieces = X.split(4)
    labels = torch.cat([torch.arange(len(piece)) for piece in pieces])  # those that the step gives to each piece
    wanted = torch.autograd.grad(torch.nn.functional.cross_entropy(net(X), labels), net.weight)[0]
    precision.training_step(net, pieces, half)()
    assert torch.allclose(net.weight.grad, wanted, atol=tolerance)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_the_part_about_streams_runs_where_cuda_answers():
    with simulate_gpus(1):  # only that it runs: such times are stored nowhere
        entries = [report["entry"] for report in parts.streams(Plan(60, largest=16))]
        late = list(parts.streams(Plan(0, largest=16)))
    assert [e["name"] for e in entries[-2:]] == ["8 steps, batches on the same stream", "8 steps, batches prefetched"]
    assert len(entries) == 10 and {e["device"] for e in entries} == {"cuda:0"} and "cut" in late[-1]


@pytest.fixture
def half_way(tmp_path):
    """A recording that has finished its first part and is at the start of the second, which would take minutes."""
    path = tmp_path / "machine.json"
    process = start(path, "--minutes", "9", "--parts", "products,ladder", "--largest", "32")
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        if path.exists() and state(results.read(path), "ladder") == "running":
            break
        time.sleep(0.05)
    yield process, path
    if process.poll() is None:
        process.kill()
    process.communicate()


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="asks Linux for the processes")
def test_killed_half_way_the_finished_parts_are_on_disk_and_nothing_runs_on(half_way):
    process, path = half_way
    below = children(process.pid)
    assert below
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    record = results.read(path)
    assert state(record, "products") == "done" and state(record, "ladder") == "running"
    assert len(results.find(record, "products")) == 4  # first call and warm at 32, then 16 and 32
    end = time.monotonic() + 10
    while not all(map(gone, below)) and time.monotonic() < end:
        time.sleep(0.05)
    assert all(map(gone, below))


@pytest.mark.skipif(os.name != "posix", reason="process groups")
def test_a_part_ends_with_its_recorder_and_takes_its_own_processes_along():
    code = ("import subprocess, time; from d2l_gpu.record import recorder\n"
            "def part(plan):\n    child = subprocess.Popen(['sleep', '60'])\n    yield {'note': child.pid}\n    time.sleep(60)\n"
            "recorder.serve(part, None)")
    process = subprocess.Popen([sys.executable, "-c", code], env=ONE_THREAD, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               start_new_session=True)
    pid = json.loads(process.stdout.readline().removeprefix(recorder.MARK))["note"]
    os.kill(pid, 0)
    process.stdin.close()  # as when the recorder is killed
    assert process.wait(timeout=20) == -signal.SIGKILL
    end = time.monotonic() + 10
    while not gone(pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert gone(pid)
    process.stdout.close()


def test_stopped_by_a_signal_it_says_so_in_the_file(half_way):
    process, path = half_way
    process.send_signal(signal.SIGTERM)
    text = process.communicate(timeout=30)[0]
    assert process.returncode == 128 + signal.SIGTERM, text
    record = results.read(path)
    assert state(record, "products") == "done" and state(record, "ladder") == "cut short"
    assert record["parts"][-1]["note"] == "stopped by signal 15"


def test_out_of_time_parts_are_skipped_and_said(tmp_path):
    record, path = recorder.record({"products": 1.0}, 0.01, {}, tmp_path / "m.json", say=lambda text: None)
    assert results.read(path) == record
    assert record["parts"] == [{"part": "products", "state": "skipped", "seconds": 0.0, "note": "no time was left"}]


# ---------------------------------------------------------------------- the recorder, with parts of our own
ENTRY = {"entry": results.entry("products", "product", "cpu", [1.0], size=3)}


@pytest.fixture
def play(monkeypatch, tmp_path):
    """Record with parts that report what is given here; an exception among the reports is raised."""
    def run(script, **options):
        def run_part(name, seconds, options, errors):
            for report in script[name]:
                if isinstance(report, Exception):
                    raise report
                yield report
        monkeypatch.setattr(recorder, "run_part", run_part)
        return recorder.record(dict.fromkeys(script, 0.5), 1, {}, tmp_path / "m.json", say=lambda text: None, **options)[0]
    return run


def test_a_part_that_fails_keeps_what_it_had_and_the_next_one_runs(play):
    record = play({"products": [ENTRY, RuntimeError("exit status 1: in /home/x/y.py")], "copies": [TimeoutError("stopped after 9 s")],
                   "ladder": [ENTRY]})
    assert [(p["part"], p["state"]) for p in record["parts"]] == [("products", "failed"), ("copies", "cut short"), ("ladder", "done")]
    assert len(record["measurements"]) == 2 and record["parts"][0]["note"] == "exit status 1: in y.py"


def test_control_c_keeps_what_was_measured(play, tmp_path):
    def interrupt():
        yield ENTRY
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
    with pytest.raises(recorder.Stopped):
        play({"products": interrupt()})
    record = results.read(tmp_path / "m.json")
    assert state(record, "products") == "cut short" and len(record["measurements"]) == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_stopped_before_a_part_has_begun_it_is_told_as_cut_short(play, tmp_path, monkeypatch):
    def stop(*args):
        raise recorder.Stopped(15)
    monkeypatch.setattr(recorder, "_measure", stop)
    with pytest.raises(recorder.Stopped):
        play({"products": []})
    assert results.read(tmp_path / "m.json")["parts"] == [
        {"part": "products", "state": "cut short", "seconds": 0.0, "note": "stopped by signal 15"}]


def test_what_was_not_reached_and_what_does_not_apply_are_told_apart(play):
    record = play({"products": [ENTRY, {"cut": "no time for 64"}], "streams": [{"note": "needs CUDA"}], "copies": []})
    assert [p["state"] for p in record["parts"]] == ["cut short", "skipped", "skipped"]


def test_some_parts_measured_anew_leave_the_others(play):
    play({"products": [ENTRY], "copies": [{"entry": results.entry("copies", "old", "cpu", [1.0])}]})
    record = play({"copies": [{"entry": results.entry("copies", "new", "cpu", [2.0])}]}, everything=False)
    assert [(e["part"], e["name"]) for e in record["measurements"]] == [("products", "product"), ("copies", "new")]
    assert [p["part"] for p in record["parts"]] == ["products", "copies"]
    assert [e["name"] for e in play({"copies": [ENTRY]})["measurements"]] == ["product"]  # everything anew


def test_a_part_that_crashes_is_named_with_its_last_words(tmp_path):
    with open(tmp_path / "errors", "w+") as errors, pytest.raises(RuntimeError, match="exit status 1: KeyError: 'nonsense'"):
        list(recorder.run_part("nonsense", 5, {}, errors))


def test_an_unknown_part_is_refused(capsys):
    with pytest.raises(SystemExit):
        command.main(["--parts", "products,nonsense"])
    assert "no part is called 'nonsense'" in capsys.readouterr().err


# ----------------------------------------------------------------------------------------------- the ladder
def test_every_data_set_gives_the_same_images():
    images, labels = ladder.sixty_thousand(70)
    X, y = datasets.Pictures(images, labels)[3]
    batch, targets = datasets.BatchedPictures(images, labels).__getitems__([3, 5])
    assert torch.equal(X, batch[0]) and y == targets[0] and X.shape == (1, 28, 28)
    assert torch.allclose(datasets.normalized(images)[3], X)
    assert torch.equal(datasets.BatchedTensors(images, labels).__getitems__([3])[0][0], images[3])
    assert ladder.sixty_thousand()[0].shape == (60_000, 1, 28, 28)


@pytest.mark.filterwarnings("ignore:'pin_memory' argument")
def test_a_pass_meets_every_image_once():
    for rung in ladder.ladder("cpu", images=200, workers=0):
        if "persistent" in rung.name:
            continue
        batches = rung.batches() if rung.workers == 0 else []
        assert sum(len(y) for _, y in batches) == 200 and len(batches) == 4, rung.name


def test_training_lowers_the_loss():
    rung = ladder.ladder("cpu", images=640)[-2]
    net, batches = ladder.mlp("cpu"), rung.batches()
    run = rung._loop(batches, net, torch.nn.CrossEntropyLoss(), torch.optim.Adam(net.parameters(), lr=1e-3))
    first = run(None)
    assert [run(None) for _ in range(4)][-1] < first


def test_a_pass_gives_its_seconds_and_the_mean_loss_over_the_images():
    with ladder.ladder("cpu", images=100)[0].open() as train:  # a batch of 64 and one of 36
        seconds, loss = train()
        assert seconds > 0 and 2.1 < loss < 2.6
        assert train(1)[1] < 2.6


def test_the_classes_reach_workers_that_are_not_forked():
    data = datasets.Pictures(*ladder.sixty_thousand(64))
    X, y = next(iter(DataLoader(data, 32, num_workers=1, multiprocessing_context="spawn")))
    assert X.shape == (32, 1, 28, 28)


def test_rungs_change_step_by_step_and_graphs_need_cuda():
    names = [rung.name for rung in ladder.ladder("cpu")]
    assert names[0] == "pictures" and names[-2:] == ["no .item() in the loop", "torch.compile"] and len(names) == 11
    on_cuda = ladder.ladder("cuda:0", images=60_000)
    assert [rung.name for rung in on_cuda[:11]] == names and "CUDA graph" in on_cuda[-1].name
    assert [rung.compiled for rung in on_cuda] == [False] * 10 + [True, False, False]
    assert [rung.images_a_pass for rung in on_cuda[-2:]] == [937 * 64, 58 * 16 * 64]


# ------------------------------------------------------------------------------------- chapters without Jupyter
def notebook(path, *cells):
    path.write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": ["text"], "metadata": {}}] + [
        {"cell_type": "code", "source": cell.splitlines(True), "metadata": {"tags": tags}}
        for cell, tags in (c if isinstance(c, tuple) else (c, []) for c in cells)]}))
    return path


def test_cells_share_a_namespace_and_show_their_last_value(tmp_path, capsys):
    path = notebook(tmp_path / "a.ipynb", "x = 2\ndef f():\n    return x", "f() + 1", "%matplotlib inline", "display(5)", "# nothing")
    assert chapters.run_cells(path) == (4, None)
    assert capsys.readouterr().out == "3\n5\n"


def test_a_cell_that_writes_a_script_writes_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = "%%writefile own.py\nx = 1", "%%writefile -a own.py\nprint(x)", "open('own.py').read()"
    assert chapters.run_cells(notebook(tmp_path / "a.ipynb", *cells)) == (3, None)
    assert (tmp_path / "own.py").read_text() == "x = 1\nprint(x)\n"


@pytest.mark.parametrize("cell, error", [("1 / 0", "cell 2: ZeroDivisionError: division by zero"), ("def", "cell 2: SyntaxError"),
                                         ("raise SystemExit(3)", "cell 2: SystemExit: 3"), (("1", ["raises-exception"]), "cell 2: raised nothing")])
def test_the_first_error_is_named(tmp_path, cell, error):
    ran, found = chapters.run_cells(notebook(tmp_path / "a.ipynb", ("[][0]", ["raises-exception"]), cell, "3"))
    assert ran == 1 and found.startswith(error)


@pytest.mark.parametrize("cell, row", [("open('own.txt', 'w').close()", {"passed": True, "cells": 1, "error": None}),
                                       ("import os; os._exit(5)", {"passed": False, "cells": 0, "error": "the process ended with status 5: -"}),
                                       ("import time; time.sleep(60)", {"passed": False, "cells": 0, "error": "not done after 2 s"})])
def test_a_chapter_runs_in_a_process_and_folder_of_its_own(tmp_path, monkeypatch, cell, row):
    monkeypatch.chdir(tmp_path)
    found = chapters.run(notebook(tmp_path / "05-x.ipynb", cell), limit=2 if "sleep" in cell else 60)
    assert row.items() <= found.items() and found["chapter"] == "05-x" and found["of"] == 1
    assert not (tmp_path / "own.txt").exists()


# ------------------------------------------------------------------------------- simulated against real GPUs
def test_the_cases_are_many_distinct_and_parse():
    assert len(placement.CASES) >= 40 and len(dict(placement.CASES)) == len(placement.CASES)
    for name, expression in placement.CASES:
        compile(expression, name, "eval")


def test_an_outcome_is_the_error_the_place_or_the_value():
    names = {"x": torch.ones(2, 3), "torch": torch}
    assert placement.outcome("x + 1", names) == "cpu float32 (2, 3)"
    assert placement.outcome("x @ x", names).startswith("RuntimeError: mat1 and mat2 shapes cannot be multiplied")
    assert placement.outcome("x.sum().item()", names) == "float 6.0"


def test_every_difference_is_listed():
    assert placement.differences({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "9", "d": "4"}) == [
        {"case": "b", "simulated": "2", "real": "9"}, {"case": "c", "simulated": "3", "real": None}, {"case": "d", "simulated": None, "real": "4"}]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_real_gpu_there_are_no_real_outcomes():
    with pytest.raises(RuntimeError, match="no outcomes from real GPUs"):
        placement.run("real", placement.CASES[:1])
    assert [list(report) for report in placement.part(Plan(5))] == [["note"]]


@pytest.mark.skipif(importlib.util.find_spec("d2l_gpu.simulator") is None, reason="no simulator in this package")
def test_simulated_outcomes_are_cudas_words():
    found = placement.run("simulated", [case for case in placement.CASES if case[0] in ("add", "numpy", "to the GPU")])
    assert found["add"].endswith("found at least two devices, cuda:0 and cpu!") and found["to the GPU"] == "cuda:0 float32 (2, 3)"


# ------------------------------------------------------------------------------------------ bench and test-cuda
def test_bench_prints_one_line_a_ratio(root):
    done = subprocess.run([sys.executable, str(root / "tools" / "bench.py"), "--pairs", "1", "--steps", "2", "--only", "tensors", "fused_adam",
                           "one_product"], env=ONE_THREAD, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("ratio ")]
    assert [line[1] for line in lines] == ["tensors", "fused_adam", "one_product"]
    assert all(len(line) == 3 and float(line[2]) > 0 for line in lines)
    assert done.stdout.splitlines()[-3:] == [" ".join(line) for line in lines]


def test_without_a_gpu_test_cuda_fails_and_says_why(root):
    done = subprocess.run([sys.executable, str(root / "tests" / "cuda.py")], env=ONE_THREAD, capture_output=True, text=True)
    assert done.returncode == 2 and "make test-cuda needs an NVIDIA GPU" in done.stdout and done.stdout.count("\n") <= 1


def test_a_report_tells_broken_cells_from_other_outputs(root):
    spec = importlib.util.spec_from_file_location("cuda_report", root / "tests" / "cuda.py")
    cuda = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cuda)
    failures = ["01-devices Cell 0: #x1B[91mNotebook cell\nCell 0: Cell execution caused an exception\n\n#x1B[31mValueError#x1B[39m: no\n",
                "01-devices Cell 2: Cell 2: Cell outputs differ\n", "01-devices Cell 3: Cell 3: Cell outputs differ\n"]

    def tags(name, cell):
        return ["nbval-check-output"] if cell == 2 else []
    differ = "the output is not the stored one"
    assert cuda.judge(failures, tags, strict=False) == (
        [("01-devices", 0, "ValueError: no")], [("01-devices", 2, differ)], [("01-devices", 3, differ)])
    assert cuda.judge(failures, tags, strict=True) == (
        [("01-devices", 0, "ValueError: no")], [("01-devices", 2, differ), ("01-devices", 3, differ)], [])
    text = cuda.report(results.this_machine(), True, {"cells": 9, "passed": 6}, 9, *cuda.judge(failures, tags, True))
    assert "9 of 9 code cells ran, 6 gave the stored output" in text and "Did not run: 1" in text


def test_the_memory_part_counts_the_steps_of_chapter_12():
    with simulate_gpus(1):
        found = [report["entry"] for report in parts.memory.part(Plan(5, largest=2048))]
    peaks = {entry["name"]: entry["median"] for entry in found}
    assert all(entry["unit"] == "B" for entry in found)
    whole = peaks["peak of a step"]
    assert 0 < peaks["peak of a step with 4 checkpoints"] < whole
    assert 0 < peaks["peak of a step in 4 parts"] < whole
