"""Simulated devices against the CPU, over PyTorch's own database of operators.

    python tests/simulator/differential.py [name ...]

runs every operator (minutes) and prints those that disagree; test_sim_operators.py runs a few.
An operator agrees if, for three sample inputs drawn by a fixed seed, the result on the device has
the CPU's values, shape and dtype, is on the device, and its gradients are, too.
"""

import collections
import random
import sys
import warnings
from pathlib import Path

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

sys.path.insert(0, str(Path(__file__).parents[2]))  # when run as a script
from d2l_gpu.simulator import SimulatedTensor, simulate_gpus

# Operators that cannot agree, each with the reason.
KNOWN = {
    "sparse.sampled_addmm": "no simulated device holds a sparse tensor",
    "sparse.mm": "no simulated device holds a sparse tensor",
    "to_sparse": "no simulated device holds a sparse tensor",
}
# Operators whose arguments other than the first must be on the host.
HOST_ARGUMENTS = {"tensor_split"}


class Disagreement(AssertionError):
    """What differs."""


def copy_of(op, sample, device):
    def move(value):
        if isinstance(value, torch.Tensor):
            return value.detach().clone().to(device).requires_grad_(value.requires_grad)
        if isinstance(value, torch.device) or isinstance(value, str) and value in ("cpu", "cuda"):
            return torch.device(device)
        return value

    arguments = (sample.input, sample.args, sample.kwargs)
    if op.name in HOST_ARGUMENTS:
        return tree_map(move, sample.input), *arguments[1:]
    return tree_map(move, arguments)


def run(op, arguments, gradients):
    torch.manual_seed(0)
    torch.cuda.default_generators[0].set_state(torch.default_generator.get_state())
    input, args, kwargs = arguments
    out = op(input, *args, **kwargs)
    wanted = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor) and t.requires_grad]
    if gradients and wanted:
        sum(t.abs().sum() for t in wanted).backward()
    return out


def same(a, b, rtol, atol):
    wide = torch.complex128 if a.is_complex() else torch.float64
    return torch.allclose(a.to(wide), b.to(wide), rtol=rtol, atol=atol, equal_nan=True)


def compare(op, sample, gradients):
    """Raise Disagreement unless the device does what the CPU does."""
    host, device = copy_of(op, sample, "cpu"), copy_of(op, sample, "cuda")
    expected, found = run(op, host, gradients), run(op, device, gradients)
    pairs = list(zip(tree_leaves(expected), tree_leaves(found), strict=True))
    for a, b in pairs:
        if not isinstance(a, torch.Tensor):
            continue
        if not isinstance(b, SimulatedTensor) or isinstance(a, SimulatedTensor):
            raise Disagreement(f"device: {getattr(b, 'device', type(b))}")
        b = b.detach().cpu()
        if a.shape != b.shape or a.dtype != b.dtype:
            raise Disagreement(f"{a.shape} {a.dtype}, {b.shape} {b.dtype}")
        if "empty" not in op.name and not same(a.detach(), b, 1e-4, 1e-5):
            raise Disagreement("values")
    for a, b in zip(tree_leaves(host), tree_leaves(device)):
        if isinstance(a, torch.Tensor) and a.grad is not None:
            if b.grad is None or not b.grad.is_cuda:
                raise Disagreement("the gradient is missing or on the host")
            if a.grad.layout is torch.strided and not same(a.grad, b.grad.cpu(), 1e-3, 1e-4):
                raise Disagreement("gradients")


def check(op, mode="gradients"):
    """Compare three samples of an operator; return the number that the CPU can run."""
    gradients = mode == "gradients" and op.supports_autograd
    try:
        samples = list(op.sample_inputs("cpu", torch.float32, requires_grad=gradients))
    except Exception:  # the database has no samples for this build of torch
        return 0
    random.Random(0).shuffle(samples)
    compared = 0
    for sample in samples[:3]:
        with torch.inference_mode(mode == "inference"):
            try:
                run(op, copy_of(op, sample, "cpu"), gradients)
            except Exception:  # the CPU cannot do it either
                continue
            compare(op, sample, gradients)
            compared += 1
    return compared


def operators():
    """The operators that can be compared: (name, OpInfo)."""
    for op in op_db:
        if torch.float32 in op.dtypes:
            yield f"{op.name}.{op.variant_test_name}".removesuffix("."), op


def main(names):
    warnings.simplefilter("ignore")
    result = collections.Counter()
    mode = "inference" if "--inference" in names else "gradients"
    names = [name for name in names if not name.startswith("--")]
    with simulate_gpus(2):
        for name, op in operators():
            if names and name not in names:
                continue
            try:
                result["agree" if check(op, mode) else "not comparable"] += 1
            except Exception as error:
                result["known" if op.name in KNOWN else "disagree"] += 1
                print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:150]}", flush=True)
    print(dict(result))
    return result


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:])["disagree"] else 0)
