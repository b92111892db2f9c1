"""Training: modules, autograd, optimizers, mixed precision, several devices."""

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch import nn

CPU, CUDA0, CUDA1 = torch.device("cpu"), torch.device("cuda:0"), torch.device("cuda:1")


def mlp():
    return nn.Sequential(nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))


def train(device, optimizer, net=mlp, steps=4, clip=None):
    torch.manual_seed(0)
    net = net().to(device)
    opt = optimizer(net.parameters())
    x, y = torch.randn(32, 8), torch.randint(4, (32,))
    for _ in range(steps):
        opt.zero_grad()
        value = F.cross_entropy(net(x.to(device)), y.to(device))
        value.backward()
        if clip:
            nn.utils.clip_grad_norm_(net.parameters(), clip)
        opt.step()
    return net, opt, value


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "SGD fused": lambda p: torch.optim.SGD(p, 0.1, fused=True),
    "Adam": lambda p: torch.optim.Adam(p, 0.01), "AdamW": lambda p: torch.optim.AdamW(p, 0.01),
    "Adam fused": lambda p: torch.optim.Adam(p, 0.01, fused=True),
    "Adam one by one": lambda p: torch.optim.Adam(p, 0.01, foreach=False),
    "Adam amsgrad": lambda p: torch.optim.Adam(p, amsgrad=True), "RMSprop": torch.optim.RMSprop,
    "Adagrad": torch.optim.Adagrad, "NAdam": torch.optim.NAdam, "Adadelta": torch.optim.Adadelta,
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_training_gives_the_cpu_s_result(gpus, optimizer):
    host, _, _ = train("cpu", optimizer, clip=0.5)
    net, opt, value = train("cuda:1", optimizer, clip=0.5)
    assert value.device == CUDA1
    for (name, a), b in zip(host.state_dict().items(), net.state_dict().values()):
        assert b.get_device() == 1, name
        assert torch.allclose(a.float(), b.cpu().float(), rtol=1e-5, atol=1e-6), name
    assert all(p.grad.get_device() == 1 for p in net.parameters())
    state = [t for entry in opt.state.values() for t in entry.values() if torch.is_tensor(t)]
    assert all(t.get_device() == 1 for t in state if t.dim())


def test_optimizers_go_on_after_their_state_was_loaded(gpus):
    net, opt, _ = train("cuda", OPTIMIZERS["Adam"])
    file = io.BytesIO()
    torch.save(opt.state_dict(), file)
    file.seek(0)
    fresh = torch.optim.Adam(net.parameters(), 0.01)
    fresh.load_state_dict(torch.load(file, map_location="cpu"))
    assert all(entry["exp_avg"].is_cuda for entry in fresh.state.values())
    fresh.step()


MODULES = {
    "Embedding": (lambda: nn.Embedding(10, 4), lambda: (torch.randint(10, (3, 5)),)),
    "LSTM": (lambda: nn.LSTM(4, 8, 2, batch_first=True), lambda: (torch.randn(2, 3, 4),)),
    "LSTM, both ways": (lambda: nn.LSTM(4, 8, bidirectional=True), lambda: (torch.randn(2, 3, 4),)),
    "LSTM, projected": (lambda: nn.LSTM(4, 8, proj_size=3), lambda: (torch.randn(2, 3, 4),)),
    "LSTM, unbatched": (lambda: nn.LSTM(4, 8, bias=False), lambda: (torch.randn(3, 4),)),
    "GRU": (lambda: nn.GRU(4, 8), lambda: (torch.randn(2, 3, 4), torch.randn(1, 3, 8))),
    "RNN": (lambda: nn.RNN(4, 8), lambda: (torch.randn(2, 3, 4),)),
    "RNN, relu": (lambda: nn.RNN(4, 8, 2, nonlinearity="relu"), lambda: (torch.randn(2, 3, 4),)),
    "LSTMCell": (lambda: nn.LSTMCell(4, 8), lambda: (torch.randn(2, 4),)),
    "GRUCell": (lambda: nn.GRUCell(4, 8), lambda: (torch.randn(2, 4),)),
    "MultiheadAttention": (lambda: nn.MultiheadAttention(8, 2, batch_first=True),
                           lambda: (torch.randn(2, 3, 8),) * 3),
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True),
                                lambda: (torch.randn(2, 3, 8),)),
    "LayerNorm": (lambda: nn.LayerNorm(4), lambda: (torch.randn(2, 4),)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), lambda: (torch.randn(2, 4, 3),)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(2), lambda: (torch.randn(3, 2, 4, 4),)),
    "ConvTranspose2d": (lambda: nn.ConvTranspose2d(2, 3, 2), lambda: (torch.randn(1, 2, 4, 4),)),
    "Conv1d": (lambda: nn.Sequential(nn.Conv1d(2, 3, 2), nn.GELU(), nn.AdaptiveAvgPool1d(1)),
               lambda: (torch.randn(1, 2, 6),)),
    "CNN": (lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(2)),
            lambda: (torch.randn(2, 1, 6, 6),)),
}


