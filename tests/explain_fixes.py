"""How the fix of each entry of `explain` is tried: a function that runs it and asserts what it is for, or why none can."""

import contextlib
import io
import math
import multiprocessing
import os
import subprocess
import sys
import time
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset

import d2l_gpu as d2l
from d2l_gpu.doctor import builds

IN_A_TERMINAL, NEEDS_A_GPU = "it is something to do in a terminal", "it needs a real GPU"
FIXES = {"cuda-does-not-start": IN_A_TERMINAL, "torchvision-mismatch": IN_A_TERMINAL, "fabric-manager": IN_A_TERMINAL,
         "graph-output": NEEDS_A_GPU, "capture-forbids": NEEDS_A_GPU, "timing-without-wait": NEEDS_A_GPU}
CPU = torch.device("cpu")


def fix(*names, gpus=False):
    """Register a function of `run(**names)`, which executes the fix with these names and returns all that it left.

    `run.code` is the fix; `run.words` its comments and code in one line, without the marks of comments."""
    def register(function):
        def attempt(code):
            def run(**given):
                return _run(code, given)
            run.code, run.words = code, " ".join(code.replace("#", " ").split())
            with d2l.simulate_gpus(2) if gpus else contextlib.nullcontext():
                function(run)
        for name in names:
            FIXES[name] = [*FIXES.get(name, []), attempt]
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


def printed(action):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        action()
    return out.getvalue()


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


@fix("cards-apart", gpus=True)
def _(run):
    class Split(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 4).to("cuda:0"), nn.Linear(4, 3).to("cuda:1")

        def forward(self, X):
            return self.last(self.first(X).to("cuda:1"))

    (X, y), net, loss = data(gpu()), Split(), nn.CrossEntropyLoss(weight=torch.ones(3))
    with pytest.raises(RuntimeError, match="same device"):
        loss(net(X), y)
    assert run(net=net, loss=loss, X=X, y=y)["loss_value"].device == torch.device("cuda:1")
    assert net.first.weight.device == gpu() and net.last.weight.device == torch.device("cuda:1")


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


@fix("network-behind", gpus=True)
def _(run):
    left = run(net=nn.Linear(4, 3), device=gpu())
    assert left["net"](torch.ones(2, 4, device=gpu())).device == gpu()


@fix("optimizer-behind", gpus=True)
def _(run):
    net = nn.Linear(4, 3)
    optimizer = torch.optim.Adam(net.parameters())
    for device in (CPU, gpu()):
        net.to(device)(torch.ones(2, 4, device=device)).sum().backward()
        if device == gpu():
            try:
                optimizer.step()
            except RuntimeError as error:
                assert d2l.explain(error).causes[0].name == "optimizer-behind"
            else:
                raise AssertionError("nothing was raised")
            run(optimizer=optimizer)
        optimizer.step()
        optimizer.zero_grad()


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


@fix("meta-tensor")
def _(run):
    net, state = nn.Linear(2, 2, device="meta"), nn.Linear(2, 2).state_dict()
    with pytest.raises(NotImplementedError, match="meta"):
        net.to(CPU)
    assert run(net=net, state=state, device=CPU)["net"].weight.equal(state["weight"])


@fix("built-without-cuda", "no-driver", "device-name", "device-number")
def _(run):
    assert isinstance(run()["device"], torch.device)


@fix("gpus-hidden", "cuda-not-available")
def _(run):
    os.environ["CUDA_VISIBLE_DEVICES"], before = "7", os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        assert "7" in printed(run).split()
    finally:
        os.environ.pop("CUDA_VISIBLE_DEVICES")
        os.environ.update({"CUDA_VISIBLE_DEVICES": before} if before is not None else {})


@fix("driver-too-old", "no-kernel-image")
def _(run):
    run()
    assert f"{builds.AGAIN} {builds.CUDA_12}" in run.words and "525" in run.words
    assert ("capability" not in run.code) or (f"{builds.AGAIN} {builds.CUDA_13}" in run.words and "580" in run.words)


