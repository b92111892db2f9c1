"""Starting and stopping: idempotent, reversible, and clear about what it cannot do."""

import ast
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import d2l_gpu.simulator as simulator
from d2l_gpu.simulator import SimulatedTensor, SimulatorUnavailable, private, simulate_gpus, simulated

OPERATORS = (
    "linear", "softmax.int", "empty.memory_format", "empty_strided", "is_pinned", "_pin_memory",
    "addmm", "sum", "_to_copy", "lstm.input", "scaled_dot_product_attention", "rand", "arange",
)


def owners():
    """Every class and module that the simulator could have touched."""
    modules = [m for name, m in sys.modules.items() if name == "torch" or name.startswith((
        "torch.cuda", "torch.nn.parallel", "torch.nn.parameter", "torch.optim.optimizer",
        "torch.utils._device", "torch.autograd", "torch.profiler", "torch.serialization",
        "torch._utils", "torch.accelerator", "torch.fft", "torch.nested", "torch.backends.cudnn"))]
    return modules + [
        torch._C, torch._C._nn, torch.Tensor, nn.Module, nn.UninitializedParameter,
        nn.UninitializedBuffer, nn.parameter.UninitializedTensorMixin,
        torch.nn.parallel._functions.Scatter, torch.utils._device.DeviceContext,
        torch.autograd.profiler.profile, torch.profiler.profile,
    ]


def snapshot():
    attributes = {
        (getattr(owner, "__name__", ""), id(owner), name): id(value)
        for owner in owners() for name, value in vars(owner).items()
        if name != "__warningregistry__"
    }
    tables = [torch._C._dispatch_dump_table(f"aten::{operator}") for operator in OPERATORS]
    script = dict(torch.jit._builtins._get_builtin_table())
    handler = torch._dynamo.callback.callback_handler
    return attributes, tables, script, list(handler.start_callbacks), list(handler.end_callbacks)


@pytest.fixture
def warm():
    """Caches and lazy modules that PyTorch fills on first use."""
    with simulate_gpus(1):
        torch.ones(1, device="cuda")
        torch.optim.Adam(nn.Linear(2, 2).to("cuda").parameters()).step()


def test_stop_restores_attributes_tables_and_callbacks(warm):
    before = snapshot()
    with simulate_gpus(2):
        net = nn.Linear(2, 2).to("cuda")
        torch.optim.Adam(net.parameters()).step()
        with torch.autocast("cuda"):
            net(torch.ones(1, 2, device="cuda")).sum().backward()
        assert torch.cuda.is_available() and torch.accelerator.is_available()
        assert snapshot()[0] != before[0] and snapshot()[1] != before[1]
    after = snapshot()
    assert {key for key in before[0] if before[0][key] != after[0].get(key)} == set()
    assert set(after[0]) == set(before[0])
    assert after[1:] == before[1:]
    assert simulated() is None
    assert not torch.cuda.is_available() and torch.cuda.device_count() == 0
    assert torch.empty(2, device="meta").is_meta
    with torch.autocast("cpu"):
        assert nn.Linear(2, 2)(torch.ones(1, 2)).dtype == torch.bfloat16


@pytest.mark.parametrize("step", ["_register_kernels", "_replace", "late"])
def test_a_start_that_fails_half_way_undoes_itself(warm, monkeypatch, step):
    before = snapshot()
    calls = []

    def fail(*args, **kwargs):
        calls.append(args)
        if step != "_replace" or len(calls) == 20:
            raise ZeroDivisionError
        return original(*args, **kwargs)

    if step == "late":
        monkeypatch.setattr(torch, "initial_seed", fail)
        before = snapshot()
    else:
        original = getattr(simulator.Simulation, step)
        monkeypatch.setattr(simulator.Simulation, step, fail)
    with pytest.raises(ZeroDivisionError):
        simulate_gpus(2)
    assert snapshot() == before and simulated() is None


def test_starting_again_with_the_same_numbers_returns_the_running_one():
    first = simulate_gpus(2)
    try:
        assert simulate_gpus(2) is first is simulated()
    finally:
        first.stop()
    first.stop()  # stopping twice does no harm
    with simulate_gpus(3) as other:
        first.stop()  # nor does it end another simulation
        assert torch.cuda.device_count() == 3 and simulated() is other


@pytest.mark.parametrize("numbers", [dict(n=3), dict(memory=2**20)])
def test_starting_again_with_other_numbers_names_both_and_the_way_out(gpus, message, numbers):
    text = message(lambda: simulate_gpus(**numbers))
    asked = f"{numbers.get('n', 2)} GPUs of {numbers.get('memory', 16 * 2**30):,} bytes"
    assert f"{2} GPUs of {16 * 2**30:,} bytes" in text and asked in text and "stop()" in text


