"""Timing, with a clock of our own: no test here depends on how fast the machine is."""

import sys
from types import SimpleNamespace

import pytest
import torch

import d2l_gpu as d2l
from d2l_gpu import devices, timing
from d2l_gpu.results import format_bytes, format_ratio, format_time


class Clock:
    """A clock that only moves when told."""

    def __init__(self):
        self.now, self.log = 100.0, []

    def __call__(self):
        return self.now

    def work(self, name, *seconds):
        """A function that takes so many seconds: one after another, the last for ever."""
        left = list(seconds)

        def function():
            self.log.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]
        function.__name__ = name
        return function


@pytest.fixture
def clock():
    return Clock()


def test_time_it_leaves_the_cold_calls_out_and_keeps_the_first(clock):
    found = d2l.time_it(clock.work("f", 9, 5, 1), clock=clock)
    assert found.seconds == pytest.approx([1] * 7) and found.median == pytest.approx(1) and found.first == pytest.approx(9)
    assert len(clock.log) == 2 + 7


def test_time_it_gives_median_and_middle_half(clock):
    found = d2l.time_it(clock.work("f", 1, 1, 1, 2, 3, 4, 100), repeats=5, warmup=2, clock=clock)
    assert found.median == pytest.approx(3) and found.spread == pytest.approx((2, 4))


def test_a_short_function_is_called_many_times_a_run(clock):
    found = d2l.time_it(clock.work("f", 1e-4), repeats=3, shortest=0.002, clock=clock)
    assert found.seconds == pytest.approx([1e-4] * 3)
    assert len(clock.log) == 2 + 3 * 20


def test_what_is_queued_on_a_device_is_waited_for(clock, monkeypatch):
    queued = []

    def wait(found):
        clock.now += sum(queued)
        queued.clear()
    monkeypatch.setattr(timing, "synchronize", wait)
    assert d2l.time_it(lambda: queued.append(2.0), clock=clock).seconds == pytest.approx([2.0] * 7)
    queued.append(50.0)  # from before: it must not count
    assert d2l.time_it(lambda: queued.append(2.0), clock=clock).first == pytest.approx(2.0)
    ratio = d2l.compare(lambda: queued.append(3.0), lambda: queued.append(2.0), clock=clock)
    assert ratio.ratios == pytest.approx([1.5] * 7)
    timer = d2l.Timer(clock=clock)
    queued.append(4.0)
    assert timer.stop() == pytest.approx(4.0)


def test_every_gpu_with_memory_in_use_is_synchronized_and_no_other(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda i: 2**20 if i in (0, 3) else 0)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: waited.append(torch.device(device).index))
    d2l.synchronize()
    assert waited == [0, 1, 3]
    d2l.synchronize(["cuda:2", "cpu"])
    assert waited == [0, 1, 3, 2]


def test_without_a_gpu_there_is_nothing_to_wait_for():
    d2l.synchronize()
    d2l.synchronize(["cpu"])


def test_compare_takes_turns_and_is_not_moved_by_one_disturbed_pair(clock):
    ratio = d2l.compare(clock.work("a", 9, 9, 3), clock.work("b", 9, 9, 2, 2, 40, 2), pairs=5, clock=clock)
    assert clock.log[4:] == ["a", "b"] * 5
    assert ratio.median == pytest.approx(1.5) and len(ratio.ratios) == 5
    assert str(ratio).startswith("a / b: 1.5x (1.5x to 1.5x, 5 pairs)")


def test_a_measurement_prints_name_median_spread_and_unit():
    assert str(d2l.Measurement("product", [0.010, 0.012, 0.014])) == "product: 12.0 ms (11.0 to 13.0 ms, 3 runs)"
    assert str(d2l.Measurement("product", [0.0009, 0.0011])) == "product: 1.00 ms (950 us to 1.05 ms, 2 runs)"


@pytest.mark.parametrize("seconds, text", [(2.145, "2.15 s"), (0.025, "25.0 ms"), (0.9999, "1.00 s"), (0.000999, "999 us"),
                                           (12.34, "12.3 s"), (99.96, "100 s"), (3600, "3600 s"), (5e-9, "5.00 ns"), (0, "0.00 ns")])
def test_times_have_three_digits_and_a_fitting_unit(seconds, text):
    assert format_time(seconds) == text


@pytest.mark.parametrize("ratio, text", [(1.23, "1.2x"), (85.8, "85.8x"), (123.4, "123x"), (0.5, "0.5x"), (0.0123, "0.012x")])
def test_ratios_have_one_form(ratio, text):
    assert format_ratio(ratio) == text


def test_bytes_are_counted_in_powers_of_1000():
    assert [format_bytes(n) for n in (512, 4_000_000, 25.8e9)] == ["512 B", "4.00 MB", "25.8 GB"]


@pytest.mark.parametrize("call", [lambda: d2l.time_it(int, repeats=0), lambda: d2l.compare(int, int, pairs=0)])
def test_no_runs_is_an_error(call):
    with pytest.raises(ValueError, match="at least 1: 0"):
        call()


# -------------------------------------------------------------------------------------- d2l's two classes
def test_timer_has_d2ls_names(clock):
    timer = d2l.Timer(clock=clock)
    for seconds in (1, 2, 3):
        clock.now += 10  # not running
        timer.start()
        clock.now += seconds
        assert timer.stop() == pytest.approx(seconds)
    assert (timer.avg(), timer.sum(), timer.cumsum()) == (pytest.approx(2), pytest.approx(6), pytest.approx([1, 3, 6]))
    assert timer.times == pytest.approx([1, 2, 3])


def test_a_timer_runs_from_the_start(clock):
    timer = d2l.Timer(clock=clock)
    clock.now += 5
    assert timer.stop() == pytest.approx(5)


def test_the_mean_of_no_time_is_an_error():
    with pytest.raises(ValueError, match="stop"):
        d2l.Timer().avg()


def test_benchmark_prints_its_description_and_the_time(capsys):
    with d2l.Benchmark("Product") as product:
        pass
    assert capsys.readouterr().out == f"Product: {format_time(product.seconds)}\n"
    with d2l.Benchmark():
        pass
    assert capsys.readouterr().out.startswith("Done: ")


# ------------------------------------------------------------------------------------------ simulated GPUs
@pytest.mark.parametrize("running, said", [(object(), 1), (None, 0)])
def test_on_simulated_gpus_it_says_once_that_the_cpu_is_measured(monkeypatch, capsys, running, said):
    monkeypatch.setattr(devices, "_said", set())
    monkeypatch.setitem(sys.modules, "d2l_gpu.simulator", SimpleNamespace(simulated=lambda: running))
    d2l.time_it(int, repeats=1)
    d2l.compare(int, int, pairs=1)
    d2l.Timer()
    assert capsys.readouterr().out.count("simulated") == said


def test_without_a_simulator_nothing_is_said_or_imported(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "d2l_gpu.simulator", raising=False)
    d2l.time_it(int, repeats=1)
    assert capsys.readouterr().out == "" and "d2l_gpu.simulator" not in sys.modules
