"""CUDA's rules of placement, and PyTorch's words for breaking them.

Three kinds of check stand in PyTorch, and an operator meets the one that its entry in PyTorch's
table of operators (native_functions.yaml) says:

* TensorIterator (`device_check: NoCheck`): elementwise operators; 0-dimensional host tensors may
  join, as numbers.
* The generated wrapper (every other operator): all tensors on one device, without exception; the
  message names the argument and the wrapper.
* A check of the kernel's own, with its own text: indexing, convolution, masked_fill, RNNs.

The table is not part of torch at run time, so this module holds what cannot be read from an
operator's schema and tags; a test compares it with the table that the torch wheel carries.
"""

from __future__ import annotations

import torch

# TensorIterator's operators among those without the tag `pointwise`, ...
UNTAGGED_ITERATORS = frozenset(
    """bernoulli binary_cross_entropy copysign eq fill floor_divide ge gt heaviside index_fill le
    lt mse_loss ne rsub smooth_l1_loss""".split()
)
# ... and those with the tag that have a wrapper's check all the same.
CHECKED_POINTWISE = frozenset(
    """clamp clamp_max clamp_min gcd gelu_backward igamma igammac lcm logaddexp logaddexp2
    logit_backward native_dropout_backward nextafter sigmoid_backward silu_backward tanh_backward
    threshold_backward""".split()
)
# Structured operators: their wrappers are named wrapper_CUDA_{operator}_{overload}, all others
# wrapper_CUDA_{overload}_{operator}.
STRUCTURED = frozenset(
    """_addmm_activation _linalg_solve_ex _log_softmax _log_softmax_backward_data _softmax
    _softmax_backward_data addmm addmv avg_pool2d_backward avg_pool3d_backward baddbmm bmm cat
    clamp clamp_max clamp_min elu_backward gather gcd gelu_backward hardshrink_backward
    hardsigmoid_backward igamma igammac index_add index_copy index_reduce isin lcm
    leaky_relu_backward linalg_cross linalg_ldl_solve linalg_lu_solve logaddexp logaddexp2
    logit_backward lu_unpack max_pool2d_with_indices_backward mm nextafter nll_loss_backward
    nll_loss_forward scatter scatter_add scatter_reduce sigmoid_backward silu_backward
    slow_conv_transpose2d softplus_backward softshrink_backward tanh_backward threshold_backward
    triangular_solve""".split()
)
# Operators that another one calls on a CUDA device: (operator, argument) -> (wrapper, argument).
_CALLED_AS = {
    ("embedding", "indices"): ("wrapper_CUDA__index_select", "index"),
    ("_ctc_loss", "targets"): ("wrapper_CUDA___ctc_loss", "targets"),
}
# Arguments that may be on the host, whatever the device of the others, and those that must be:
# with these the kernels of CUDA count or launch before any work starts.
_MAY_BE_ON_HOST = {
    ("_ctc_loss", "input_lengths"), ("_ctc_loss", "target_lengths"),
    ("_ctc_loss_backward", "input_lengths"), ("_ctc_loss_backward", "target_lengths"),
}
_HOST_ONLY = {
    ("_pack_padded_sequence", "lengths"):
        "'lengths' argument should be a 1D CPU int64 tensor, but got {dim}D {device} {type} tensor",
    ("_pack_padded_sequence_backward", "batch_sizes"): "batch_sizes should be on CPU",
    ("_pad_packed_sequence", "batch_sizes"): "batch_sizes tensor should be on CPU, but got {device}",
    ("_foreach_addcdiv", "scalars"): "Expected scalars to be on CPU, got {device} instead.",
    ("_foreach_addcmul", "scalars"): "Expected scalars to be on CPU, got {device} instead.",
}
# (operator, position) of results that stay on the host.
HOST_RESULTS = {("_pack_padded_sequence", 1)}
_INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index")

_SCALAR_NAMES = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16",
    "int64": "Long", "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte",
    "bool": "Bool", "complex64": "ComplexFloat", "complex128": "ComplexDouble",
}


def type_name(tensor: torch.Tensor) -> str:
    """The tensor's type in the old style, "torch.cuda.FloatTensor"."""
    prefix = "torch.cuda." if tensor.is_cuda else "torch."
    return f"{prefix}{_scalar_name(tensor)}Tensor"


def _scalar_name(tensor):
    name = str(tensor.dtype).removeprefix("torch.")
    return _SCALAR_NAMES.get(name, name)


