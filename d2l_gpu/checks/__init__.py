"""Checks for the exercises at the end of each chapter.

`check("devices-1", my_answer)` prints one of three things: that nothing was attempted yet, a hint at what is
wrong, or that the answer passes. Each chapter has one module of checkers here, named after it.

A checker is a function under `@exercise("chapter-number")`. It takes the answer, calls it with inputs of its own
(some of them random, so that a constant does not pass), and raises `Hint` where the answer is wrong. What it returns,
if anything, is said after "Passed".
"""

import contextlib
import difflib
import dis
import importlib
import inspect
import pkgutil
import random
import textwrap
import traceback

_checkers = {}


class Hint(Exception):
    """What is wrong with an answer, and the way on. Raised by a checker, shown by `check`."""


class Untouched(Exception):
    """The answer is the code that the exercise began with. Raised by a checker whose exercise is to change code."""


def exercise(name):
    """Register the decorated function as the checker of the exercise `name`."""
    def register(checker):
        _checkers[name] = checker
        return checker
    return register


def names():
    """The names of all exercises that have a check, sorted."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return sorted(_checkers)


def check(name, answer):
    """Print whether `answer` solves the exercise `name`, and if not, a hint.

    `answer` is what the exercise asks for, a value or a function. Raises ValueError for a name that no exercise
    has. A wrong answer is no error: it prints its hint, whatever the answer itself raises.
    """
    print("\n".join(textwrap.fill(line, 78) for line in verdict(name, answer).splitlines()))


def verdict(name, answer):
    """What `check` prints: it starts with "Not attempted yet", "Not yet" or "Passed"."""
    known = names()
    if name not in known:
        near = difflib.get_close_matches(str(name), known, n=3, cutoff=0.4) or known
        raise ValueError(f"no exercise is called {name!r}: did you mean {' or '.join(map(repr, near))}?")
    if _untouched(answer):
        return f"Not attempted yet: {name}. Replace the dots and run the cell again."
    state = random.getstate()
    try:
        more = _checkers[name](answer)
    except Untouched:
        return f"Not attempted yet: {name}. Change the code and run the cell again."
    except Hint as hint:
        return f"Not yet: {hint}"
    except Exception as error:
        reason = f"{type(error).__name__}{_line_of(answer, error)}: {error}"
        if getattr(error, "raised_by_answer", False):
            return f"Not yet: {error.called}your answer raised {reason}"
        return f"Not yet: the check cannot make sense of what your answer returned ({reason})"
    finally:
        random.setstate(state)
    return f"Passed: {name}." + (f" {more}" if more else "")


def _untouched(answer):
    """Whether this is still the stub: `...` as a value, or a function with nothing but `...` or `pass` in it, or a class
    all of whose functions are such."""
    if answer is ...:
        return True
    if isinstance(answer, type):
        return all(_untouched(member) for member in vars(answer).values() if inspect.isfunction(member))
    code = getattr(answer, "__code__", None)
    if code is None:
        return False
    idle = ("RESUME", "NOP", "RETURN_VALUE", "COPY_FREE_VARS")
    does = [step for step in dis.get_instructions(code) if step.opname not in idle]
    return all(step.opname in ("LOAD_CONST", "RETURN_CONST") and step.argval is None for step in does)


def _line_of(answer, error):
    """Where in the answer's own code the error came up, as ` in its line N`, if it did there."""
    code = getattr(answer, "__code__", None)
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_code is code:
            return f" in line {line - code.co_firstlineno + 1} of {answer.__name__}"
    return ""


@contextlib.contextmanager
def some_devices():
    """Two GPUs for a checker to place tensors on: the real or simulated ones of this process, else simulated ones for
    as long as the block lasts. The list is empty if this release of torch cannot simulate them."""
    from ..devices import num_gpus, try_all_gpus
    if num_gpus():
        yield try_all_gpus()[:2]
        return
    from ..simulator import SimulatorUnavailable, simulate_gpus
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(simulate_gpus(2))
        except SimulatorUnavailable:
            yield []
        else:
            yield try_all_gpus()


def call(function, *args):
    """`function(*args)`, or a `Hint` if the answer is not a function at all."""
    if not callable(function):
        raise Hint(f"this exercise asks for a function, and the answer is {function!r}. "
                   "Pass the function itself, without calling it.")
    try:
        return function(*args)
    except Exception as error:
        error.raised_by_answer = True
        given = ", ".join(map(repr, args))
        error.called = f"for {given} " if args and len(given) < 200 and "\n" not in given else ""
        raise
