"""check() itself, with exercises of the test's own."""

import pytest

import d2l_gpu as d2l
from d2l_gpu import checks


@pytest.fixture
def doubling(monkeypatch):
    @checks.exercise("test-1")
    def double(answer):
        if checks.call(answer, 3) != 6:
            raise checks.Hint("3 doubled is 6")
    yield "test-1"
    del checks._checkers["test-1"]


def stub(x):
    ...


def stub_with_docstring(x):
    """Twice x."""
    ...


def stub_with_pass(x):
    pass


def stub_with_none(x):
    return None


class StubOfAClass:
    def __init__(self, x): ...

    def twice(self):
        """Twice x."""


class BegunClass(StubOfAClass):
    def twice(self):
        return 0


@pytest.mark.parametrize("untouched", [..., stub, stub_with_docstring, stub_with_pass, stub_with_none, StubOfAClass])
def test_an_untouched_stub_is_not_attempted(doubling, untouched):
    assert checks.verdict(doubling, untouched).startswith("Not attempted yet: test-1")


@pytest.mark.parametrize("attempted", [lambda x: x, lambda x: 0, lambda x: print(x), None, 0, "", [], print, BegunClass])
def test_an_attempt_is_never_taken_for_a_stub(doubling, attempted):
    assert checks.verdict(doubling, attempted).startswith("Not yet: ")


def test_a_right_answer_passes_briefly(doubling):
    assert checks.verdict(doubling, lambda x: 2 * x) == "Passed: test-1."


def test_a_wrong_answer_gets_its_hint(doubling):
    assert checks.verdict(doubling, lambda x: x) == "Not yet: 3 doubled is 6"


def test_a_value_where_a_function_is_asked_for_says_so(doubling):
    assert "asks for a function, and the answer is 6" in checks.verdict(doubling, 6)


def test_an_error_of_the_answer_is_shown_with_its_line(doubling):
    def broken(x):
        y = 2 * x
        return y + z  # noqa: F821
    said = checks.verdict(doubling, broken)
    assert "for 3 your answer raised NameError in line 3 of broken" in said and "'z'" in said


def test_an_answer_of_a_kind_that_the_check_did_not_expect_is_said_to_be_that():
    class Odd:
        def __eq__(self, other):
            raise TypeError("no comparison")
    said = checks.verdict("tensors-1", lambda shape, dtype: Odd())
    assert said.startswith("Not yet: the check cannot make sense of what your answer returned (TypeError")


def test_check_prints_and_returns_nothing(doubling, capsys):
    assert d2l.check(doubling, lambda x: 2 * x) is None
    assert capsys.readouterr().out == "Passed: test-1.\n"


@pytest.mark.parametrize("name, near", [("devices1", "devices-1"), ("device-2", "devices-2"), ("Devices-3", "devices-3")])
def test_an_unknown_name_lists_the_near_ones(name, near):
    with pytest.raises(ValueError, match=f"no exercise is called '{name}'.*'{near}'"):
        d2l.check(name, ...)


def test_a_name_near_to_nothing_lists_all():
    with pytest.raises(ValueError, match="devices-1.*devices-4"):
        d2l.check("zzz", ...)


def test_a_check_leaves_the_random_state_alone(doubling):
    import random
    before = random.getstate()
    checks.verdict("devices-2", lambda i, n: 0)
    assert random.getstate() == before
