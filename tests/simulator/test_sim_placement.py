"""The rules of placement, in PyTorch's own words."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from d2l_gpu.simulator import placement

CPU = torch.device("cpu")
TWO = "Expected all tensors to be on the same device, but found at least two devices, {} and {}!"
NAMED = ("Expected all tensors to be on the same device, but got {} is on {}, different from other "
         "tensors on {} (when checking argument in method wrapper_CUDA_{})")


@pytest.mark.parametrize("operation", [
    lambda x, y: x + y, lambda x, y: x.mul_(y), lambda x, y: torch.where(x > 0, x, y),
    lambda x, y: F.mse_loss(x, y), lambda x, y: F.smooth_l1_loss(x, y), lambda x, y: x == y,
    lambda x, y: x // y, lambda x, y: torch.lerp(x, y, 0.5), lambda x, y: torch.addcmul(x, x, y),
    lambda x, y: x.atan2(y), lambda x, y: torch.copysign(x, y), lambda x, y: torch.maximum(x, y),
    lambda x, y: F.binary_cross_entropy(x, y), lambda x, y: x.pow(y),
])
@pytest.mark.parametrize("other", ["cpu", "cuda:1"])
def test_elementwise_operators_name_two_devices(gpus, message, operation, other):
    x, y = torch.ones(3, device="cuda:0"), torch.ones(3, device=other)
    assert message(lambda: operation(x, y)) == TWO.format("cuda:0", other)


def test_the_order_of_operands_does_not_matter(gpus, message):
    x, y = torch.ones(3, device="cuda"), torch.ones(3)
    assert message(lambda: y + x) == message(lambda: x + y)


X, LONG = torch.ones(4, 4), torch.zeros(4, dtype=torch.long)
WRAPPED = {
    "linear": (lambda g, h: F.linear(h, g, g[0]), "mat1", "addmm"),
    "mm": (lambda g, h: g @ h, "mat2", "mm"), "bmm": (lambda g, h: g[None].bmm(h[None]), "mat2", "bmm"),
    "cat": (lambda g, h: torch.cat([g, h]), "tensors", "cat"),
    "cross_entropy": (lambda g, h: F.cross_entropy(g, h[0].long()), "target", "nll_loss_forward"),
    "embedding": (lambda g, h: F.embedding(h.long(), g), "index", "_index_select"),
    "index_select": (lambda g, h: g.index_select(0, h[0].long()), "index", "_index_select"),
    "gather": (lambda g, h: g.gather(1, h.long()), "index", "gather"),
    "scatter": (lambda g, h: g.scatter(0, h.long(), g), "index", "scatter_src"),
    "clamp": (lambda g, h: g.clamp(min=h), "min", "clamp_Tensor"),
    "clamp, a scalar": (lambda g, h: g.clamp(min=h.sum()), "min", "clamp_Tensor"),
    "logaddexp": (lambda g, h: torch.logaddexp(g, h), "other", "logaddexp"),
    "gcd": (lambda g, h: torch.gcd(g.long(), h.long()), "other", "gcd"),
    "huber_loss": (lambda g, h: F.huber_loss(g, h), "target", "_huber_loss"),
    "dot": (lambda g, h: g[0].dot(h[0]), "tensor", "_dot"),
    "masked_select": (lambda g, h: g.masked_select(h > 0), "mask", "_masked_select"),
    "searchsorted": (lambda g, h: torch.searchsorted(g, h), "self", "Tensor_searchsorted"),
    "bucketize": (lambda g, h: torch.bucketize(g, h[0]), "boundaries", "Tensor_bucketize"),
    "index_add": (lambda g, h: g.index_add(0, h[0].long(), g), "index", "index_add"),
    "isin": (lambda g, h: torch.isin(g, h), "test_elements", "isin_Tensor_Tensor"),
    "tanh_backward": (lambda g, h: torch.ops.aten.tanh_backward(g, h), "output", "tanh_backward"),
}


@pytest.mark.parametrize("operation, argument, wrapper", WRAPPED.values(), ids=WRAPPED)
def test_other_operators_name_the_argument_and_the_wrapper(gpus, message, operation, argument, wrapper):
    text = message(lambda: operation(X.cuda(), X))
    assert text == NAMED.format(argument, "cpu", "cuda:0", wrapper)


def test_the_layer_s_side_may_be_the_wrong_one(gpus, message):
    assert message(lambda: nn.Linear(3, 2)(torch.ones(4, 3).cuda())) == NAMED.format(
        "mat1", "cuda:0", "cpu", "addmm")


def test_convolution_names_the_types(gpus, message):
    conv, x = nn.Conv2d(1, 2, 3), torch.ones(1, 1, 4, 4)
    assert message(lambda: conv(x.cuda())) == (
        "Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should be the same")
    conv.cuda()
    assert message(lambda: conv(x)) == (
        "Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same "
        "or input should be a MKLDNN tensor and weight is a dense tensor")


@pytest.mark.parametrize("fill", [
    lambda x, m: x.masked_fill(m, 0.0), lambda x, m: x.masked_fill_(m, 0.0),
    lambda x, m: x.masked_fill(m, torch.tensor(0.0)), lambda x, m: torch.masked_fill(x, m, 0),
])
def test_masked_fill_has_a_text_of_its_own(gpus, message, fill):
    x, mask = torch.ones(2), torch.tensor([True, False])
    say = "expected self and mask to be on the same device, but got mask on {} and self on {}"
    assert message(lambda: fill(x.cuda(), mask)) == say.format("cpu", "cuda:0")
    assert message(lambda: fill(x, mask.cuda(1))) == say.format("cuda:1", "cpu")
    assert message(lambda: fill(x.cuda(), mask.cuda(1))) == say.format("cuda:1", "cuda:0")
    assert fill(x.cuda(), mask.cuda()).tolist() == [0, 1]


def test_indices_may_stay_on_the_host(gpus, message):
    x, i = torch.ones(3, 2), torch.tensor([0, 1])
    say = "indices should be either on cpu or on the same device as the indexed tensor ({})"
    assert x.cuda()[i].is_cuda
    assert message(lambda: x[i.cuda()]) == say.format("cpu")
    assert message(lambda: x.cuda()[i.cuda(1)]) == say.format("cuda:0")
    assert message(lambda: x.cuda().__setitem__(i, torch.ones(2, 2))) == TWO.format("cuda:0", "cpu")


def test_numpy_is_refused_by_name(gpus, message):
    x = torch.ones(2, device="cuda:1")
    text = ("can't convert cuda:1 device type tensor to numpy. Use Tensor.cpu() to copy the tensor "
            "to host memory first.")
    for call in (x.numpy, lambda: np.asarray(x), lambda: np.array([x[0]])):
        assert message(call, TypeError) == text
    assert x.cpu().numpy().tolist() == x.numpy(force=True).tolist() == x.tolist() == [1.0, 1.0]


def test_host_scalars_may_join_but_not_receive(gpus, message):
    x = torch.ones(2, device="cuda")
    assert (x * torch.tensor(2.0)).tolist() == (torch.tensor(2.0) * x).tolist() == [2, 2]
    total = torch.tensor(0.0)
    assert message(lambda: total.add_(x.sum())) == TWO.format("cuda:0", "cpu")
    scale = torch.tensor(3.0, requires_grad=True)  # its gradient returns to the host
    (x * scale).sum().backward()
    assert scale.grad.device == CPU and scale.grad.item() == 2


def test_out_arguments_follow_the_rule(gpus, message):
    a, out = torch.ones(3, device="cuda"), torch.empty(0, device="cuda")
    assert torch.add(a, a, out=out) is out and out.tolist() == [2, 2, 2] and out.shape == (3,)
    assert "same device" in message(lambda: torch.add(a, a, out=torch.empty(3)))
    assert "same device" in message(lambda: torch.mm(a[None], a[:, None], out=torch.empty(1, 1)))


def test_lists_of_tensors_may_span_devices_but_rows_may_not(gpus, message):
    a, b = ([torch.ones(2, device=f"cuda:{i}") for i in (0, 1)] for _ in range(2))
    assert [t.get_device() for t in torch._foreach_add(a, b)] == [0, 1]
    torch._foreach_addcdiv_(a, b, b, [1.0, 2.0])
    assert a[1].tolist() == [3, 3]
    assert message(lambda: torch._foreach_add(a, b[::-1])) == TWO.format("cuda:0", "cuda:1")


def test_setitem_views_and_in_place_geometry(gpus):
    x = torch.zeros(3, 2, device="cuda")
    row = x[1]
    row.add_(1)
    x[0] = torch.tensor([5.0, 6.0])  # a copy from the host, as CUDA allows
    x[2] = 7
    assert x.tolist() == [[5, 6], [1, 1], [7, 7]] and row._base is x
    x[torch.tensor([0, 1])] = torch.tensor(0.0)
    host = torch.zeros(2)
    assert host.copy_(x[2]) is host and type(host) is torch.Tensor and host.tolist() == [7, 7]
    assert x.copy_(torch.ones(3, 2)) is x and x.sum().item() == 6
    x.t_()
    assert x.shape == (2, 3) and x.stride() == (1, 2) and x.unsqueeze_(0).shape == (1, 2, 3)
    assert x.squeeze_().resize_(2, 2).shape == (2, 2)


def test_set_shares_memory_on_one_device_only(gpus, message):
    x, y = torch.zeros(2, device="cuda"), torch.ones(3, device="cuda")
    x.set_(y)
    y.add_(1)
    assert x.tolist() == [2, 2, 2]
    assert "the devices must match" in message(lambda: x.set_(torch.ones(2)))


# ---------------------------------------------------- arguments that live on the host by design
@pytest.mark.parametrize("lengths", ["cpu", "cuda"])
def test_ctc_loss_takes_its_lengths_from_anywhere(gpus, lengths):
    scores = torch.randn(12, 2, 5).log_softmax(-1)
    targets = torch.randint(1, 5, (2, 4))
    sizes = torch.full((2,), 12), torch.full((2,), 4)
    expected = F.ctc_loss(scores, targets, *sizes)
    moved = [size.to(lengths) for size in sizes]
    x = scores.cuda().requires_grad_()
    loss = F.ctc_loss(x, targets.cuda(), *moved)
    loss.backward()
    assert loss.is_cuda and x.grad.is_cuda and torch.allclose(loss.cpu(), expected)
    assert torch.equal(F.ctc_loss(x, targets, *moved), loss)  # PyTorch moves host targets itself


def test_packed_sequences_keep_their_lengths_on_the_host(gpus, message):
    pack, pad = nn.utils.rnn.pack_padded_sequence, nn.utils.rnn.pad_packed_sequence
    x = torch.ones(3, 2, 4, device="cuda", requires_grad=True)
    packed = pack(x, torch.tensor([3, 2]))
    out, lengths = pad(nn.LSTM(4, 5).cuda()(packed)[0])
    out.sum().backward()
    assert packed.data.is_cuda and out.is_cuda and x.grad.is_cuda
    assert not packed.batch_sizes.is_cuda and not lengths.is_cuda
    assert message(lambda: pack(x, torch.tensor([3, 2]).cuda())) == (
        "'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor")


@pytest.mark.parametrize("operation", [
    lambda x: torch.tensor_split(x, torch.tensor([1])), lambda x: x.tensor_split(torch.tensor(2)),
    lambda x: torch._foreach_addcdiv([x], [x], [x], torch.tensor([2.0])),
    lambda x: x.index_fill(0, torch.tensor([0], device=x.device), torch.tensor(2.0)),
    lambda x: x.masked_fill(x > 0, torch.tensor(2.0)),
    lambda x: torch.full((2,), torch.tensor(2.0), device=x.device),
    lambda x: x.new_full((2,), torch.tensor(2.0)), lambda x: x.fill_(torch.tensor(3.0)),
    lambda x: torch.linspace(torch.tensor(0.0), torch.tensor(1.0), 3, device=x.device),
    lambda x: torch.arange(torch.tensor(3), device=x.device), lambda x: x[torch.tensor([1])],
])
def test_host_arguments_are_taken_where_cuda_takes_them(gpus, operation):
    results = operation(torch.ones(4, device="cuda"))
    for result, expected in zip(results, operation(torch.ones(4))):
        assert result.is_cuda and torch.equal(result.cpu(), expected)


@pytest.mark.parametrize("operation, words", [
    (lambda x: torch.tensor_split(x, torch.tensor([1]).cuda()),
     "tensor_split expected tensor_indices_or_sections to be on cpu, but it's on cuda:0"),
    (lambda x: torch._foreach_addcdiv([x], [x], [x], x.cuda()),
     "Expected scalars to be on CPU, got cuda:0 instead."),
])
def test_host_arguments_are_refused_on_a_device_where_cuda_refuses_them(gpus, message, operation, words):
    assert message(lambda: operation(torch.ones(1, device="cuda"))) == words


# ------------------------------------------------------- checks that stand above the Python key
class ToHost(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad


def rnn(kind, device="cuda"):
    return kind(3, 4).to(device)


ABOVE = {
    "LSTM": (lambda x: rnn(nn.LSTM)(x.cpu()), "parameter tensor at cuda:0"),
    "GRU": (lambda x: rnn(nn.GRU)(x.cpu()), "parameter tensor at cuda:0"),
    "RNN": (lambda x: rnn(nn.RNN)(x.cpu()), "parameter tensor at cuda:0"),
    "RNN, host": (lambda x: rnn(nn.RNN, "cpu")(x), "found input tensor at cuda:0 and"),
    "RNN, hidden": (lambda x: rnn(nn.GRU)(x, torch.ones(1, 2, 4)), "hidden tensor at cpu"),
    "RNN, relu": (lambda x: nn.RNN(3, 4, nonlinearity="relu").cuda(1)(x), "at cuda:1"),
    "packed": (lambda x: rnn(nn.LSTM)(nn.utils.rnn.pack_sequence([torch.ones(2, 3)])),
               "parameter tensor at cuda:0"),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x.cpu(), x), "query.device: cuda:0"),
    "attention, mask": (lambda x: F.scaled_dot_product_attention(x, x, x, torch.ones(2, 2)), "cuda:0"),
    "inner": (lambda x: torch.inner(x, x.cpu()), "Expected tensor to have cuda DeviceType"),
    "take_along_dim": (lambda x: torch.take_along_dim(x, x.cpu().long()), "cuda:0 Device"),
    "grad": (lambda x: setattr(x.detach(), "grad", x.cpu()), "to a tensor with device type 'cuda'"),
    "grad of host": (lambda x: setattr(x.cpu(), "grad", x), "a gradient with device type 'cuda'"),
    "backward": (lambda x: (x.requires_grad_() * 2).backward(x.cpu()),
                 "expected device cuda:0 but got cpu"),
    "autograd.grad": (lambda x: torch.autograd.grad(ToHost.apply(x.requires_grad_()), x, x.cpu()),
                      "expected device cuda:0 but got cpu"),
}


@pytest.mark.parametrize("call, words", ABOVE.values(), ids=ABOVE)
@pytest.mark.parametrize("inference", [False, True])
def test_errors_of_checks_in_cpp_name_cuda(gpus, message, call, words, inference):
    if inference and words.endswith(("got cpu", "'cuda'")):
        pytest.skip("needs autograd")
    x = torch.ones(1, 2, 3, device="cuda")
    with torch.inference_mode(inference):
        text = message(lambda: call(x))
    assert words in text and "meta" not in text


# ------------------------------------------------------------- agreement with PyTorch's own table
def native_functions():
    yaml = pytest.importorskip("yaml")
    folder = Path(importlib.util.find_spec("torchgen").origin).parent
    text = (folder / "packaged/ATen/native/native_functions.yaml").read_text()
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def test_the_lists_of_rules_agree_with_pytorch_s_table_of_operators():
    checks, structured = {}, set()
    for entry in native_functions():
        name = entry["func"].split("(")[0].split(".")[0].removesuffix("_")
        on_cuda = "CUDA" in str(entry.get("dispatch", "")) or "structured_delegate" in entry
        if on_cuda and not name.endswith("_"):
            checks.setdefault(name, set()).add(entry.get("device_check") != "NoCheck")
            if entry.get("structured") or "structured_delegate" in entry:
                structured.add(name)
    assert all(checks[name] == {False} for name in placement.UNTAGGED_ITERATORS)
    assert all(True in checks[name] for name in placement.CHECKED_POINTWISE | placement.STRUCTURED)
    assert placement.STRUCTURED <= structured
    tensors = ("Tensor self, Tensor", "Tensor grad_output, Tensor", "Tensor grad, Tensor")
    missing = {
        entry["func"].split("(")[0] for entry in native_functions()
        if "CUDA" in str(entry.get("dispatch", "")) + str("CUDA" * ("structured_delegate" in entry))
        and "pointwise" in str(entry.get("tags", "")) and entry.get("device_check") != "NoCheck"
        and any(f"({start}" in entry["func"] for start in tensors)
        and entry["func"].split("(")[0].split(".")[0].removesuffix("_") not in placement.CHECKED_POINTWISE
    }
    others = ("_foreach", "_fused", "hypot")  # hypot was checked in older releases only
    assert {name for name in missing if not name.startswith(others)} == set()
