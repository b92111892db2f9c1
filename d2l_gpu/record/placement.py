"""Simulated GPUs against real ones: small programs, each with what comes out, which must be the same on both.

A case is a name and an expression. `g` is a float32 tensor of shape (2, 3) on the GPU, `h` the same on the host, `G`
and `H` are square (3, 3), `gi` and `hi` are indices of type int64 (on the GPU and the host), `net(...)` puts a module
on the GPU, `gpu` is the device cuda:0. What comes out is "the error's type: its first line", or "device dtype
shape" of a tensor, or the value's repr.
"""

import json
import os
import subprocess
import sys

from . import environment, python

CASES = [  # add a line; what it should give is decided by a real GPU, not here
    ("add", "g + h"), ("add, host first", "h + g"), ("add, host scalar tensor", "g + torch.tensor(2.0)"),
    ("add, GPU scalar tensor to a host tensor", "h + torch.tensor(2.0, device=gpu)"),
    ("add, one element on the host", "g + torch.ones(1)"), ("add in place, GPU from host", "g.add_(h)"),
    ("add in place, host from GPU", "h.add_(g)"), ("add, Python number", "g + 2"), ("compare", "g == h"),
    ("equal", "torch.equal(g, h)"), ("allclose", "torch.allclose(g, h)"), ("mm", "torch.mm(G, H)"),
    ("mm, host first", "torch.mm(H, G)"), ("matmul", "G @ H"), ("bmm", "torch.bmm(G[None], H[None])"),
    ("dot", "torch.dot(g[0], h[0])"), ("addmm", "torch.addmm(G, G, H)"),
    ("linear, input on the host", "net(nn.Linear(3, 4))(h)"), ("linear, weights on the host", "nn.Linear(3, 4)(g)"),
    ("sequential", "net(nn.Sequential(nn.Linear(3, 4), nn.ReLU()))(h)"),
    ("cross_entropy, labels on the host", "F.cross_entropy(g, hi)"),
    ("cross_entropy, scores on the host", "F.cross_entropy(h, gi)"),
    ("cross_entropy, class weights on the host", "F.cross_entropy(g, gi, weight=torch.ones(3))"),
    ("mse_loss", "F.mse_loss(g, h)"), ("embedding, indices on the host", "net(nn.Embedding(5, 2))(hi)"),
    ("embedding, weights on the host", "nn.Embedding(5, 2)(gi)"),
    ("conv2d, input on the host", "net(nn.Conv2d(1, 2, 2))(H[None, None])"),
    ("conv2d, weights on the host", "nn.Conv2d(1, 2, 2)(G[None, None])"),
    ("conv2d, bias on the host", "F.conv2d(G[None, None], torch.ones(1, 1, 2, 2, device=gpu), torch.ones(1))"),
    ("batch_norm, input on the host", "net(nn.BatchNorm1d(3))(h)"), ("layer_norm, input on the host", "net(nn.LayerNorm(3))(h)"),
    ("lstm, input on the host", "net(nn.LSTM(3, 2))(h[None])[0]"), ("cat", "torch.cat([g, h])"), ("stack", "torch.stack([g, h])"),
    ("where, condition on the host", "torch.where(h > 0, g, g)"), ("where, one side on the host", "torch.where(g > 0, g, h)"),
    ("where, scalar tensor on the host", "torch.where(g > 0, g, torch.tensor(0.0))"),
    ("index, host indices", "g[hi]"), ("index, GPU indices into host", "h[gi]"), ("index, host mask", "g[h > 0]"),
    ("index_select, host indices", "g.index_select(0, hi)"), ("gather, host indices", "g.gather(1, hi[:, None])"),
    ("scatter_, host indices", "g.scatter_(1, hi[:, None], 1.0)"), ("take, host indices", "g.take(hi)"),
    ("set items from host", "g.__setitem__(0, h[0])"), ("set items of host from GPU", "h.__setitem__(0, g[0])"),
    ("masked_fill, host mask", "g.masked_fill(h > 0, 0.0)"), ("masked_fill, host value", "g.masked_fill(g > 0, torch.tensor(0.0))"),
    ("masked_select, host mask", "g.masked_select(h > 0)"), ("copy_", "g.copy_(h)"), ("numpy", "g.numpy()"),
    ("numpy of what needs a gradient", "net(nn.Linear(3, 1))(g).numpy()"), ("numpy by asarray", "__import__('numpy').asarray(g)"),
    ("tolist", "g.tolist()"), ("item", "g.sum().item()"), ("to the GPU", "h.to(gpu)"), ("to where it is", "g.to(gpu) is g"),
    ("cuda() where it is", "g.cuda() is g"), ("to the host", "g.cpu()"), ("bare cuda", "h.to('cuda')"),
    ("as_tensor", "torch.as_tensor(h, device=gpu)"), ("zeros_like", "torch.zeros_like(g)"), ("new_ones", "g.new_ones(2)"),
    ("invalid ordinal, ones", "torch.ones(1, device='cuda:99')"), ("invalid ordinal, to", "h.to('cuda:99')"),
    ("invalid ordinal, set_device", "torch.cuda.set_device(99)"), ("invalid ordinal, properties", "torch.cuda.get_device_properties(99)"),
    ("generator on the host", "torch.rand(2, device=gpu, generator=torch.Generator())"),
    ("generator on the GPU for the host", "torch.rand(2, generator=torch.Generator(gpu))"),
    ("generator on the GPU", "torch.rand(2, device=gpu, generator=torch.Generator(gpu))"),
    ("randperm, generator on the host", "torch.randperm(4, device=gpu, generator=torch.Generator())"),
    ("dropout", "F.dropout(g)"), ("pin a GPU tensor", "g.pin_memory()"), ("pin a host tensor", "h.pin_memory().is_pinned()"),
    ("is_pinned", "h.is_pinned()"), ("from_numpy", "torch.from_numpy(h.numpy()).to(gpu)"), ("out on the host", "torch.add(g, g, out=h)"),
    ("sum to the host in a list", "torch.stack([g.sum().cpu(), h.sum()])"), ("module to an invalid ordinal", "nn.Linear(3, 4).to('cuda:99')"),
    ("load with locations", "reload(g)"), ("load to the host", "reload(g, 'cpu')"), ("load to an invalid ordinal", "reload(g, 'cuda:99')"),
    ("out of memory", "torch.empty(2**50, device=gpu)"), ("deepcopy", "copy.deepcopy(g)"), ("repr", "repr(g)"),
    ("autocast", "autocast_mm(G)"), ("clip_grad_norm_", "nn.utils.clip_grad_norm_([with_gradient(G)], 1.0)"),
]


