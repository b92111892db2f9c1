"""A fixed sample of PyTorch's operators, compared with the CPU (all of them: differential.py)."""

import pytest
import torch

pytest.importorskip("expecttest", reason="torch.testing's database of operators needs expecttest")

import differential  # noqa: E402  (beside this file)
from d2l_gpu.simulator import simulate_gpus  # noqa: E402

SAMPLE = """add mul where clamp exp softmax log_softmax matmul addmm bmm einsum cat stack split chunk
    index_select gather scatter scatter_add masked_fill masked_select nonzero topk sort cumsum sum mean
    std var norm linalg.norm linalg.solve linalg.inv linalg.svd linalg.cholesky fft.fft stft conj real view
    reshape permute expand unfold as_strided squeeze tril roll flip nn.functional.linear
    nn.functional.conv2d nn.functional.conv_transpose2d nn.functional.batch_norm
    nn.functional.layer_norm nn.functional.group_norm nn.functional.embedding
    nn.functional.cross_entropy nn.functional.nll_loss nn.functional.mse_loss nn.functional.ctc_loss
    nn.functional.max_pool2d nn.functional.interpolate nn.functional.grid_sample
    nn.functional.scaled_dot_product_attention nn.functional.dropout nn.functional.gelu
    nn.functional.multi_head_attention_forward bernoulli normal multinomial __getitem__ index_put
    tensor_split take_along_dim inner new_zeros zeros_like full arange to""".split()
OPERATORS = [(name, op) for name, op in differential.operators() if op.name in SAMPLE]


@pytest.fixture(scope="module", autouse=True)
def simulation():
    with simulate_gpus(2):
        yield


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["gradients", "inference"])
@pytest.mark.parametrize("op", [op for _, op in OPERATORS], ids=[name for name, _ in OPERATORS])
def test_an_operator_agrees_with_the_cpu(op, mode):
    assert differential.check(op, mode) > 0


def test_the_sample_names_operators_of_the_database():
    assert {op.name for _, op in OPERATORS} == set(SAMPLE)
    assert torch.cuda.is_available()