@pytest.mark.parametrize("make, inputs", MODULES.values(), ids=MODULES)
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_modules_give_the_cpu_s_values_and_gradients(gpus, make, inputs, mode):
    host, x = getattr(make(), mode)(), inputs()
    host(*x)  # lazy modules get their shapes
    device = copy.deepcopy(host).cuda()
    leaves = [[t.detach().requires_grad_(t.is_floating_point()) for t in ts]
              for ts in (x, [t.cuda() for t in x])]

    def first(out):
        return out[0] if isinstance(out, tuple) else out

    a, b = first(host(*leaves[0])), first(device(*leaves[1]))
    assert b.is_cuda and torch.allclose(a, b.cpu(), atol=1e-5)
    a.sum().backward()
    b.sum().backward()
    for p, q in zip([*host.parameters(), *leaves[0]], [*device.parameters(), *leaves[1]]):
        if p.grad is not None:
            assert q.grad.is_cuda and torch.allclose(p.grad, q.grad.cpu(), atol=1e-4)
    for quiet in (torch.no_grad, torch.inference_mode):
        with quiet():
            assert torch.allclose(first(host(*x)), first(device(*(t.cuda() for t in x))).cpu(), atol=1e-5)


# ---------------------------------------------------------------------------- recurrent networks
def test_dropout_of_a_recurrent_network_draws_on_the_device(gpus):
    net, x = nn.LSTM(4, 8, 2, dropout=0.5).cuda(), torch.randn(3, 2, 4, device="cuda")
    host = torch.default_generator.get_state()
    torch.cuda.manual_seed(1)
    a = net(x)[0]
    torch.cuda.manual_seed(1)
    assert torch.equal(net(x)[0], a) and not torch.equal(net(x)[0], a)
    assert torch.equal(torch.default_generator.get_state(), host)


def test_a_recurrent_network_may_go_backward_twice_but_not_be_differentiated_twice(gpus, message):
    net, x = nn.LSTM(3, 4).cuda(), torch.randn(2, 1, 3, device="cuda", requires_grad=True)
    out = net(x)[0].sum()
    out.backward(retain_graph=True)
    once = x.grad.clone()
    out.backward()
    assert torch.allclose(x.grad, 2 * once)
    text = message(lambda: torch.autograd.grad(net(x)[0].sum(), x, create_graph=True),
                   NotImplementedError)
    assert "Double backwards is not supported for CuDNN RNNs" in text
    with torch.backends.cudnn.flags(enabled=False):
        grad, = torch.autograd.grad(net(x)[0].sum(), x, create_graph=True)
        assert torch.autograd.grad(grad.square().sum(), x)[0].is_cuda


def test_a_recurrent_network_goes_backward_twice_only_if_it_is_retained(gpus, message):
    out = nn.LSTM(3, 4).cuda()(torch.ones(2, 1, 3, device="cuda"))[0].sum()
    out.backward()
    assert "Trying to backward through the graph a second time" in message(out.backward)


def test_a_recurrent_network_notices_weights_changed_in_between(gpus, message):
    net = nn.RNN(3, 4).cuda()
    out = net(torch.ones(2, 1, 3, device="cuda"))[0].sum()
    with torch.no_grad():
        net.weight_hh_l0.add_(1)
    assert "modified by an inplace operation" in message(out.backward)


def test_recurrent_networks_work_under_functional_transforms(gpus):
    net, x = nn.GRU(3, 4).cuda(), torch.randn(2, 1, 3, device="cuda")
    grad = torch.func.grad(lambda t: net(t)[0].sum())(x)
    leaf = x.clone().requires_grad_()
    net(leaf)[0].sum().backward()
    assert torch.allclose(grad, leaf.grad, atol=1e-6)
    value, tangent = torch.func.jvp(lambda t: net(t)[0], (x,), (torch.ones_like(x),))
    assert tangent.is_cuda and value.shape == tangent.shape


def test_a_recurrent_network_under_autocast_works_in_half_precision(gpus):
    net, x = nn.LSTM(4, 4).cuda(), torch.randn(2, 1, 4, device="cuda")
    with torch.autocast("cuda"):
        out, (h, c) = net(x)
    assert out.dtype == h.dtype == c.dtype == torch.float16
    out.float().sum().backward()
    assert net.weight_ih_l0.grad.dtype == torch.float32


