"""Mixed precision: CUDA's autocast policies.

The tables are those of ATen/autocast_mode.h.  PyTorch's own kernels on the AutocastCUDA key ask
for a CUDA device in C++ and would leave a SimulatedTensor (which C++ takes for a meta tensor) as
it is, so a simulation registers these in their place.
"""

from __future__ import annotations

import torch

from .placement import tensors_in

KEY = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)

_POLICIES = {
    # Computed in the lower precision.  Whole RNNs are among them as cuDNN has them.
    "lower": """
        conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
        conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv
        linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot lstm_cell gru_cell
        rnn_tanh_cell rnn_relu_cell scaled_dot_product_attention lstm.input lstm.data gru.input
        gru.data rnn_tanh.input rnn_tanh.data rnn_relu.input rnn_relu.data""",
    # Computed in float32.
    "float32": """
        acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan
        pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm
        rms_norm group_norm cosine_similarity dist cdist poisson_nll_loss cosine_embedding_loss
        nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss
        margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss
        multi_margin_loss renorm binary_cross_entropy_with_logits logsumexp norm.Scalar
        norm.ScalarOpt_dim""",
    # The result in float32, unless the caller names a dtype.
    "result": """
        prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm
        linalg_matrix_norm sum sum.dim_IntList""",
    # In the widest type among the arguments.
    "widest": """
        addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot
        scatter_add""",
}


def _eligible(tensor):
    return tensor.is_cuda and tensor.dtype in (torch.float32, torch.float16, torch.bfloat16)


def _cast(value, dtype):
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if _eligible(value) else value
    return [_cast(item, dtype) for item in value] if isinstance(value, (list, tuple)) else value


def _kernel(op, policy):
    names = [argument.name for argument in op._schema.arguments]

    def kernel(*args, **kwargs):
        arguments = dict(zip(names, args)) | kwargs
        with torch._C._ExcludeDispatchKeyGuard(KEY):
            floats = [tensor for tensor in tensors_in(args) if _eligible(tensor)]
            dtype = torch.float32
            if policy == "lower":
                dtype = torch.get_autocast_dtype("cuda")
            if policy == "result":
                if floats and arguments.get("dtype") is None:
                    arguments["dtype"] = dtype
            elif policy != "widest" or any(tensor.dtype == dtype for tensor in floats):
                arguments = {name: _cast(value, dtype) for name, value in arguments.items()}
            return op(**arguments)

    return kernel


def register(implement):
    """Register the policies' kernels: `implement(operator, kernel, key)`."""
    for policy, names in _POLICIES.items():
        for name in names.split():
            base, _, overload = name.partition(".")
            op = getattr(getattr(torch.ops.aten, base), overload or "default")
            implement(op, _kernel(op, policy), "AutocastCUDA")
