"""Checkers for chapter 11, mixed precision and accumulation."""

import contextlib
import copy
import random

import torch
from torch import nn
from torch.nn import functional as F

from . import Hint, call, exercise, some_devices

HALF = torch.float16


@exercise("precision-1")
def choose(answer):
    half, full, brain = torch.float16, torch.float32, torch.bfloat16
    cases = [("cuda", (major, minor), (brain, False)) for major, minor in ((8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0))]
    cases += [("cuda", (7, 5), (half, True)), ("cuda", (7, 0), (half, True)), ("cpu", None, (brain, False)),
              ("cuda", (6, 1), (full, False)), ("cuda", (6, 0), (full, False)), ("cuda", (3, 7), (full, False))]
    for kind, capability, wanted in cases:
        got = call(answer, kind, capability)
        if not isinstance(got, tuple) or len(got) != 2 or not isinstance(got[0], torch.dtype) or not isinstance(got[1], bool):
            raise Hint(f"return a pair such as (torch.bfloat16, False), not {got!r}.")
        if got == wanted:
            continue
        if got[0] is not wanted[0]:
            why = {half: "It has tensor cores for float16 and none for bfloat16", brain: "It computes in bfloat16 itself",
                   full: "It has no tensor cores: nothing is gained"}[wanted[0]] if kind == "cuda" else "A CPU takes bfloat16"
            raise Hint(f"for {kind!r} and {capability} you chose {got[0]}. {why}. (Capabilities compare as pairs: (8, 6) >= (8, 0).)")
        raise Hint(f"for {kind!r} and {capability} you said {got[1]} for the scaler. Only float16 has too small a range to go without one.")


def _net():
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))


def _twin(device):
    torch.manual_seed(random.randrange(10_000))
    net = _net().to(device)
    return net, copy.deepcopy(net)


def _data(n, device):
    X, y = torch.randn(n, 6), torch.randint(0, 3, (n,))
    return X.to(device), y.to(device)


def _weights(net):
    return torch.cat([p.detach().flatten() for p in net.parameters()]).cpu()


def _reference(net, X, y, optimizer):
    """One step in float32, the gradient clipped to half its norm: (norm before, limit)."""
    optimizer.zero_grad()
    F.cross_entropy(net(X), y).backward()
    norm = nn.utils.get_total_norm([p.grad for p in net.parameters()]).item()
    nn.utils.clip_grad_norm_(net.parameters(), norm / 2)
    optimizer.step()
    return norm, norm / 2


def _devices(devices):
    return [*devices[:1], torch.device("cpu")]


def _number(value):
    if not isinstance(value, (float, torch.Tensor)) or isinstance(value, torch.Tensor) and value.numel() != 1:
        raise Hint(f"return the norm of the gradient before clipping, as clip_grad_norm_ gives it, not {value!r}.")
    return float(value)


def _check_norm(got, norm, scale, advice="Are old gradients cleared before backward?"):
    if abs(got / (norm * scale) - 1) < 0.05:
        raise Hint(f"the clipping saw a norm of {got:,.0f}; the true one is {norm:.3f}, and the scale is {scale:,.0f}. Call "
                   "scaler.unscale_(optimizer) before you clip.")
    if abs(got / norm - 1) > 0.05:
        raise Hint(f"you returned a norm of {got:.4g}; that of the gradient of the mean loss is {norm:.4g}. {advice}")


@contextlib.contextmanager
def _watched(net, kind):
    """What the forward pass of the last layer computes in, and whether its backward pass ran under autocast."""
    seen = {"dtypes": [], "backward": []}

    def forward(module, given, out):
        seen["dtypes"].append(out.dtype)
        if out.requires_grad:
            out.register_hook(lambda grad: seen["backward"].append(torch.is_autocast_enabled(kind)))
    handle = net[-1].register_forward_hook(forward)
    yield seen
    handle.remove()


def _check_autocast(seen, calls):
    if len(seen["dtypes"]) != calls:
        raise Hint(f"the network was called {len(seen['dtypes'])} time(s); once for each batch is {calls}.")
    if any(dtype is not HALF for dtype in seen["dtypes"]):
        raise Hint(f"the network computed in {seen['dtypes'][0]}. Call it inside torch.autocast(device_type, dtype=torch.float16).")
    if any(seen["backward"]):
        raise Hint("backward ran inside the autocast block. Leave the block after the loss: backward takes each type from the "
                   "forward pass.")


def _to_train(device):
    """A network, its twin, an optimizer for each, and a scaler that grows at once."""
    net, twin = _twin(device)
    optimizer, reference = (torch.optim.SGD(n.parameters(), lr=0.5) for n in (net, twin))
    return net, twin, optimizer, reference, torch.amp.GradScaler(device.type, init_scale=2.0**10, growth_interval=1)


def _check_infinite(net, device, answer):
    start = _weights(net)
    answer(torch.amp.GradScaler(device.type, init_scale=2.0**40))
    if not torch.equal(_weights(net), start):
        raise Hint("with a scale so large that the gradients are infinite, the weights changed. scaler.step(optimizer) leaves "
                   "out such an update, optimizer.step() does not.")