def _namespace():
    import copy
    import io

    import torch
    from torch import nn
    from torch.nn import functional as F

    gpu = torch.device("cuda", 0)
    h, H, hi = torch.arange(6.0).view(2, 3), torch.arange(9.0).view(3, 3), torch.tensor([0, 1])

    def reload(x, *location):
        file = io.BytesIO()
        torch.save(x, file)
        file.seek(0)
        return torch.load(file, *location)

    def autocast_mm(x):
        with torch.autocast("cuda", dtype=torch.float16):
            return x @ x

    def with_gradient(x):
        x.requires_grad_().sum().backward()
        return x

    return {"torch": torch, "nn": nn, "F": F, "copy": copy, "gpu": gpu, "h": h, "H": H, "hi": hi, "g": h.to(gpu),
            "G": H.to(gpu), "gi": hi.to(gpu), "net": lambda m: m.to(gpu), "reload": reload, "autocast_mm": autocast_mm,
            "with_gradient": with_gradient}


def outcome(expression, namespace):
    """What an expression gives, in one line."""
    import torch

    try:
        value = eval(expression, namespace)
    except Exception as error:
        line = (str(error).strip() or "-").splitlines()[0]
        if isinstance(error, torch.OutOfMemoryError):
            line = line.split("GPU 0 has")[0].rstrip()  # the rest are this card's figures
        return f"{type(error).__name__}: {line}"
    if isinstance(value, torch.Tensor):
        return f"{value.device} {str(value.dtype)[6:]} {tuple(value.shape)}"
    return f"{type(value).__name__} {value!r}"


def outcomes(cases):
    """What each case gives in this process: a dict of name and outcome. Every case starts from fresh tensors."""
    return {name: outcome(expression, _namespace()) for name, expression in cases}


def run(kind, cases=None, timeout=120):
    """The outcomes of `cases` in a process of its own, `kind` "simulated" or "real".

    Raises RuntimeError where that kind of GPU cannot be had.
    """
    done = subprocess.run(python("d2l_gpu.record.placement", kind), env=environment(PYTHONWARNINGS="ignore"),
                          input=json.dumps(CASES if cases is None else cases), capture_output=True, text=True,
                          timeout=timeout)
    if done.returncode != 0:
        raise RuntimeError(f"no outcomes from {kind} GPUs: {(done.stderr.strip().splitlines() or ['-'])[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def differences(simulated, real):
    """The cases whose outcomes differ: a list of {"case", "simulated", "real"}."""
    return [{"case": name, "simulated": simulated.get(name), "real": real.get(name)}
            for name in dict.fromkeys([*simulated, *real]) if simulated.get(name) != real.get(name)]


def part(plan):
    """Report where simulated GPUs differ from this machine's (parts.py); nothing to compare without a real one."""
    import torch

    if not torch.cuda.is_available():
        yield {"note": "placement: needs a CUDA GPU to compare the simulated ones with"}
        return
    simulated, real = (run(kind, timeout=max(5.0, plan.left())) for kind in ("simulated", "real"))
    yield {"placement": {"cases": len(real), "differences": differences(simulated, real)}}


if __name__ == "__main__":
    todo = json.load(sys.stdin)
    if sys.argv[1] == "simulated":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        from ..simulator import simulate_gpus
        simulate_gpus(1)
    print(json.dumps(outcomes(todo)))