# ------------------------------------------------------------------------ autograd and parameters
def test_parameters_keep_their_identity(gpus):
    net = mlp()
    params, opt = list(net.parameters()), torch.optim.SGD(net.parameters(), 0.1)
    live = net(torch.randn(4, 8))  # a graph that is still alive
    for device in ("cuda:0", "cuda:1", "cpu", "cuda"):
        net.to(device)
        for p, q in zip(params, net.parameters()):
            assert p is q and isinstance(p, nn.Parameter) and p.requires_grad and p.is_leaf
    before = net[0].weight.detach().clone()
    net(torch.randn(4, 8, device="cuda")).sum().backward()
    opt.step()
    assert not torch.equal(before, net[0].weight)
    net.to("cpu")
    assert net[0].weight.grad.device == CPU and type(net[0].weight) is nn.Parameter
    net[0].weight.data = net[0].weight.data.cuda()
    assert net[0].weight is params[0] and params[0].is_cuda and live.shape == (4, 4)
    net.half().float().double().to("cuda")


def test_lazy_modules_remember_the_device(gpus):
    net = nn.Sequential(nn.LazyLinear(1)).to(device="cuda:1")
    assert net[0].weight.device == CUDA1
    out = net(torch.ones(2, 3, device="cuda:1"))
    assert out.device == net[0].weight.data.device == CUDA1
    assert isinstance(net[0].weight, nn.Parameter) and type(net[0]) is nn.Linear
    assert nn.LazyLinear(2, device="cuda")(torch.ones(2, 3, device="cuda")).device == CUDA0
    with torch.device("cuda"):
        assert nn.LazyLinear(2)(torch.ones(2, 3)).is_cuda
    assert nn.LazyBatchNorm1d().cuda()(torch.ones(2, 3, device="cuda")).is_cuda
    assert not nn.LazyLinear(1)(torch.ones(2, 3)).is_cuda


def test_gradients_cross_devices(gpus):
    a = torch.ones(3, requires_grad=True)
    ((a.to("cuda:0") * 2).to("cuda:1") * 3).cpu().sum().backward()
    assert a.grad.device == CPU and type(a.grad) is torch.Tensor and a.grad.tolist() == [6, 6, 6]
    w = torch.ones(3, device="cuda:1", requires_grad=True)
    w.cpu().sum().backward()
    assert w.grad.device == CUDA1 and torch.autograd.grad((w * 2).sum(), w)[0].is_cuda


def test_model_parallel(gpus):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 8).to("cuda:0"), nn.Linear(8, 2).to("cuda:1")

        def forward(self, x):
            return self.b(self.a(x.to("cuda:0")).relu().to("cuda:1"))

    net = Two()
    for opt in (OPTIMIZERS["Adam"](net.parameters()), OPTIMIZERS["SGD"](net.parameters())):
        loss = net(torch.randn(5, 4)).square().mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
    assert {p.device.index for p in net.parameters()} == {0, 1}


def test_hooks_and_custom_functions_see_the_device(gpus):
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            seen.append((grad.device, ctx.saved_tensors[0].device))
            return grad * torch.full_like(grad, 2)

    seen, x = [], torch.ones(2, device="cuda", requires_grad=True)
    x.register_hook(lambda grad: seen.append(grad.device))
    Double.apply(x).sum().backward()
    assert seen == [(CUDA0, CUDA0), CUDA0]
    net = nn.Linear(2, 2).cuda()
    net.register_full_backward_hook(lambda module, gin, gout: seen.append(gout[0].device))
    net(x).sum().backward()
    assert seen[2:].count(CUDA0) == 2  # the module's hook and the tensor's


def test_checkpointing_and_accumulation(gpus):
    from torch.utils.checkpoint import checkpoint
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).cuda()
    x = torch.ones(2, 4, device="cuda", requires_grad=True)
    checkpoint(net, x, use_reentrant=False).sum().backward()
    assert x.grad.is_cuda
    net, x = mlp().eval().cuda(), torch.randn(32, 8, device="cuda")
    y = torch.randint(4, (32,), device="cuda")
    F.cross_entropy(net(x), y).backward()
    whole = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    for xs, ys in zip(x.chunk(4), y.chunk(4)):
        (F.cross_entropy(net(xs), ys) / 4).backward()
    assert all(torch.allclose(a, p.grad, atol=1e-6) for a, p in zip(whole, net.parameters()))


def test_deepcopy(gpus):
    net = mlp().cuda()
    net(torch.randn(4, 8, device="cuda")).sum().backward()
    for a, b in zip(net.parameters(), copy.deepcopy(net).parameters()):
        assert b.is_cuda and isinstance(b, nn.Parameter) and a.data_ptr() != b.data_ptr()
        assert torch.equal(a, b) and torch.equal(a.grad, b.grad)


@pytest.mark.parametrize("loss", [
    nn.MSELoss(), nn.L1Loss(), nn.SmoothL1Loss(), nn.HuberLoss(), nn.BCEWithLogitsLoss()])
