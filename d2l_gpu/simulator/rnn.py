"""Recurrent networks, run whole.

PyTorch takes nn.LSTM, nn.GRU and nn.RNN apart into several operators a gate and time step; CUDA
(through cuDNN) runs them in one.  So does the simulator: the CPU's kernel sees the whole network on
the host tensors, the ledger counts one operator forward and one backward.  As with cuDNN, there is
no second derivative unless torch.backends.cudnn is disabled, which brings the parts back.
"""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

from . import placement
from .tensor import SPECIAL, SimulatedTensor, decomposed, host_value, run_kernel, wrap

aten = torch.ops.aten
_OPERATORS = [
    getattr(packet, overload)
    for packet in (aten.lstm, aten.gru, aten.rnn_tanh, aten.rnn_relu)
    for overload in ("input", "data")
]


class _WholeNetwork(torch.autograd.Function):
    """One autograd node around a graph of the CPU's own, which runs on the host tensors."""

    @staticmethod
    def forward(ctx, compute, gpu, *tensors):
        needs = ctx.needs_input_grad[2:]
        values = [host_value(t).detach().requires_grad_(need) for t, need in zip(tensors, needs)]
        ctx.blocks = []  # the activations count as memory of the device

        def keep(saved):
            ctx.blocks.append(gpu.machine.block(saved, gpu))
            return saved

        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            outs = compute(values)
        ctx.gpu, ctx.inputs, ctx.outs = gpu, [v for v in values if v.requires_grad], outs
        return tuple(wrap(out.detach(), gpu) for out in outs)

    @staticmethod
    def backward(ctx, *grads):
        if torch.is_grad_enabled():
            raise NotImplementedError(
                "the derivative for '_cudnn_rnn_backward' is not implemented. Double backwards is "
                "not supported for CuDNN RNNs due to limitations in the CuDNN API. To run double "
                "backwards, please disable the CuDNN backend temporarily while running the forward "
                "pass of your RNN. For example: \nwith torch.backends.cudnn.flags(enabled=False):\n"
                "    output = model(inputs)"
            )
        found = iter(torch.autograd.grad(
            ctx.outs, ctx.inputs, [host_value(grad) for grad in grads], retain_graph=True,
            allow_unused=True,
        ))
        ctx.gpu.machine.books.computed(ctx.gpu.name)
        needs = ctx.needs_input_grad[2:]
        return None, None, *(wrap(next(found), ctx.gpu) if need else None for need in needs)


def _run(op, *args):
    """lstm, gru, rnn_tanh, rnn_relu: (input, hidden, parameters, *options), where a packed input
    (overload `data`) is followed by its batch sizes, and only lstm has a list of hidden states."""
    packed = op._overloadname == "data"
    input, sizes = args[0], list(args[1:2]) if packed else []
    hidden, parameters, *options = args[1 + packed:]
    states = list(hidden) if isinstance(hidden, (list, tuple)) else [hidden]
    tensors = [input, *states, *parameters]
    if not any(isinstance(tensor, SimulatedTensor) for tensor in [*tensors, *sizes]):
        return op.decompose(*args)  # a meta tensor of the program's own, or inside a transform
    placement.check_rnn(input, states, parameters, *sizes)
    if not torch.backends.cudnn.enabled or _transformed(tensors):
        return decomposed(op, args, {})

    def compute(values):
        input, rest = values[0], values[1:]
        hidden = rest[:len(states)] if isinstance(args[1 + packed], (list, tuple)) else rest[0]
        return run_kernel(op, gpu, [input, *sizes, hidden, rest[len(states):], *options], {})

    gpu = input._gpu
    gpu.machine.books.computed(gpu.name)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return _WholeNetwork.apply(compute, gpu, *tensors)
    return tuple(wrap(out, gpu) for out in compute([host_value(tensor) for tensor in tensors]))


def _transformed(tensors):
    """Forward-mode differentiation and torch.func work on the parts."""
    return forward_ad._current_level >= 0 or not all(
        isinstance(tensor, SimulatedTensor) for tensor in tensors
    )


SPECIAL.update(dict.fromkeys(_OPERATORS, _run))


def register(implement):
    """Register the kernels that meet these operators before autograd takes them apart."""
    for op in _OPERATORS:
        implement(op, lambda *args, op=op: _run(op, *args), "AutogradMeta")