@fix("device-busy", "ecc-error")
def _(run):
    before = dict(os.environ)
    try:
        run()
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "1" and "nvidia-smi" in run.words
    finally:
        os.environ.clear()
        os.environ.update(before)


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
    net, loss = nn.Linear(4, 3).to(gpu()), nn.CrossEntropyLoss()
    scores = net(X)
    assert printed(lambda: run(net=net, loss=loss, X=X, y=y, scores=scores)).split() == ["0", "2", "3"]
    y[3] = 7
    with pytest.raises(IndexError, match="Target 7"):
        run(net=net, loss=loss, X=X, y=y, scores=scores)
    assert net.weight.device == CPU


@fix("not-a-probability")
def _(run):
    X, y = data()
    scores, y = nn.Linear(4, 1)(X)[:, 0] + 5, y.clamp(max=1).float()
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        nn.BCELoss()(scores, y)
    left = []
    assert printed(lambda: left.append(run(scores=scores, y=y))) == "True\n" and left[0]["loss_value"].isfinite()
    assert printed(lambda: run(scores=scores * float("nan"), y=y)) == "False\n"


@fix("target-out-of-range")
def _(run):
    X, y = data()
    left = run(y=y + 1, scores=X[:, :3])
    assert left["loss"](left["scores"], left["y"]).isfinite()


@fix("illegal-access", gpus=True)
def _(run):
    net = nn.Embedding(4, 3).to(gpu())
    with pytest.raises(IndexError, match="index out of range"):
        run(net=net, X=torch.tensor([9], device=gpu()))
    assert net.weight.device == CPU


@fix("checkpoint-device")
def _(run):
    torch.save(nn.Linear(2, 2).state_dict(), "net.pt")
    net = nn.Linear(2, 2)
    assert net.weight.equal(run(net=net, device=CPU)["state"]["weight"])


@fix("weights-only")
def _(run):
    torch.save(nn.Linear(2, 2), "net.pt")
    with pytest.raises(Exception, match="Weights only load failed"):
        torch.load("net.pt", weights_only=True)
    net = nn.Linear(2, 2)
    run(net=net)
    assert torch.load("net.pt", weights_only=True)["weight"].equal(net.weight)


@fix("unpicklable-file")
def _(run):
    net = nn.Linear(2, 2)
    net.register_forward_hook(lambda *_: None)
    with pytest.raises(Exception, match="pickle"):
        torch.save(net, "net.pt")
    before = net.weight.clone()
    run(net=net)
    assert torch.load("net.pt", weights_only=True)["weight"].equal(before) and net.weight.equal(before)


class Only(nn.Module):
    """A network whose only part is called `module`."""

    def __init__(self):
        super().__init__()
        self.module = nn.Linear(2, 2)


class Tower(Only):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(2, 2)


@fix("wrapped-names")
def _(run):
    for make in (lambda: nn.Linear(2, 2), lambda: nn.Sequential(nn.Linear(2, 2)), Only, Tower):
        for wrapped in ("module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module.", ""):
            net = make()
            run(net=net, state={f"{wrapped}{name}": torch.ones_like(t) for name, t in net.state_dict().items()})
            assert all(t.eq(1).all() for t in net.state_dict().values())
    with pytest.raises(RuntimeError, match="Missing key"):
        run(net=nn.Linear(2, 2), state={"module.weight": torch.ones(2, 2)})
    net, state = nn.DataParallel(nn.Linear(2, 2)), nn.Linear(2, 2).state_dict()
    line = next(line for line in run.code.split("\n") if "the file is not: " in line).split("the file is not: ")[1]
    exec(line, {"net": net, "state": state})
    assert net.module.weight.equal(state["weight"])


@fix("out-of-memory")
def _(run):
    X, y = data(n=64)
    left = run(dataset=TensorDataset(X, y), net=nn.Linear(4, 3), X=X)
    assert not left["scores"].requires_grad and len(next(iter(left["loader"]))[0]) == 16