def test_losses(gpus, message, loss):
    a, b = torch.rand(4, 3), torch.rand(4, 3)
    assert loss(a.cuda(), b.cuda()).item() == pytest.approx(loss(a, b).item())
    assert "same device" in message(lambda: loss(a.cuda(), b))


# ------------------------------------------------------------------------------- mixed precision
@pytest.mark.filterwarnings("ignore:.*is deprecated")
@pytest.mark.parametrize("autocast", [
    lambda: torch.autocast("cuda"), lambda: torch.amp.autocast("cuda", dtype=torch.float16),
    lambda: torch.cuda.amp.autocast()])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_autocast_policies(gpus, message, autocast, mode):
    net, x, y = nn.Linear(4, 4).cuda(), torch.randn(2, 4, device="cuda"), torch.tensor([0, 1]).cuda()
    with mode(), autocast():
        h = net(x)
        half, full = torch.float16, torch.float32
        assert h.dtype == (h @ h.T).dtype == torch.relu(h).dtype == half
        assert F.softmax(h, -1).dtype == h.sum().dtype == h.exp().dtype == full
        assert F.layer_norm(h, (4,)).dtype == F.cross_entropy(h, y).dtype == h.norm().dtype == full
        assert F.mse_loss(h, h).dtype == (h + x).dtype == full
        assert copy.deepcopy(net).double()(x.double()).dtype == torch.float64
        assert nn.Linear(4, 4)(torch.ones(2, 4)).dtype == full  # host tensors are not its business
        attention = nn.MultiheadAttention(4, 2).cuda()
        assert attention(x[None], x[None], x[None])[0].dtype == half
        with torch.autocast("cuda", enabled=False):
            assert net(x).dtype == full
        assert "unsafe to autocast" in message(
            lambda: F.binary_cross_entropy(torch.sigmoid(x), torch.sigmoid(x)))
    assert net(x).dtype == full
    with torch.autocast("cuda", torch.bfloat16):
        assert net(x).dtype == torch.bfloat16


@pytest.mark.filterwarnings("ignore:.*is deprecated")
@pytest.mark.parametrize("scaler", [
    lambda: torch.amp.GradScaler("cuda"), lambda: torch.cuda.amp.GradScaler()])
def test_grad_scaler(gpus, scaler):
    net, scaler = mlp().cuda(), scaler()
    opt = torch.optim.Adam(net.parameters(), 0.01)
    x, y = torch.randn(16, 8, device="cuda"), torch.randint(4, (16,), device="cuda")
    losses = []
    for _ in range(20):
        opt.zero_grad()
        with torch.autocast("cuda"):
            loss = F.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        losses.append(loss.item())
    assert scaler.is_enabled() and losses[-1] < losses[0]
    assert net[0].weight.dtype == net[0].weight.grad.dtype == torch.float32
    before, scale = net[0].weight.detach().clone(), scaler.get_scale()
    opt.zero_grad()
    scaler.scale(net(x).sum() * float("inf")).backward()
    scaler.step(opt)
    scaler.update()
    assert torch.equal(before, net[0].weight) and scaler.get_scale() == scale / 2


# ------------------------------------------------------------------------------- nn.DataParallel
@pytest.mark.parametrize("ids", [None, [0, 1], [1]])
def test_data_parallel_trains_on_both_devices(gpus, ids):
    first = (ids or [0])[0]
    single = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).cuda(first)
    net = nn.DataParallel(copy.deepcopy(single), device_ids=ids)
    x, y = torch.randn(10, 8), torch.randint(4, (10,))
    with gpus.record() as used:
        out = net(x.cuda(first))
        F.cross_entropy(out, y.cuda(first)).backward()
    F.cross_entropy(single(x.cuda(first)), y.cuda(first)).backward()
    assert out.get_device() == first
    if ids != [1]:
        assert used.kernels["cuda:0"] and used.kernels["cuda:1"] and used.copies["D2D"] >= 9
    for p, q in zip(single.parameters(), net.parameters()):
        assert q.grad.get_device() == first and torch.allclose(p.grad, q.grad, atol=1e-6)
    net(x).sum().backward()  # straight from the host


@pytest.mark.parametrize("target", ["cpu", "cuda:1"])
def test_a_module_on_meta_gets_new_parameters(gpus, target):
    net = nn.Linear(2, 3, device="meta")
    weight = net.weight
    net.to_empty(device=target)
    assert net.weight is not weight and net.weight.device == torch.device(target)
    net.to("meta")
    assert net.weight.device.type == "meta"


def test_between_host_and_devices_a_module_keeps_its_parameters(gpus):
    net = nn.Linear(2, 3)
    weight = net.weight
    for target in ("cuda:0", "cuda:1", "cpu"):
        assert net.to(target).weight is weight
