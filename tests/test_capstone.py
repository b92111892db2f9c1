"""The slow script of the capstone, and its check: what is recognized, what is counted, and the threshold."""

import ast
import re
import runpy
from pathlib import Path

import pytest
import torch
from torch.utils.data import dataloader

import d2l_gpu as d2l
from d2l_gpu import checks
from d2l_gpu.capstone import slow
from d2l_gpu.capstone.habits import habits, some
from d2l_gpu.checks import capstone
from wrong_answers import WRONG, _capstone

SOURCE = Path(slow.__file__).read_text(encoding="utf-8").partition('if __name__ == "__main__":')[0]
CPU = torch.device("cpu")
mended = _capstone()


def changed(old, new, by_statement=False):
    """`train` of the script with `old` replaced; compiled as a whole, or statement by statement as IPython does."""
    assert old in SOURCE
    tree, names = ast.parse(SOURCE.replace(old, new)), {"__name__": "__main__"}
    for part in [[node] for node in tree.body] if by_statement else [tree.body]:
        exec(compile(ast.Module(part, []), "<cell>", "exec"), names)
    return names["train"]


def test_the_script_runs_and_its_loss_falls(monkeypatch, capsys):
    sets = {train: tuple(part[:200] for part in d2l.load_images(train=train)) for train in (True, False)}
    monkeypatch.setattr(d2l, "load_images", lambda train=True: sets[train])
    runpy.run_path(slow.__file__, run_name="__main__")
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", capsys.readouterr().out)]
    assert len(losses) == 12 and losses[-1] < 0.5 * losses[0]


@pytest.fixture(autouse=True)
def one_thread():
    with capstone._one_thread():
        yield


# ------------------------------------------------------------------------------------------------ the unchanged script
@pytest.mark.parametrize("by_statement", [False, True])
def test_a_copy_of_the_script_is_not_attempted(by_statement):
    assert checks.verdict("capstone-1", changed("", "", by_statement)).startswith("Not attempted yet")


@pytest.mark.parametrize("old, new", [
    ("batch_size=64", "batch_size=128"),
    ("            torch.cuda.empty_cache()", "        torch.cuda.empty_cache()"),  # out of the inner loop
    ("DataLoader(Clothes(*test_set))", "DataLoader(Clothes(*test_set), batch_size=1000)"),  # in what train calls
    ("picture = picture.sqrt()", "pass"),
])
def test_any_change_is_an_attempt(old, new):
    assert not capstone._same_code(changed(old, new), slow.train)


# ------------------------------------------------------------------------------------------------------ the habits
REMEDIES = {
    "anomaly detection": ("set_detect_anomaly(True)", "set_detect_anomaly(False)"),
    "plain Adam": ("lr=1e-3)", "lr=1e-3, fused=True)"),
    "emptied caches": ("torch.cuda.empty_cache()", "pass"),
    "graphs kept": ("loss * len(y)", "loss.detach() * len(y)"),
    "graphs in evaluation": ("def accuracy", "@torch.no_grad()\ndef accuracy"),
    "tests one by one": ("DataLoader(Clothes(*test_set))", "DataLoader(Clothes(*test_set), batch_size=64)"),
}


@pytest.fixture(scope="module")
def all_habits():
    return set(habits(slow.train, CPU))


def test_the_slow_script_has_its_habits_and_the_mended_one_none(all_habits):
    assert all_habits == {*REMEDIES, "pictures one by one", "fetches"}
    assert habits(mended, CPU) == {}


@pytest.mark.parametrize("habit", REMEDIES)
def test_a_habit_that_is_gone_is_no_longer_found(habit, all_habits):
    assert all_habits - set(habits(changed(*REMEDIES[habit]), CPU)) == {habit}


def test_workers_started_in_every_pass_are_found(monkeypatch):
    class Iterator:  # what starts workers, without them
        def __init__(self, loader):
            self.batches = iter([torch.utils.data.default_collate([loader.dataset[i] for i in loader.sampler])])

        def __iter__(self):
            return self

        def __next__(self):
            return next(self.batches)

    monkeypatch.setattr(dataloader, "_MultiProcessingDataLoaderIter", Iterator)
    found = habits(changed("sampler=order", "sampler=order, num_workers=2"), CPU)
    assert found["new workers"] == "workers were started 3 times"


