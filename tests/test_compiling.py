"""Which backend of torch.compile works: asked of the real compiler, and of compilers that fail."""

import os
import subprocess
import sys

import pytest
import torch

from d2l_gpu import compiling


@pytest.fixture
def fresh(monkeypatch):
    """No answers from earlier tests, and a torch.compile whose backends fail as `failing` says."""
    compiling._try.cache_clear()
    failing = {}

    def compile(function, backend):
        def call(x):
            if backend in failing:
                raise failing[backend]
            return function(x)
        return call

    monkeypatch.setattr(torch, "compile", compile)
    yield failing
    compiling._try.cache_clear()


def test_a_compiler_that_works_is_used_and_nothing_is_said(fresh, capsys):
    assert compiling.compile_backend("cpu") == "inductor" and capsys.readouterr().out == ""


def test_without_a_compiler_functions_are_traced_and_the_reason_is_said(fresh, capsys):
    inner = RuntimeError("Found GeForce GTX 1070 which is too old to be supported by the triton GPU compiler\nmore")
    fresh["inductor"] = RuntimeError("backend='inductor' raised")
    fresh["inductor"].__cause__ = inner
    assert compiling.compile_backend("cpu") == "eager"
    said = capsys.readouterr().out
    assert "one by one" in said and "too old to be supported" in said and "more" not in said


def test_where_nothing_can_be_traced_the_error_says_so(fresh):
    fresh.update(inductor=RuntimeError("Dynamo is not supported on Python 3.99"), eager=RuntimeError("Dynamo is not supported"))
    with pytest.raises(RuntimeError, match="cannot even trace here.*Python 3.99"):
        compiling.compile_backend("cpu")


def test_a_real_machine_without_a_compiler_gets_eager_and_a_reason(tmp_path):
    code = ("import os; os.environ['PATH'] = os.environ['CXX'] = '/nowhere'\n"
            "import torch, d2l_gpu as d2l\n"
            "backend = d2l.compile_backend()\n"
            "print(backend, torch.compile(lambda x: x * 2, backend=backend)(torch.ones(1)).item())")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path,
                          env=os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "eager 2.0" and "C++ compiler" in done.stdout
