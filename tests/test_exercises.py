"""Every exercise of every chapter: the stub is not attempted, the solution passes, wrong answers get hints."""

import re
from collections import Counter

import notebooks
import pytest
import torch
from torch.serialization import load

from d2l_gpu import checks
from wrong_answers import WRONG

CELLS = [(path.stem, cell) for path in notebooks.chapters() for cell in notebooks.code_cells(notebooks.read(path))]
MEASURED = {"capstone-1"}  # the check takes seconds, and says a ratio
CALL = re.compile(r"""d2l\.check\(\s*["']([\w-]+)["'],""")


def cells_tagged(tag):
    found = [(chapter, cell) for chapter, cell in CELLS if tag in notebooks.tags(cell)]
    return [pytest.param("".join(cell["source"]), id=f"{chapter}:{cell['id']}") for chapter, cell in found]


def run(source, chapter_imports="import torch\nimport d2l_gpu as d2l\n"):
    exec(chapter_imports + source, {"__name__": "__main__"})


@pytest.mark.parametrize("source", cells_tagged("exercise"))
def test_the_stub_reads_as_not_attempted(source, capsys):
    run(source)
    assert capsys.readouterr().out.startswith(f"Not attempted yet: {CALL.search(source)[1]}.")


@pytest.mark.parametrize("source", cells_tagged("solution"))
def test_the_solution_passes(source, capsys):
    name = CALL.search(source)[1]
    for attempt in range(1 if name in MEASURED else 20):  # checks draw inputs of their own
        run(source)
        said = capsys.readouterr().out
        assert said.startswith(f"Passed: {name}.") and (name in MEASURED or said == f"Passed: {name}.\n"), said


@pytest.mark.parametrize("source", cells_tagged("solution"))
def test_the_solution_is_folded_everywhere(source):
    cell = next(cell for _, cell in CELLS if "".join(cell["source"]) == source)
    assert source.startswith("#@title ")  # with cellView: Colab
    assert cell["metadata"]["cellView"] == "form"
    assert cell["metadata"]["jupyter"]["source_hidden"] is True  # JupyterLab
    assert "hide-cell" in notebooks.tags(cell) and "solution" in cell["metadata"]["mystnb"]["code_prompt_show"]  # the page


def test_every_exercise_has_a_stub_and_a_solution_in_one_chapter():
    called = {tag: Counter(CALL.search("".join(cell["source"]))[1] for _, cell in CELLS if tag in notebooks.tags(cell))
              for tag in ("exercise", "solution")}
    assert called["exercise"] == called["solution"] == Counter(checks.names())


def test_every_chapter_has_at_least_three_checked_exercises():
    per_chapter = Counter(chapter for chapter, cell in CELLS if "exercise" in notebooks.tags(cell))
    assert all(per_chapter[path.stem] >= 3 for path in notebooks.chapters())


@pytest.mark.parametrize("name", checks.names())
def test_three_or_more_wrong_answers_each_get_a_hint_of_their_own(name):
    said = {}
    for words, answer in WRONG[name].items():
        verdict = checks.verdict(name, answer)
        assert verdict.startswith("Not yet: "), f"{name}: {words!r} was answered with {verdict!r}"
        assert "cannot make sense" not in verdict, verdict
        assert words in verdict, f"{name}: expected a hint with {words!r}, got {verdict!r}"
        said[words] = re.sub(r"\d+", "N", verdict)
    assert len(WRONG[name]) >= 3
    assert len(set(said.values())) == len(said), f"{name}: two wrong answers got the same hint"


def _masked(path, net):
    state = torch.load(path, map_location="cpu", weights_only=False)
    if not isinstance(state, dict):
        raise TypeError("this file holds no weights")
    net.load_state_dict(state)


def _without_a_place(path, net):
    net.load_state_dict(load(path))


@pytest.mark.parametrize("answer, hint", [(_masked, "made code of its own run"), (_without_a_place, "Say map_location")])
def test_loading_is_watched_whatever_the_answer_raises_and_however_load_is_called(monkeypatch, answer, hint):
    from d2l_gpu.checks import errors
    names = errors._loads  # the prefixes of names are another matter here
    monkeypatch.setattr(errors, "_loads", lambda answer, path, make, prefix, *rest: names(answer, path, make, "", *rest))
    assert hint in checks.verdict("errors-3", answer)


@pytest.mark.parametrize("name", checks.names())
@pytest.mark.parametrize("constant", [0, 1, True, "cpu", None, (), [1, 2, 3]])
def test_a_constant_never_passes(name, constant):
    assert not checks.verdict(name, constant).startswith("Passed")
    assert not checks.verdict(name, lambda *args: constant).startswith("Passed")