def test_what_is_watched_is_as_before_even_if_the_answer_fails():
    before = torch.cuda.empty_cache, dataloader._MultiProcessingDataLoaderIter.__init__, torch.get_num_threads()

    def fails(*args):
        torch.autograd.set_detect_anomaly(True)
        raise RuntimeError("no")

    for look in (habits, capstone.times_as_fast):
        with pytest.raises(RuntimeError):
            look(fails, CPU)
    assert checks.verdict("capstone-1", fails).startswith("Not yet: your answer raised RuntimeError")
    assert not torch.is_anomaly_enabled()
    assert before == (torch.cuda.empty_cache, dataloader._MultiProcessingDataLoaderIter.__init__, torch.get_num_threads())


# ------------------------------------------------------------------------------------------------------- the ratio
def scripted(*seconds):
    """A clock whose n-th run, from one reading to the next, takes seconds[n]."""
    readings = [0.0]
    for taken in seconds:
        readings += [readings[-1] + taken, readings[-1] + taken]
    return iter(readings).__next__


def test_the_ratio_is_the_median_without_the_first_pair_and_the_wait_is_inside(monkeypatch):
    monkeypatch.setattr(capstone, "some", lambda count, train: some(80, train))
    events = []
    monkeypatch.setattr(capstone, "synchronize", lambda devices: events.append("wait"))
    clock = scripted(90, 1, 8, 2, 8, 2, 100, 2, 8, 2, 8, 2)
    ratio = capstone.times_as_fast(mended, CPU, clock=lambda: events.append("read") or clock())
    assert ratio == 4
    assert events == ["wait", "read", "wait", "read"] * 2 * (1 + capstone.PAIRS)


@pytest.mark.parametrize("ratio, verdict", [(2.96, "Not yet: 2.96 times"), (3.0, "Passed: capstone-1. 3.00 times")])
def test_three_times_is_enough_and_less_is_not(monkeypatch, ratio, verdict):
    monkeypatch.setattr(capstone, "times_as_fast", lambda answer, device: ratio)
    assert checks.verdict("capstone-1", mended).startswith(verdict)


def test_what_is_still_there_is_said(monkeypatch):
    monkeypatch.setattr(capstone, "times_as_fast", lambda answer, device: 1.2)
    said = checks.verdict("capstone-1", changed(*REMEDIES["anomaly detection"]))
    assert "Still there: each picture is prepared by itself" in said and "anomaly" not in said
    assert "Nothing is left" in checks.verdict("capstone-1", mended)
    monkeypatch.setattr(capstone, "times_as_fast", lambda answer, device: 5.0)
    assert "Gone: anomaly detection. Still there: pictures one by one" in checks.verdict(
        "capstone-1", changed(*REMEDIES["anomaly detection"]))


def test_half_precision_counts_as_learning_the_same(monkeypatch):
    monkeypatch.setattr(capstone, "times_as_fast", lambda answer, device: 4.0)
    assert checks.verdict("capstone-1", _capstone(dtype=torch.bfloat16)).startswith("Passed")


def test_the_wrong_answers_are_judged_before_anything_is_timed(monkeypatch):
    monkeypatch.setattr(capstone, "times_as_fast", lambda answer, device: pytest.fail("timed"))
    for words, answer in WRONG["capstone-1"].items():
        if words not in ("times are asked for", "kept from an earlier call"):
            assert words in checks.verdict("capstone-1", answer)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there torch.compile works, and costs more than it saves")
def test_a_compiled_network_gets_a_reason_and_not_the_simulators_refusal():
    compiles = changed("    net.to(device)\n", "    net.to(device)\n    net = torch.compile(net)\n")
    assert "leave torch.compile out" in checks.verdict("capstone-1", compiles)