@exercise("precision-2")
def amp_step(answer):
    with some_devices() as devices:
        for device in _devices(devices):
            net, twin, optimizer, reference, scaler = _to_train(device)
            for k in range(2):
                for p in net.parameters():
                    if p.grad is not None:
                        p.grad.mul_(1e6)  # what an answer leaves behind shows if it is not cleared
                X, y = _data(32, device)
                start, scale = _weights(net), scaler.get_scale()
                norm, max_norm = _reference(twin, X, y, reference)
                with _watched(net, device.type) as seen:
                    got = call(answer, net, X, y, optimizer, scaler, max_norm)
                _check_autocast(seen, 1)
                _check_norm(_number(got), norm, scale)
                moved, wanted = (_weights(net) - start).norm().item(), (_weights(twin) - start).norm().item()
                if moved > 1.5 * wanted:
                    raise Hint(f"the weights moved {moved / wanted:.0f} times too far. Is the gradient clipped before scaler.step?")
                if moved < wanted / 1.5:
                    raise Hint("the weights hardly moved. Is the gradient divided by the scale once, and not clipped while it is scaled?")
                if (_weights(net) - _weights(twin)).norm() > 0.1 * wanted * (k + 1):
                    raise Hint("the weights are not those of the same step in float32, clipped to max_norm.")
                if scaler.get_scale() != 2 * scale:
                    raise Hint("the scale did not change. Call scaler.update() at the end of every step.")
            _check_infinite(net, device, lambda scaler: call(answer, net, X, y, optimizer, scaler, max_norm))


def _kept(net, X, dtype, count):
    kept, own = {}, {p.data_ptr() for p in net.parameters()}

    def pack(t):
        if t.data_ptr() not in own:
            kept[t.data_ptr()] = t
        return t
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        with torch.autocast(X.device.type, dtype=HALF if dtype == torch.float32 else dtype, enabled=dtype != torch.float32):
            out = net(X)
    del out
    return sum(count(t) for t in kept.values())


@exercise("precision-3")
def kept_bytes(answer):
    with some_devices() as devices:
        for device in _devices(devices):
            n, width = random.randrange(20, 40), random.randrange(30, 60)
            net = nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3)).to(device)
            X = torch.randn(n, 8).to(device)
            results = {}
            for dtype in (torch.float32, torch.bfloat16):
                got = call(answer, net, X, dtype)
                if isinstance(got, bool) or not isinstance(got, int):
                    raise Hint(f"return a number of bytes as an int, not {got!r}.")
                wanted = _kept(net, X, dtype, lambda t: t.untyped_storage().nbytes())
                results[dtype] = got
                if got == wanted:
                    continue
                if got == 0:
                    raise Hint("you counted 0 bytes. Do the hooks surround the forward pass, with gradients enabled?")
                if got == _kept(net, X, dtype, lambda t: t.numel()):
                    raise Hint(f"you returned {got:,}, a number of elements. Count bytes.")
                if dtype != torch.float32 and got == results[torch.float32]:
                    raise Hint("you found as many bytes in bfloat16 as in float32. Run the network under autocast.")
                if got > wanted:
                    raise Hint(f"in {dtype} you counted {got:,} bytes, {got - wanted:,} too many. A tensor can be handed over "
                               "twice (the output of a ReLU is the next layer's input), and parameters take no new memory: tell tensors "
                               "apart by data_ptr().")
                raise Hint(f"in {dtype} you counted {got:,} bytes; it is {wanted:,}. The copies of the weights in half precision "
                           "and X itself belong to it.")


@exercise("precision-4")
def accumulated_step(answer):
    with some_devices() as devices:
        for device in _devices(devices):
            net, twin, optimizer, reference, scaler = _to_train(device)
            X, y = _data(40, device)
            X[-4:], y[-4:] = 3 * X[-4:], 2  # the last, small batch is of another kind
            batches = list(zip(X.split(12), y.split(12)))
            start, taken = _weights(net), []
            optimizer.register_step_post_hook(lambda *args: taken.append(1))
            norm, max_norm = _reference(twin, X, y, reference)
            with _watched(net, device.type) as seen:
                got = call(answer, net, batches, optimizer, scaler, max_norm)
            if len(taken) != 1:
                raise Hint(f"the optimizer made {len(taken)} updates for {len(batches)} batches. Update once, after the last one.")
            _check_autocast(seen, len(batches))
            got = _number(got)
            sizes = [len(b) for _, b in batches]
            for weights, said in (([1.0] * 4, "the sum over the batches"), ([0.25] * 4, "the mean of the batches' means"),
                                  (sizes, "the sum over the examples")):
                other = copy.deepcopy(twin)
                other.load_state_dict(_state(other, start))
                other.zero_grad()
                for weight, (a, b) in zip(weights, batches):
                    (weight * F.cross_entropy(other(a), b)).backward()
                wrong = nn.utils.get_total_norm([p.grad for p in other.parameters()]).item()
                if abs(got / wrong - 1) < 0.01 < abs(norm / wrong - 1):
                    raise Hint(f"the norm is that of {said} ({got:.3f}); that of all {len(y)} examples is {norm:.3f}. Weight each batch's "
                               "mean loss by its share of the examples.")
            _check_norm(got, norm, 2.0**10, "Is it clipped once, after the last backward, and not piece by piece?")
            moved, wanted = (_weights(net) - start).norm(), (_weights(twin) - start).norm()
            if (_weights(net) - _weights(twin)).norm() > 0.1 * wanted:
                raise Hint(f"the weights moved {moved / wanted:.3g} times as far as in one step with all examples. Clip once, after the "
                           "last backward, and step with the scaler.")
            if scaler.get_scale() != 2.0**11:
                raise Hint("the scale did not change as it does in one step. Call scaler.update() once, at the end.")
            if any(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters()):
                raise Hint("gradients are left over, and the next step would add to them. Clear them at the end.")
            _check_infinite(net, device, lambda scaler: call(answer, net, batches, optimizer, scaler, max_norm))


def _state(net, flat):
    """`flat`, the parameters one after another, as a state_dict of `net`."""
    parts = flat.split([p.numel() for p in net.parameters()])
    return {name: part.view_as(p) for (name, p), part in zip(net.named_parameters(), parts)}
