"""How the fix of each entry of `explain` is tried: a function that runs it and asserts what it is for, or why none can."""

import contextlib
import math
import os
import time
import warnings

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

import d2l_gpu as d2l

IN_A_TERMINAL, NEEDS_A_GPU = "it is something to do in a terminal", "it needs a real GPU"
FIXES = {"cuda-does-not-start": IN_A_TERMINAL, "torchvision-mismatch": IN_A_TERMINAL,
         "graph-output": NEEDS_A_GPU, "capture-forbids": NEEDS_A_GPU, "timing-without-wait": NEEDS_A_GPU}
CPU = torch.device("cpu")


def fix(*names, gpus=False):
    """Register a function of `run(**names)`, which executes the fix with these names and returns all that it left."""
    def register(function):
        def attempt(code):
            with d2l.simulate_gpus(2) if gpus else contextlib.nullcontext():
                function(lambda **given: _run(code, given))
        for name in names:
            FIXES[name] = attempt
        return function
    return register


def _run(code, given):
    names = {"torch": torch, "nn": nn, "F": F, "math": math, "time": time, "DataLoader": DataLoader, "Dataset": Dataset,
             "DistributedDataParallel": DistributedDataParallel, "__name__": "__main__", **given}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*(accelerator|CUDA|cpu autocast|prefetch|USDT).*")
        exec(code, names)
    return names


def data(device=CPU, n=8):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, 4, generator=generator).to(device), (torch.arange(n) % 3).to(device)


def gpu():
    return torch.device("cuda:0")


@fix("batch-behind", gpus=True)
def _(run):
    X, y = data()
    left = run(net=nn.Linear(4, 3), X=X, y=y, device=gpu())
    assert F.cross_entropy(left["net"](left["X"]), left["y"]).device == gpu()


@fix("labels-behind", gpus=True)
def _(run):
    X, y = data()
    left = run(X=X, y=y, device=gpu(), class_weights=torch.ones(3))
    assert left["loss"](nn.Linear(4, 3).to(gpu())(left["X"]), left["y"]).device == gpu()


@fix("plain-attribute", gpus=True)
def _(run):
    assert run()["Scaled"]().to(gpu())(torch.ones(2, 4, device=gpu())).device == gpu()


@fix("layers-in-list", gpus=True)
def _(run):
    net = run()["Stack"]().to(gpu())
    assert net(torch.ones(2, 4, device=gpu())).device == gpu() and len(list(net.parameters())) == 6


@fix("made-in-forward", gpus=True)
def _(run):
    left = run(X=torch.ones(5, 2, 4, device=gpu()))
    assert {left[name].device for name in ("h", "positions", "noise")} == {gpu()}
    nn.RNN(4, 16).to(gpu())(left["X"], left["h"])


@fix("moved-not-kept", gpus=True)
def _(run):
    left = run(X=torch.ones(2, 4), net=nn.Linear(4, 3), device=gpu())
    assert left["net"](left["X"]).device == gpu()


@fix("index-elsewhere", gpus=True)
def _(run):
    assert run(table=torch.arange(4), rows=torch.tensor([2], device=gpu()))["picked"].item() == 2


@fix("parallel-elsewhere", gpus=True)
def _(run):
    left = run(net=nn.Linear(4, 3).to("cuda:1"))
    assert left["net"](torch.ones(4, 4, device=gpu())).shape == (4, 3)


@fix("gpu-to-numpy", "numpy-and-grad", gpus=True)
def _(run):
    Y = nn.Linear(4, 3).to(gpu())(torch.ones(2, 4, device=gpu()))
    assert run(Y=Y, loss=Y.sum())["values"].shape == (2, 3)


@fix("batch-has-no-to", gpus=True)
def _(run):
    moved = run()["to"]({"X": [torch.ones(2), (torch.ones(2),)], "names": "text"}, gpu())
    assert moved["X"][0].device == moved["X"][1][0].device == gpu() and moved["names"] == "text"


@fix("module-has-no-device", gpus=True)
def _(run):
    assert run(net=nn.Linear(2, 2).to("cuda:1"))["device"] == torch.device("cuda:1")


@fix("built-without-cuda", "no-driver", "device-name", "device-number")
def _(run):
    assert isinstance(run()["device"], torch.device)


@fix("driver-too-old", "gpus-hidden", "cuda-not-available", "no-kernel-image")
def _(run):
    run()