@fix("cudnn-does-not-start")
def _(run):
    with torch.backends.__allow_nonbracketed_mutation():  # another test may have frozen the flags of this process
        enabled = torch.backends.cudnn.enabled
        try:
            assert len(next(iter(run(dataset=TensorDataset(*data(n=64)))["loader"]))[0]) == 16
            assert not torch.backends.cudnn.enabled
        finally:
            torch.backends.cudnn.enabled = enabled


@fix("nan-loss")
def _(run):
    X, y = data()
    net, loss = nn.Linear(4, 3), nn.CrossEntropyLoss()
    run(net=net, loss=loss, X=X, y=y, loss_value=loss(net(X), y))
    assert sum(p.grad.norm() ** 2 for p in net.parameters()) < 1.001
    try:
        run(net=net, loss=lambda scores, y: (scores - scores).sqrt().sum() * 0, X=X, y=y, loss_value=X[0, 0])
    except RuntimeError as error:
        assert "SqrtBackward" in str(error)
    else:
        raise AssertionError("the operation was not named")


@fix("allocator-setting")
def _(run):
    try:
        run()
        subprocess.run([sys.executable, "-c", "import torch"], check=True, env=os.environ | {"PYTORCH_CUDA_ALLOC_CONF": ""})
    finally:
        del os.environ["PYTORCH_ALLOC_CONF"]


@fix("host-memory")
def _(run):
    assert float(printed(run).removesuffix(" GB\n")) == 60_000 * 784 * 4 / 1e9


@fix("memory-grows")
def _(run):
    net, (X, y) = nn.Linear(4, 3), data()
    scores = net(X)
    left = run(total=torch.zeros(()), kept=[], state=scores[0], loss=nn.CrossEntropyLoss(), loss_value=scores.sum(), net=net,
               scores=scores, X=X, y=y)
    assert left["total"] > 0 and not any(t.requires_grad for t in (left["total"], left["state"], left["kept"][0]))
    try:
        left["loss_value"].backward()
    except RuntimeError as error:
        assert "second time" in str(error)  # the graph is gone
    else:
        raise AssertionError("the graph is kept")


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
    started = []
    given = {"dataset": None, "DataLoader": lambda dataset, num_workers: started.append(num_workers) or [(0, 0)]}
    run(**given, __name__="__mp_main__")  # what a worker calls the program
    assert started == []
    run(**given)
    assert started == [2]


@fix("worker-crashed")
def _(run):
    import faulthandler
    before = faulthandler.is_enabled()
    faulthandler.disable()
    with open("log", "w") as log, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stderr", log)
        assert len(run(dataset=TensorDataset(*data()))["loader"]) == 1 and faulthandler.is_enabled()
    faulthandler.disable()
    if before:
        faulthandler.enable()


@fix("shared-memory", "worker-died", "worker-options", "too-many-workers", "pinning-without-gpu", "pin-memory-device")
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
    before = set(multiprocessing.active_children())
    loader = DataLoader(TensorDataset(*data()), num_workers=1)
    batches = iter(loader)
    assert set(multiprocessing.active_children()) - before  # the worker of one that is still held
    del batches
    run(loader=loader)
    assert not set(multiprocessing.active_children()) - before


@fix("ragged-batch")
def _(run):
    for dataset in ([(torch.ones(2), 0), (torch.ones(5), 1)], [(torch.ones(5), 0), None]):
        with pytest.raises((RuntimeError, TypeError)):
            next(iter(DataLoader(dataset, 2)))
        X, y = next(iter(run(dataset=dataset)["loader"]))
        assert X.shape == (len(y), 5) and y.tolist() == [0, 1][:len(y)]
    try:
        from torchvision.transforms import v2
    except ImportError:  # the book runs without it
        return
    resize = eval(run.code.split("in the dataset: ")[1].split("\n")[0], {"v2": v2})
    images = [(resize(torch.ones(3, *size)), 0) for size in ((20, 30), (40, 10))]
    assert next(iter(DataLoader(images, 2)))[0].shape == (2, 3, 224, 224)


