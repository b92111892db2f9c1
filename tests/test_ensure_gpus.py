"""ensure_gpus: what a chapter gets on machines with none, one and two real GPUs."""

import os
import subprocess
import sys

import pytest
import torch

import d2l_gpu as d2l
from d2l_gpu import devices


def run(code, root, **variables):
    """What a fresh process without a GPU prints."""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(root)} | variables
    done = subprocess.run([sys.executable, "-c", "import torch, d2l_gpu as d2l\n" + code], env=environment,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


WHAT = "d2l.ensure_gpus(2)\nprint(d2l.num_gpus(), d2l.try_gpu(), d2l.try_gpu(1))"


@pytest.mark.parametrize("value, said, devices_", [
    ("", "2 simulated GPUs: real values, CUDA's rules of placement, no speed (no real GPU here)\n", "2 cuda:0 cuda:1\n"),
    ("2", "2 simulated GPUs: real values, CUDA's rules of placement, no speed (no real GPU here)\n", "2 cuda:0 cuda:1\n"),
    ("1", "1 simulated GPU: real values, CUDA's rules of placement, no speed (no real GPU here)\n"
          "1 GPU here: the CPU stands in for cuda:1\n", "1 cuda:0 cpu\n"),
    ("0", "No GPU here: the CPU stands in for cuda:0, cuda:1\n", "0 cpu cpu\n"),
])
def test_without_a_gpu_the_variable_decides_and_one_call_says_what_happened(root, value, said, devices_):
    assert run(WHAT, root, D2L_GPU_SIMULATE=value) == said + devices_


def test_running_the_cell_again_says_nothing_new(root):
    assert run("d2l.ensure_gpus(2)\nprint('again')\nd2l.ensure_gpus(2)", root).endswith("again\n")


def test_where_gpus_cannot_be_simulated_the_chapter_goes_on_with_the_cpu(root):
    said = run("""
import d2l_gpu.simulator as simulator
def refuse(n):
    raise simulator.SimulatorUnavailable("torch._C._something is missing")
simulator.simulate_gpus = refuse
""" + WHAT, root)
    assert said.splitlines()[0].startswith("GPUs cannot be simulated with this release of torch")
    assert said.endswith("No GPU here: the CPU stands in for cuda:0, cuda:1\n0 cpu cpu\n")


@pytest.mark.parametrize("value", ["two", "-1", "1.5"])
def test_a_variable_that_is_no_number_is_named(monkeypatch, value):
    monkeypatch.setenv("D2L_GPU_SIMULATE", value)
    with pytest.raises(ValueError, match=f"D2L_GPU_SIMULATE='{value}'"):
        d2l.ensure_gpus(2)


@pytest.mark.parametrize("n", [0, -2, 1.5, "2", True, None])
def test_a_number_of_gpus_that_cannot_be_meant_is_named(n):
    with pytest.raises(ValueError, match=f"not {n!r}"):
        d2l.ensure_gpus(n)


@pytest.fixture
def real_gpus(monkeypatch):
    def pretend(n):
        monkeypatch.setattr(devices, "_said", set())
        monkeypatch.setattr(devices, "_simulate", lambda n: pytest.fail("simulated beside a real GPU"))
        monkeypatch.setattr(torch.cuda, "is_available", lambda: n > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: n)
    monkeypatch.delenv("D2L_GPU_SIMULATE", raising=False)
    return pretend


def test_with_enough_real_gpus_it_does_nothing(real_gpus, capsys):
    real_gpus(2)
    d2l.ensure_gpus(2)
    assert capsys.readouterr().out == "" and d2l.try_gpu(1) == torch.device("cuda:1")


def test_with_fewer_real_gpus_one_line_says_what_stands_in(real_gpus, capsys):
    real_gpus(1)
    d2l.ensure_gpus(2)
    assert [d2l.try_gpu(), d2l.try_gpu(1)] == [torch.device("cuda:0"), torch.device("cpu")]
    assert capsys.readouterr().out == "1 GPU here: the CPU stands in for cuda:1\n"


def test_beside_a_real_gpu_the_variable_says_that_it_has_no_effect(real_gpus, monkeypatch, capsys):
    real_gpus(2)
    monkeypatch.setenv("D2L_GPU_SIMULATE", "2")
    d2l.ensure_gpus(2)
    assert "D2L_GPU_SIMULATE=2 has no effect beside a real GPU" in capsys.readouterr().out


def test_hardware_says_that_gpus_are_simulated(root):
    table = run("d2l.ensure_gpus(2)\nprint(d2l.hardware())", root)
    assert "cuda:1  17.2 GB = 16.0 GiB  Simulated GPU (in main memory)" in table
    assert "CUDA     2 simulated GPUs, no real one: " in table