@pytest.mark.parametrize("arguments, kind, named", [
    ((-1,), ValueError, "n=-1"), ((0,), ValueError, "n=0"), ((True,), TypeError, "n=True"),
    ((2.0,), TypeError, "n=2.0"), (("2",), TypeError, "n='2'"), ((None,), TypeError, "n=None"),
    ((1, 0), ValueError, "memory=0"), ((1, -5), ValueError, "memory=-5"),
    ((1, float("nan")), ValueError, "memory=nan"), ((1, float("inf")), ValueError, "memory=inf"),
    ((1, "1 GB"), TypeError, "memory='1 GB'"), ((1, True), TypeError, "memory=True"),
])
def test_bad_numbers_are_named_with_the_way_out(message, arguments, kind, named):
    text = message(lambda: simulate_gpus(*arguments), kind)
    assert named in text and ("such as" in text or "ask for at least 1" in text)
    assert simulated() is None


def test_memory_may_be_a_fraction_of_a_power():
    with simulate_gpus(1, 1.5 * 2**30):
        assert torch.cuda.get_device_properties(0).total_memory == 3 * 2**29


def test_it_refuses_beside_a_real_gpu_unless_asked_by_name(monkeypatch, message):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert "hide_real_gpus=True" in message(lambda: simulate_gpus(1))
    with simulate_gpus(1, hide_real_gpus=True):
        assert torch.cuda.get_device_name() == "Simulated GPU"


def test_a_missing_private_name_is_one_clear_error(monkeypatch, message):
    monkeypatch.setitem(private.NAMES, "torch._C._no_such_name", "a test")
    text = message(lambda: simulate_gpus(2), SimulatorUnavailable)
    assert "has no torch._C._no_such_name" in text and torch.__version__ in text
    assert simulated() is None


def test_an_untested_release_of_torch_gets_one_warning(monkeypatch):
    monkeypatch.setattr(private, "TESTED", ("1.0",))
    with pytest.warns(UserWarning, match="tested with torch 1.0; this is") as caught:
        simulate_gpus(1).stop()
    assert len(caught) == 1


def test_a_tested_release_starts_in_silence():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulate_gpus(1).stop()


def dotted_names(tree):
    """Every chain of attributes in a module's source that begins at `torch`."""
    for node in ast.walk(tree):
        parts, inner = [], node
        while isinstance(inner, ast.Attribute):
            parts, inner = [inner.attr, *parts], inner.value
        if parts and isinstance(inner, ast.Name) and inner.id == "torch":
            yield parts


def test_every_private_name_in_the_source_is_checked_at_start():
    used = set()
    for path in Path(simulator.__file__).parent.glob("*.py"):
        for parts in dotted_names(ast.parse(path.read_text())):
            if parts[0] != "ops" and any(p[0] == "_" and p[:2] != "__" for p in parts):
                used.add("torch." + ".".join(parts))
    assert len(used) > 30
    unchecked = {name for name in used if not any(
        (name + ".").startswith(entry + ".") or entry.startswith(name + ".")
        for entry in private.NAMES)}
    assert unchecked == set()


def test_warnings_of_the_program_are_left_alone(gpus):
    with pytest.warns(UserWarning, match="once"):
        warnings.warn("once")


def test_leaving_by_an_error_stops_it():
    with pytest.raises(ZeroDivisionError), simulate_gpus(1):
        1 / 0
    assert not torch.cuda.is_available()


def test_tensors_of_a_stopped_simulation_refuse_to_work(message):
    with simulate_gpus(1):
        x = torch.ones(2, device="cuda")
    calls = [lambda: x + 1, lambda: x.add_(1), lambda: x.cpu(), lambda: x[0], lambda: repr(x)]
    for call in calls:
        assert "has been stopped" in message(call)
    with simulate_gpus(1):  # in the next simulation they are strangers
        for call in calls:
            assert "has been stopped" in message(call)


def test_meta_tensors_of_the_program_still_work(gpus):
    x = torch.empty(3, device="meta")
    assert x.device == torch.device("meta") and (x + 1).is_meta and torch.zeros_like(x).is_meta
    assert not isinstance(x, SimulatedTensor)
    assert nn.LSTM(2, 3, device="meta")(torch.empty(4, 1, 2, device="meta"))[0].is_meta


def test_importing_the_package_does_not_import_dynamo():
    code = "import sys, d2l_gpu.simulator; print('torch._dynamo' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


def test_the_simulation_tells_what_it_is(gpus):
    assert repr(gpus) == "<Simulation of 2 GPUs of 17,179,869,184 bytes, running>"
    gpus.stop()
    assert "stopped" in repr(gpus)
