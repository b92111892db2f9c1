"""Fixtures of the simulator's tests.  Everything runs on the CPU."""

import pytest
import torch

from d2l_gpu.simulator import simulate_gpus


@pytest.fixture
def gpus():
    """Two simulated GPUs for the length of a test."""
    with simulate_gpus(2) as simulation:
        yield simulation


@pytest.fixture
def message():
    """message(call, kind): the text of the error that `call` raises, which must be of that kind."""

    def text(call, kind=RuntimeError):
        with pytest.raises(kind) as info:
            call()
        return str(info.value)

    return text


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