@fix("pinned-on-gpu", gpus=True)
def _(run):
    assert next(iter(run(dataset=TensorDataset(*data(gpu())))["loader"]))[0].device == gpu()


@fix("generator-device", gpus=True)
def _(run):
    dataset = TensorDataset(*data())
    torch.set_default_device("cuda")
    try:
        with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator but found 'cpu'"):
            next(iter(DataLoader(dataset, 64, shuffle=True)))
        assert len(next(iter(run(dataset=dataset)["loader"]))[0]) == 8
    finally:
        torch.set_default_device(None)


@fix("generator-on-gpu", gpus=True)
def _(run):
    dataset = TensorDataset(*data())
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'cuda'"):
        next(iter(DataLoader(dataset, 64, shuffle=True, generator=torch.Generator("cuda"))))
    assert len(next(iter(run(dataset=dataset)["loader"]))[0]) == 8
    lines = [line.lstrip("# ") for line in run.code.split("\n") if line.startswith("#")]
    lines[0] = lines[0].removeprefix("on a GPU: ")
    exec("\n".join(lines), {"torch": torch, "device": gpu()})


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
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = torch.get_float32_matmul_precision()
    try:
        matmul.fp32_precision, cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision = "tf32", "ieee", "tf32"
        for switch in (matmul, cudnn):
            with pytest.raises(RuntimeError, match="mix of the legacy and new APIs"):
                switch.allow_tf32
        run()
        assert torch.get_float32_matmul_precision() == "high" and matmul.allow_tf32 and cudnn.allow_tf32
    finally:
        cudnn.conv.fp32_precision = cudnn.rnn.fp32_precision = "tf32"
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


@fix("capturable", gpus=True)
def _(run):
    for here, there in ((CPU, gpu()), (gpu(), CPU), (gpu(), gpu())):
        for capturable in {False, there.type == "cuda"}:
            net = nn.Linear(2, 2).to(there)
            old = torch.optim.Adam(net.parameters(), capturable=capturable)
            net(torch.ones(1, 2, device=there)).sum().backward()
            old.step()
            left = run(net=net, device=here, state=old.state_dict())
            left["net"](torch.ones(1, 2, device=here)).sum().backward()
            left["optimizer"].step()
            assert left["optimizer"].param_groups[0]["capturable"] == (here.type == "cuda")
            assert {state["step"].item() for state in left["optimizer"].state.values()} == {2}


@contextlib.contextmanager
def one_process(**more):
    """The variables that torchrun sets, for one process, and no process group left behind."""
    import socket
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    given = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), **more}
    os.environ.update(given)
    try:
        yield
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        for name in given:
            del os.environ[name]


@fix("no-process-group", "nccl-without-gpus", "nccl-timeout")
def _(run):
    asked = {}

    def init(backend=None, _init=torch.distributed.init_process_group, **options):
        asked.update(options)
        _init("gloo", **options)

    with one_process(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.distributed, "init_process_group", init)
        run()
        torch.distributed.all_reduce(torch.ones(1))
    assert ("timeout" in run.code) == ("timeout" in asked)
    assert not asked or asked["timeout"] > torch.distributed.constants.default_pg_timeout


@fix("no-process-group", "nccl-error", gpus=True)
def _(run):
    backends = []
    with one_process(LOCAL_RANK="1"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.distributed, "init_process_group", backends.append)
        run()
        assert torch.cuda.current_device() == 1 and backends in ([], ["nccl"])
        torch.cuda.set_device(0)


@fix("port-in-use")
def _(run):
    import socket
    with one_process(), socket.socket() as taken:
        taken.bind(("127.0.0.1", int(os.environ["MASTER_PORT"])))
        taken.listen()
        with pytest.raises(RuntimeError, match="EADDRINUSE|ddress already in use"):
            torch.distributed.init_process_group("gloo")
        run()
        torch.distributed.init_process_group("gloo")
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