@fix("card-too-old-to-compile")
def _(run):
    assert run(make_net=lambda: nn.Linear(2, 2), device=CPU)["net"](torch.ones(1, 2)).shape == (1, 2)


@fix("mps-float64", gpus=True)
def _(run):
    left = run(array=__import__("numpy").ones(3), device=gpu())
    assert (left["X"].dtype, left["X"].device) == (torch.float32, gpu())


@fix("mps-missing-operator")
def _(run):
    run()
    assert os.environ.pop("PYTORCH_ENABLE_MPS_FALLBACK") == "1"


@fix("half-on-cpu")
def _(run):
    assert run(net=nn.Linear(2, 2), device=CPU)["net"].weight.dtype == torch.float32


@fix("device-assert", gpus=True)
def _(run):
    X, y = data(gpu())
    net = nn.Linear(4, 3).to(gpu())
    run(net=net, loss=nn.CrossEntropyLoss(), X=X, y=y, scores=net(X))


@fix("target-out-of-range")
def _(run):
    X, y = data()
    left = run(y=y + 1, scores=X[:, :3])
    assert left["loss"](left["scores"], left["y"]).isfinite()


@fix("illegal-access", gpus=True)
def _(run):
    run(net=nn.Linear(4, 3).to(gpu()), X=torch.ones(2, 4, device=gpu()))


@fix("checkpoint-device")
def _(run):
    torch.save(nn.Linear(2, 2).state_dict(), "net.pt")
    net = nn.Linear(2, 2)
    assert net.weight.equal(run(net=net, device=CPU)["state"]["weight"])


@fix("weights-only")
def _(run):
    run(net=nn.Linear(2, 2))


@fix("wrapped-names")
def _(run):
    for wrapped in ("module.", "_orig_mod.", "module._orig_mod.", ""):
        net = nn.Linear(2, 2)
        state = {f"{wrapped}{name}": torch.ones_like(t) for name, t in net.state_dict().items()}
        run(net=net, state=state)
        assert net.weight.eq(1).all()


@fix("out-of-memory")
def _(run):
    X, y = data(n=64)
    left = run(dataset=TensorDataset(X, y), net=nn.Linear(4, 3), X=X)
    assert not left["scores"].requires_grad and len(next(iter(left["loader"]))[0]) == 16


@fix("host-memory")
def _(run):
    run()


@fix("memory-grows")
def _(run):
    loss = nn.Linear(2, 1)(torch.ones(1, 2)).sum()
    assert not run(total=torch.zeros(()), loss=loss)["total"].requires_grad


@fix("backward-twice")
def _(run):
    left, layer = {"state": torch.zeros(1, 2, 3)}, nn.RNN(4, 3)
    for _ in range(3):
        left = run(net=layer, X=torch.ones(5, 2, 4), state=left["state"])
        left["scores"].sum().backward()


@fix("cuda-in-worker", gpus=True)
def _(run):
    X, y = data(gpu())
    assert next(iter(DataLoader(run()["Images"](X, y), 4)))[0].device == CPU


@fix("unpicklable-worker")
def _(run):
    assert next(iter(run()["loader"])).item() == 0


@fix("main-guard")
def _(run):
    run(dataset=TensorDataset(*data()))


@fix("shared-memory", "worker-died", "worker-options", "too-many-workers", "pinning-without-gpu")
def _(run):
    assert len(run(dataset=TensorDataset(*data()))["loader"]) in (1, 8)


@fix("too-many-files")
def _(run):
    before = torch.multiprocessing.get_sharing_strategy()
    run()
    assert torch.multiprocessing.get_sharing_strategy() == "file_system"
    torch.multiprocessing.set_sharing_strategy(before)


@fix("child-process")
def _(run):
    assert "batches" not in run(loader=DataLoader(TensorDataset(*data())))


@fix("ragged-batch")
def _(run):
    X, y = next(iter(run(dataset=[(torch.ones(2), 0), (torch.ones(5), 1)])["loader"]))
    assert X.shape == (2, 5) and y.tolist() == [0, 1]


@fix("pinned-on-gpu", gpus=True)
def _(run):
    assert next(iter(run(dataset=TensorDataset(*data(gpu())))["loader"]))[0].device == gpu()


@fix("generator-device")
def _(run):
    assert len(next(iter(run(dataset=TensorDataset(*data()), device=CPU)["loader"]))[0]) == 8