class Traits:
    """What the rules and the dispatch need to know of an operator, from its schema and its tags."""

    def __init__(self, func: torch._ops.OpOverload):
        schema, tags = func._schema, set(func.tags)
        overload = schema.overload_name
        self.name = schema.name.split("::")[1]
        self.base = self.name.removesuffix("_")
        self.arguments = [argument.name for argument in schema.arguments]
        self.composite = torch._C._dispatch_has_kernel_for_dispatch_key(
            func.name(), "CompositeImplicitAutograd"
        )
        written = {
            alias: position
            for position, argument in enumerate(schema.arguments)
            if argument.alias_info and argument.alias_info.is_write
            for alias in argument.alias_info.before_set
        }
        # The arguments that the operator writes to; for each result, the one of them that it is.
        self.written = set(written.values())
        aliases = [result.alias_info for result in schema.returns]
        self.returns = [
            next((written[alias] for alias in info.before_set if alias in written), None)
            if info else None
            for info in aliases
        ]
        self.view = any(info and not info.is_write for info in aliases)
        self.reshapes = torch.Tag.inplace_view in tags or any(
            schema.arguments[position].kwarg_only for position in self.written
        )
        self.random = torch.Tag.nondeterministic_seeded in tags
        self.waits = bool(
            tags & {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
        )
        self.blank = self.name.startswith(("empty", "new_empty"))
        self.computes = not (self.view or self.blank or self.name.startswith("detach"))
        self.many = self.name.startswith(("_foreach", "_fused"))
        self.always_checked = any((self.base, name) in _HOST_ONLY for name in self.arguments)
        self.elementwise = self.base in UNTAGGED_ITERATORS or (
            torch.Tag.pointwise in tags and self.base not in CHECKED_POINTWISE
        )
        if self.base in STRUCTURED:
            out = "_out" if self.reshapes else ""
            self.wrapper = f"wrapper_CUDA_{self.name}{out}" + (f"_{overload}" if overload else "")
        else:
            self.wrapper = f"wrapper_CUDA_{overload}_{self.name}"


def tensors_in(values):
    """All tensors in the arguments of an operator, lists of them included."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)


def check(traits: Traits, args, kwargs):
    """Raise PyTorch's error if the tensors of one operator are not where they may be."""
    named = [
        (position, name, args[position] if position < len(args) else kwargs.get(name))
        for position, name in enumerate(traits.arguments)
    ]
    _check_host_only(traits, named)
    if traits.many:
        return _check_lists(named)
    operands = [
        (position, name, tensor)
        for position, name, value in named
        for tensor in tensors_in([value])
        if (traits.base, name) not in _HOST_ONLY and (traits.base, name) not in _MAY_BE_ON_HOST
    ]
    if traits.name in _INDEXING:
        operands = _check_indices(operands)
    if traits.elementwise or traits.name in _INDEXING:
        return _check_iterator(traits, operands)
    devices = [tensor.device for _, _, tensor in operands]
    if all(device == devices[0] for device in devices):
        return
    if traits.base == "masked_fill":
        _check_mask(operands)
    elif traits.name == "convolution" and devices[0] != devices[1]:
        _refuse_convolution(operands[0][2], operands[1][2])
    else:
        _check_wrapper(traits, operands)


def _check_host_only(traits, named):
    for _, name, value in named:
        words = _HOST_ONLY.get((traits.base, name))
        if words and isinstance(value, torch.Tensor) and value.is_cuda:
            raise RuntimeError(
                words.format(dim=value.dim(), device=value.device, type=_scalar_name(value))
            )


def _check_lists(named):
    """Lists of tensors may span devices, but element k of every list must be together."""
    lists = [list(tensors_in(value)) for _, _, value in named if isinstance(value, (list, tuple))]
    for row in zip(*filter(None, lists)):
        _check_iterator(None, [(None, None, tensor) for tensor in row])


def _check_indices(operands):
    here = operands[0][2].device
    if any(t.is_cuda and t.device != here for _, name, t in operands if name == "indices"):
        raise RuntimeError(
            "indices should be either on cpu or on the same device as the indexed tensor "
            f"({here})"
        )
    return [operand for operand in operands if operand[1] != "indices"]


def _check_iterator(traits, operands):
    common = next((tensor.device for _, _, tensor in operands if tensor.is_cuda), None)
    for position, _, tensor in operands:
        if tensor.device == common:
            continue
        receives = traits is not None and position in traits.written
        if tensor.is_cuda or tensor.dim() > 0 or receives:  # a host scalar may only join
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{common} and {tensor.device}!"
            )


def _check_mask(operands):
    (_, _, tensor), (_, _, mask), *value = operands
    if mask.device != tensor.device:
        raise RuntimeError(
            f"expected self and mask to be on the same device, but got mask on {mask.device} and "
            f"self on {tensor.device}"
        )
    for _, _, fill in value:
        if fill.dim() > 0 or fill.is_cuda:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{tensor.device} and {fill.device}!"
            )


def _refuse_convolution(input, weight):
    ending = "" if input.is_cuda else (
        " or input should be a MKLDNN tensor and weight is a dense tensor"
    )
    raise RuntimeError(
        f"Input type ({type_name(input)}) and weight type ({type_name(weight)}) should be the "
        f"same{ending}"
    )


def _check_wrapper(traits, operands):
    common = operands[0][2].device
    for _, name, tensor in operands:
        if tensor.device != common:
            wrapper, name = _CALLED_AS.get((traits.name, name), (traits.wrapper, name))
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but got {name} is on "
                f"{tensor.device}, different from other tensors on {common} (when checking "
                f"argument in method {wrapper})"
            )


def check_rnn(input, hidden, parameters, batch_sizes=None):
    """The check that stands at the head of PyTorch's recurrent networks, in its words."""
    if batch_sizes is not None and batch_sizes.is_cuda:
        raise RuntimeError(f"batch_sizes tensor should be on CPU, but got {batch_sizes.device}")
    for kind, group in (("hidden", hidden), ("parameter", parameters)):
        for tensor in group:
            if tensor.device != input.device:
                raise RuntimeError(
                    f"Input and {kind} tensors are not at the same device, found input tensor at "
                    f"{input.device} and {kind} tensor at {tensor.device}"
                )