@fix("dtype-mismatch")
def _(run):
    assert run(X=data()[0].double(), net=nn.Linear(4, 3), device=CPU)["scores"].dtype == torch.bfloat16


@fix("target-dtype")
def _(run):
    X, y = data()
    F.cross_entropy(X[:, :3], run(y=y.int())["y"])


@fix("flatten-first")
def _(run):
    assert run()["net"](torch.ones(2, 1, 28, 28)).shape == (2, 128)


def training(**more):
    X, y = data()
    net = more.pop("net", None) or nn.Linear(4, 3)
    loss, scaler = nn.CrossEntropyLoss(), torch.amp.GradScaler("cpu", init_scale=8.0)
    return {"X": X, "y": y, "net": net, "loss": loss, "scaler": scaler, "device": CPU,
            "optimizer": torch.optim.SGD(net.parameters(), 0.1), "loss_value": loss(net(X), y), **more}


@fix("unscale-fp16")
def _(run):
    X, y = data()
    left = run(X=X, y=y, net=nn.Linear(4, 3).half(), loss=nn.CrossEntropyLoss(), device=CPU,
               scaler=torch.amp.GradScaler("cpu"))
    left["scaler"].unscale_(torch.optim.SGD(left["net"].parameters(), 0.1))


@fix("scaler-order", "clip-before-unscale")
def _(run):
    given = training()
    before = given["net"].weight.clone()
    run(**given)
    assert 0 < (given["net"].weight - before).norm() < 0.2  # clipped to 1 after unscaling, times the rate


@fix("scheduler-order")
def _(run):
    for factor, moved in ((1.0, True), (float("inf"), False)):
        given = training()
        (given["scaler"].scale(given["loss_value"]) * factor).backward()
        scheduler = torch.optim.lr_scheduler.StepLR(given["optimizer"], 1)
        run(**given, scheduler=scheduler)
        assert (scheduler.last_epoch == 1) == moved


@fix("old-amp")
def _(run):
    assert run(**{**training(), "scaler": None})["scores"].dtype == torch.float16


@fix("tf32-mixed")
def _(run):
    before = torch.get_float32_matmul_precision()
    try:
        run()
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)


@fix("accumulation")
def _(run):
    X, y = data()
    given = training()
    whole = torch.autograd.grad(given["loss_value"], given["net"].weight)[0]
    before = given["net"].weight.clone()
    run(**given, n=4, batches=list(zip(X.split(2), y.split(2))))
    torch.testing.assert_close(before - given["net"].weight, 0.1 * whole)


@fix("slow-loop", gpus=True)
def _(run):
    batches = [data(gpu())] * 3
    with d2l.count_transfers() as used:
        run(device=gpu(), batches=batches, train_step=lambda X, y: X.mean())
    assert sum(used.waits.values()) == 1


@fix("read-too-early", gpus=True)
def _(run):
    left = run(Y=torch.ones(2, device=gpu()), Z=torch.ones(2, device=gpu()))
    assert left["Y"].device == left["Z"].device == CPU


@fix("capturable")
def _(run):
    net = nn.Linear(2, 2)
    run(net=net, device=CPU, state=torch.optim.Adam(net.parameters()).state_dict())


@contextlib.contextmanager
def one_process():
    """The variables that torchrun sets, for one process, and no process group left behind."""
    import socket
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    given = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ.update(given)
    try:
        yield
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        for name in given:
            del os.environ[name]


@fix("no-process-group", "nccl-without-gpus")
def _(run):
    with one_process():
        run()
        torch.distributed.all_reduce(torch.ones(1))


@fix("unused-parameters")
def _(run):
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)

        def forward(self, X):
            return self.used(X)

    with one_process():
        torch.distributed.init_process_group("gloo")
        net = Half()
        net(torch.ones(1, 2)).sum().backward()
        wrapped = run(net=net)["net"]
        for _ in range(2):
            wrapped(torch.ones(1, 2)).sum().backward()


@fix("same-shuffle")
def _(run):
    X, y = data()
    sampler = DistributedSampler(range(8), num_replicas=1, rank=0)
    orders = []

    class Recorded(DataLoader):
        def __iter__(self):
            orders.append(list(self.sampler))
            return super().__iter__()

    run(epochs=3, sampler=sampler, loader=Recorded(TensorDataset(X, y), sampler=sampler))
    assert len({tuple(order) for order in orders}) == 3
