"""The Trainer and the classes it trains. Tests named `defect_x` hold one of d2l.torch's known defects mended."""

import collections
import copy
import dataclasses
import importlib
import importlib.machinery
import os
import signal
import subprocess
import sys
import threading
import traceback

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import d2l_gpu as d2l
from d2l_gpu import devices, progress, training


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def pretend(monkeypatch):
    """A function that makes this a machine with `gpus` CUDA GPUs, or with Apple's."""
    def machine(gpus=0, mps=False):
        monkeypatch.setattr(devices, "_said", set())
        monkeypatch.setattr(devices, "num_gpus", lambda: gpus)
        monkeypatch.setattr(devices, "_has_mps", lambda: mps)
    return machine


@pytest.fixture
def trainer_class():
    """d2l.Trainer, which gets its own methods back after a test that replaces some."""
    before = dict(vars(d2l.Trainer))
    yield d2l.Trainer
    for name in set(vars(d2l.Trainer)) - set(before):
        delattr(d2l.Trainer, name)
    for name in ("__init__", "prepare_batch", "prepare_model", "fit_epoch", "clip_gradients"):
        setattr(d2l.Trainer, name, before[name])


@pytest.fixture
def two_simulated_gpus():
    """Two simulated CUDA devices; its `record()` counts copies and waits."""
    if torch.cuda.is_available():
        pytest.skip("this machine has real GPUs")
    try:
        simulator = importlib.import_module("d2l_gpu.simulator")
    except ModuleNotFoundError:
        pytest.skip("d2l_gpu.simulator is not there")
    with simulator.simulate_gpus(2) as gpus:
        yield gpus


class Batches(d2l.DataModule):
    """Batches as given, every epoch the same."""

    def __init__(self, train, val=None):
        self.train, self.val = train, val

    def train_dataloader(self):
        return self.train

    def val_dataloader(self):
        return self.val


class Line(d2l.DataModule):
    """Noisy points on the plane y = Xw + b."""

    def __init__(self, w=(2.0, -3.4), b=4.2, num_train=200, num_val=100, batch_size=20):
        super().__init__()
        self.save_hyperparameters()
        n = num_train + num_val
        self.X = torch.randn(n, 2)
        self.y = self.X @ torch.tensor(w).reshape(-1, 1) + b + 0.01 * torch.randn(n, 1)

    def get_dataloader(self, train):
        rows = slice(0, self.num_train) if train else slice(self.num_train, None)
        return self.get_tensorloader((self.X, self.y), train, rows)


class Linear(d2l.Module):
    def __init__(self, lr=0.1, **options):
        super().__init__(**options)
        self.lr = lr
        self.net = nn.Linear(2, 1)

    def loss(self, y_hat, y):
        return F.mse_loss(y_hat, y)


class Scratch(d2l.Module):
    """Linear regression as D2L 3.4 writes it: plain tensors that require a gradient."""

    def __init__(self, num_inputs, lr, sigma=0.01):
        super().__init__()
        self.save_hyperparameters()
        self.w = torch.normal(0, sigma, (num_inputs, 1), requires_grad=True)
        self.b = torch.zeros(1, requires_grad=True)

    def forward(self, X):
        return X @ self.w + self.b

    def loss(self, y_hat, y):
        return ((y_hat - y) ** 2 / 2).mean()

    def configure_optimizers(self):
        return PlainSGD([self.w, self.b], self.lr)


class PlainSGD(d2l.HyperParameters):
    """An optimizer that subtracts in place, and needs autograd to look away."""

    def __init__(self, params, lr):
        self.save_hyperparameters()

    def step(self):
        for param in self.params:
            param -= self.lr * param.grad

    def zero_grad(self):
        for param in self.params:
            if param.grad is not None:
                param.grad.zero_()


class Digits(d2l.Classifier):
    """Four classes of points in three dimensions."""

    def __init__(self):
        super().__init__()
        self.lr = 0.1
        self.net = nn.Linear(3, 4)


def digits(batches, size=8):
    return [(torch.randn(size, 3), torch.randint(4, (size,))) for _ in range(batches)]


class Images(d2l.DataModule):
    def __init__(self, batch_size=64):
        super().__init__()
        self.save_hyperparameters()
        self.tensors = {train: d2l.load_images(train=train) for train in (True, False)}

    def get_dataloader(self, train):
        images, labels = self.tensors[train]
        return self.get_tensorloader((images.float() / 255, labels), train)


class Net(d2l.Classifier):
    def __init__(self, *layers):
        super().__init__()
        self.net = nn.Sequential(*layers)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


# ---------------------------------------------------------------------------------------- it trains
@pytest.mark.parametrize("layers, floor", [
    (lambda: [nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)], 0.75),
    (lambda: [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
              nn.Linear(16 * 14 * 14, 10)], 0.80),
], ids=["MLP", "CNN"])
def test_an_image_classifier_reaches_its_floor_in_five_epochs(layers, floor):
    model = Net(*layers())
    d2l.Trainer(max_epochs=5).fit(model, Images())
    losses, accuracies = ([point.y for point in model.board.data[name]] for name in ("val_loss", "val_acc"))
    assert len(accuracies) == 5 and accuracies[-1] >= floor
    assert losses[-1] < losses[0]


def test_linear_regression_from_scratch_finds_the_weights():
    model, data = Scratch(2, lr=0.1), Line()
    d2l.Trainer(max_epochs=10).fit(model, data)
    assert torch.allclose(model.w.flatten(), torch.tensor(data.w), atol=0.05)
    assert abs(model.b.item() - data.b) < 0.05


def test_d2ls_patches_of_the_trainer_run(trainer_class, pretend):
    pretend(gpus=0)

    @d2l.add_to_class(d2l.Trainer)
    def __init__(self, max_epochs, num_gpus=0, gradient_clip_val=0):
        self.save_hyperparameters()
        self.gpus = [d2l.gpu(i) for i in range(min(num_gpus, d2l.num_gpus()))]

    @d2l.add_to_class(d2l.Trainer)
    def prepare_batch(self, batch):
        if self.gpus:
            batch = [d2l.to(a, self.gpus[0]) for a in batch]
        return batch

    @d2l.add_to_class(d2l.Trainer)
    def prepare_model(self, model):
        model.trainer = self
        model.board.xlim = [0, self.max_epochs]
        if self.gpus:
            model.to(self.gpus[0])
        self.model = model

    @d2l.add_to_class(d2l.Trainer)
    def fit_epoch(self):
        self.model.train()
        for batch in self.train_dataloader:
            loss = self.model.training_step(self.prepare_batch(batch))
            self.optim.zero_grad()
            with torch.no_grad():
                loss.backward()
                if self.gradient_clip_val > 0:
                    self.clip_gradients(self.gradient_clip_val, self.model)
                self.optim.step()
            self.train_batch_idx += 1
        self.model.eval()
        for batch in self.val_dataloader:
            with torch.no_grad():
                self.model.validation_step(self.prepare_batch(batch))
            self.val_batch_idx += 1

    model = Scratch(2, lr=0.1)
    trainer = d2l.Trainer(max_epochs=3, gradient_clip_val=10)
    trainer.fit(model, Line())
    assert (trainer.train_batch_idx, trainer.val_batch_idx) == (30, 15)
    assert len(model.board.data["val_loss"]) == 3


def test_a_lazy_network_trains():
    model = Linear()
    model.net = nn.LazyLinear(1)
    d2l.Trainer(max_epochs=1).fit(model, Line())
    assert model.net.weight.shape == (1, 2)


def test_training_needs_no_validation_data():
    model, trainer = Linear(), d2l.Trainer(max_epochs=2)
    trainer.fit(model, Batches(list(Line().train_dataloader())))
    assert trainer.num_val_batches == 0 and list(model.board.data) == ["train_loss"] and model.training


def test_no_batch_to_train_on_is_an_error():
    with pytest.raises(ValueError, match="no batch"):
        d2l.Trainer(max_epochs=1).fit(Linear(), Batches([]))


@pytest.mark.parametrize("name", ["max_epochs", "num_gpus", "gradient_clip_val"])
def test_a_negative_number_is_an_error(name):
    with pytest.raises(ValueError, match=f"{name} is at least 0, not -1"):
        d2l.Trainer(**({"max_epochs": 1} | {name: -1}))


def test_a_module_without_its_parts_says_which():
    with pytest.raises(RuntimeError, match="no trainer yet"):
        Linear().training_step((torch.ones(1, 2), torch.ones(1, 1)))
    for call, name in ((lambda m: m.loss(1, 2), "loss"), (lambda m: m(torch.ones(1)), "self.net")):
        with pytest.raises(NotImplementedError, match=name):
            call(d2l.Module())
    with pytest.raises(NotImplementedError, match="get_dataloader"):
        d2l.DataModule().train_dataloader()


# ------------------------------------------------------------------------------------ hyperparameters
def test_save_hyperparameters_merges_up_the_class_chain():
    class A(d2l.HyperParameters):
        def __init__(self, a, secret, _private=0):
            self.save_hyperparameters(ignore=["secret"])

    class B(A):
        def __init__(self, a, b):
            super().__init__(a, secret=3)
            self.save_hyperparameters()

    b = B(1, 2)
    assert b.hparams == {"a": 1, "b": 2} and (b.a, b.b) == (1, 2)
    assert not hasattr(b, "secret") and not hasattr(b, "_private")


def test_the_hyperparameters_of_two_objects_are_their_own():
    first, second = Scratch(2, lr=0.1), Scratch(2, lr=0.2)
    assert first.hparams["lr"] == 0.1 and second.hparams["lr"] == 0.2
    assert first.hparams["plot_train_per_epoch"] == 2


def test_add_to_class_returns_the_function_and_reaches_objects_that_exist():
    class A:
        pass
    a = A()

    @d2l.add_to_class(A)
    def double(self, x):
        return 2 * x
    assert a.double(4) == 8 and double(None, 4) == 8


# -------------------------------------------------------------------------------------------- devices
@pytest.mark.parametrize("asked, there, used, words", [
    (0, 0, [], None), (0, 2, [], "the GPU that is here is not used, num_gpus=1 would use it"), (1, 1, ["cuda:0"], None), (1, 2, ["cuda:0"], None),
    (1, 0, [], "no GPU here, training on the CPU"),
    (2, 1, ["cuda:0"], "only 1 GPU here"),
    (2, 2, ["cuda:0", "cuda:1"], "uses the first, cuda:0"),
    (4, 2, ["cuda:0", "cuda:1"], "only 2 GPUs here; the Trainer uses the first, cuda:0"),
])
def test_defect_d_fewer_gpus_than_asked_or_more_than_used_is_said_once(pretend, capsys, asked, there, used, words):
    pretend(gpus=there)
    for _ in range(2):
        assert d2l.Trainer(1, num_gpus=asked).gpus == [torch.device(name) for name in used]
    printed = capsys.readouterr().out
    assert printed.count("\n") == (words is not None) and (words or "") in printed


def test_apples_gpu_is_used_and_said(pretend, capsys):
    pretend(mps=True)
    assert d2l.Trainer(1, num_gpus=1).gpus == [torch.device("mps")]
    assert "mps" in capsys.readouterr().out
    assert d2l.Trainer(1).gpus == []
    assert "not used" in capsys.readouterr().out


def test_defect_e_a_plain_tensor_with_a_gradient_is_a_registered_parameter():
    model = Scratch(2, lr=0.1)
    assert dict(model.named_parameters()).keys() == {"w", "b"}
    assert model.to("meta").w.is_meta
    model.state = model(torch.ones(1, 2, device="meta"))  # the result of a computation is none
    assert len(list(model.parameters())) == 2
    model.constant = torch.ones(3)
    assert len(list(model.parameters())) == 2


def test_defect_e_a_tensor_that_stays_behind_is_named():
    class InAList(Linear):
        def __init__(self):
            super().__init__()
            self.weights = [torch.zeros(2, 1, requires_grad=True)]

        def configure_optimizers(self):
            return torch.optim.SGD(self.weights, lr=0.1)

        def forward(self, X):
            return X @ self.weights[0]

    trainer = d2l.Trainer(max_epochs=1)
    trainer.fit(InAList(), Line())  # all on the CPU: nothing is left behind
    trainer.gpus = [torch.device("meta")]
    with pytest.raises(RuntimeError, match=r"shape \(2, 1\) on cpu, .* trains on meta: .*ParameterList"):
        trainer.fit(InAList(), Line())


Pair = collections.namedtuple("Pair", ["image", "label"])


@dataclasses.dataclass(frozen=True)
class Sample:
    image: torch.Tensor
    name: str
    size: int = dataclasses.field(init=False, default=3)


def test_defect_m_nested_batches_move():
    x = torch.ones(2)
    counts = collections.defaultdict(list, a=x)
    packed = nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    batch = ([x, 1], {"x": x, "y": (x, None)}, Pair(x, "label"), Sample(x, "name"), counts, packed, "text")
    moved = d2l.to(batch, "meta")
    assert [type(item) for item in moved] == [type(item) for item in batch]
    assert moved[0][0].is_meta and moved[0][1] == 1
    assert moved[1]["x"].is_meta and moved[1]["y"][0].is_meta and moved[1]["y"][1] is None
    assert moved[2].image.is_meta and moved[2].label == "label"
    assert moved[3].image.is_meta and (moved[3].name, moved[3].size) == ("name", 3)
    assert moved[4]["a"].is_meta and moved[4]["b"] == [] and moved[5].data.is_meta and moved[6] == "text"
    assert batch[0][0] is x and batch[3].image is x and counts["a"] is x  # the batch itself is as it was


def test_defect_m_a_copy_is_non_blocking_exactly_if_its_source_is_pinned():
    asked = []

    class Recorder(torch.Tensor):
        def is_pinned(self):
            return self.pinned

        def to(self, *args, **kwargs):
            asked.append((self.pinned, kwargs["non_blocking"]))
            return self

    tensors = [torch.ones(1).as_subclass(Recorder) for _ in range(2)]
    tensors[0].pinned, tensors[1].pinned = True, False
    trainer = d2l.Trainer(1)
    trainer.gpus = [d2l.gpu()]
    trainer.prepare_batch({"batch": tensors})
    assert asked == [(True, True), (False, False)]


def test_on_the_cpu_a_batch_is_not_touched():
    batch = [torch.ones(1), object()]
    assert d2l.Trainer(1).prepare_batch(batch) is batch


def test_on_a_gpu_everything_trains_there(two_simulated_gpus):
    for model, data in ((Scratch(2, lr=0.1), Line()), (Digits(), Batches(digits(4), digits(2)))):
        with two_simulated_gpus.record() as ledger:
            d2l.Trainer(max_epochs=3, num_gpus=1, gradient_clip_val=5).fit(model, data)
        assert {str(p.device) for p in model.parameters()} == {"cuda:0"}
        assert ledger.copies["D2H"] == 3  # one an epoch, for all curves
        assert sum(count for cause, count in ledger.syncs.items() if cause != "H2D") == 3


# ---------------------------------------------------------------------------------------------- waits
@pytest.fixture
def waits(monkeypatch):
    """The calls that would make the host wait for a GPU, as a list of names."""
    calls = []
    for name in ("item", "tolist", "cpu", "numpy", "__float__", "__int__", "__bool__", "__index__", "__format__"):
        def counted(self, *args, _name=name, _real=getattr(torch.Tensor, name), **kwargs):
            calls.append(_name)
            return _real(self, *args, **kwargs)
        monkeypatch.setattr(torch.Tensor, name, counted)
    return calls


@pytest.mark.parametrize("display", [True, False])
def test_defect_l_the_host_waits_once_an_epoch_for_losses_and_accuracies_together(waits, display):
    model = Digits()
    model.board.display = display
    d2l.Trainer(max_epochs=3, gradient_clip_val=0.1).fit(model, Batches(digits(20), digits(10)))
    assert len(waits) == 3
    assert [len(points) for points in model.board.data.values()] == [6, 3, 3]


def test_accuracy_and_loss_stay_tensors():
    model, Y_hat, Y = Digits(), torch.eye(4)[None].repeat(2, 1, 1), torch.tensor([[0, 1, 2, 0], [0, 1, 2, 3]])
    assert model.accuracy(Y_hat, Y) == torch.tensor(7 / 8)
    assert model.accuracy(Y_hat, Y, averaged=False).tolist() == [1, 1, 1, 0, 1, 1, 1, 1]
    assert model.loss(Y_hat, Y).shape == () and model.loss(Y_hat, Y, averaged=False).shape == (8,)


# ------------------------------------------------------------------------------------------ the epoch
def test_defect_p_only_the_update_runs_without_gradients(monkeypatch):
    seen = []

    class Optimizer(PlainSGD):
        def step(self):
            seen.append(("step", torch.is_grad_enabled()))
            super().step()

    def backward(self, _real=torch.Tensor.backward):
        seen.append(("backward", torch.is_grad_enabled()))
        _real(self)

    monkeypatch.setattr(torch.Tensor, "backward", backward)
    model = Scratch(2, lr=0.1)
    model.configure_optimizers = lambda: Optimizer([model.w, model.b], model.lr)
    d2l.Trainer(max_epochs=1).fit(model, Line())
    assert seen == [("backward", True), ("step", False)] * 10


def test_validation_is_in_evaluation_mode_and_inference_mode():
    seen = []

    class Watched(Linear):
        def forward(self, X):
            seen.append((self.training, torch.is_inference_mode_enabled(), torch.is_grad_enabled()))
            return super().forward(X)

    model = Watched()
    d2l.Trainer(max_epochs=1).fit(model, Line(num_train=20, num_val=20))
    assert seen == [(True, False, True), (False, True, False)] and not model.training


def test_a_model_that_keeps_validation_results_can_use_no_grad():
    class Remembers(Linear):
        def forward(self, X):
            y = super().forward(X)
            if self.training:
                y = y + self.net.bias * getattr(self, "last", torch.zeros(1))
            self.last = y.detach().mean()
            return y

    trainer = d2l.Trainer(max_epochs=2)
    with pytest.raises(RuntimeError, match="Inference tensors"):
        trainer.fit(Remembers(), Line())
    trainer.evaluation = torch.no_grad
    trainer.fit(Remembers(), Line())


def test_gradients_are_clipped_to_the_norm():
    model = Linear()
    for p in model.parameters():
        p.grad = torch.full_like(p, 100.0)
    trainer = d2l.Trainer(1)
    trainer.clip_gradients(1.0, model)
    norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()
    assert abs(norm.item() - 1) < 1e-4
    trainer.clip_gradients(5.0, model)  # smaller already
    assert abs(torch.cat([p.grad.flatten() for p in model.parameters()]).norm().item() - 1) < 1e-4


def test_fit_clips_if_asked():
    def moved(**options):
        torch.manual_seed(0)
        model = Linear(lr=1.0)
        before = model.net.weight.detach().clone()
        d2l.Trainer(max_epochs=1, **options).fit(model, Batches([(torch.full((1, 2), 100.0), torch.zeros(1, 1))]))
        return (model.net.weight - before).norm().item()
    assert moved(gradient_clip_val=0.5) < 0.5001 < moved()


def test_defect_n_the_tensor_loader_uses_its_workers_and_keeps_them():
    data = Line()
    loader = data.train_dataloader()
    assert (loader.num_workers, loader.persistent_workers, len(loader)) == (0, False, 10)
    data.num_workers = 2
    loader = data.train_dataloader()
    assert (loader.num_workers, loader.persistent_workers) == (2, True)


# ------------------------------------------------------------------------------ interrupts and errors
class Interrupting(torch.optim.SGD):
    """Gets the interrupt signal in the update with the number `at`, between two parameters."""

    def __init__(self, params, at):
        self.at, self.steps = at, 0
        super().__init__(params, lr=0.1, momentum=0.9)

    def step(self):
        self.steps += 1
        first, *others = self.param_groups[0]["params"]
        first.sub_(first.grad)
        if self.steps == self.at:
            signal.raise_signal(signal.SIGINT)
        for p in others:
            p.sub_(p.grad)


class Stoppable(Linear):
    at = 13

    def configure_optimizers(self):
        return Interrupting(self.parameters(), self.at)


def weights(model):
    return [p.detach().clone() for p in model.parameters()]


def test_an_interrupt_waits_for_the_end_of_the_update():
    data = Batches([(torch.ones(1, 2), torch.full((1, 1), 5.0))] * 10)
    model, trainer = Stoppable(), d2l.Trainer(max_epochs=3)
    twin = copy.deepcopy(model)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(model, data)
    optimizer = Interrupting(twin.parameters(), at=0)
    for _ in range(13):
        optimizer.zero_grad()
        twin.loss(twin(torch.ones(1, 2)), torch.full((1, 1), 5.0)).backward()
        with torch.no_grad():
            optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(weights(model), weights(twin)))


def test_an_interrupt_in_an_update_reaches_the_programs_own_handler_once_it_is_done():
    from d2l_gpu.interrupts import Updating
    calls, updating = [], Updating()
    before = signal.signal(signal.SIGINT, lambda number, frame: calls.append(number))
    try:
        updating.watch()
        with updating:
            signal.raise_signal(signal.SIGINT)
            assert calls == []
        assert calls == [signal.SIGINT]
        with pytest.raises(ZeroDivisionError), updating:
            signal.raise_signal(signal.SIGINT)
            1 / 0
        assert calls == [signal.SIGINT] * 2  # an error of the update does not swallow it
    finally:
        updating.unwatch()
        signal.signal(signal.SIGINT, before)


def test_after_an_interrupt_fit_goes_on_with_the_same_optimizer(capsys):
    model, trainer, data = Stoppable(), d2l.Trainer(max_epochs=3), Line()
    model.eval()
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as caught:
        trainer.fit(model, data)
    assert signal.getsignal(signal.SIGINT) is handler
    assert caught.value.__notes__ == ["in epoch 2 of 3, training batch 3 of 10"]
    assert not model.training and not model.net.training  # the mode it was in
    assert not any(model.board.raw_points.values())  # no batch of the epoch that is to run again
    model.board.show()
    optimizer = trainer.optim
    trainer.fit(model, data)
    assert "going on with epoch 2 of 3" in capsys.readouterr().out
    assert trainer.optim is optimizer and trainer.epoch == 2 and trainer.train_batch_idx == 30
    for points in model.board.data.values():  # the part of an epoch that ran twice is drawn once
        assert [p.x for p in points] == sorted(p.x for p in points)
    assert [p.x for p in model.board.data["val_loss"]] == [1, 2, 3]
    model.at = None
    trainer.fit(model, data)  # a fit that was complete starts anew
    assert trainer.optim is not optimizer and [p.x for p in model.board.data["val_loss"]] == [1, 2, 3]


def test_a_fit_outside_the_main_thread_works():
    problems = []

    def fit():
        try:
            d2l.Trainer(max_epochs=1).fit(Linear(), Line())
        except BaseException as error:
            problems.append(error)
    thread = threading.Thread(target=fit)
    thread.start()
    thread.join()
    assert not problems


@pytest.mark.parametrize("phase, note", [("training", "in epoch 2 of 3, training batch 4 of 10"),
                                         ("validation", "in epoch 2 of 3, validation batch 4 of 5")])
def test_an_error_names_the_epoch_and_the_batch_and_stays_itself(phase, note):
    class Fails(Linear):
        def loss(self, y_hat, y):
            done = {"training": self.trainer.train_batch_idx, "validation": self.trainer.val_batch_idx}[phase]
            if self.training == (phase == "training") and done == {"training": 13, "validation": 8}[phase]:
                raise ZeroDivisionError("the loss failed")
            return super().loss(y_hat, y)

    model = Fails()
    with pytest.raises(ZeroDivisionError) as caught:
        d2l.Trainer(max_epochs=3).fit(model, Line())
    assert str(caught.value) == "the loss failed" and caught.value.__notes__ == [note]
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "loss"
    assert model.training
    model.board.show()


# --------------------------------------------------------------------------------------- progress bar
class FakeBar:
    made = []

    def __init__(self, **options):
        self.options, self.n, self.closed, self.seen = options, options["initial"], False, []
        FakeBar.made.append(self)

    def update(self, n):
        self.n += n
        self.seen.append(self.n)

    def close(self):
        self.closed = True

    @staticmethod
    def write(line):
        print("above the bar:", line)


@pytest.fixture
def tqdm(monkeypatch):
    FakeBar.made = []
    module = type(sys)("tqdm")
    module.tqdm, module.__spec__ = FakeBar, importlib.machinery.ModuleSpec("tqdm", None)
    monkeypatch.setitem(sys.modules, "tqdm", module)
    return FakeBar.made


def test_a_short_fit_shows_no_bar(tqdm):
    d2l.Trainer(max_epochs=1).fit(Linear(), Line())
    assert tqdm == []


def test_a_long_fit_shows_a_bar_of_batches_and_waits_no_more_for_it(tqdm, monkeypatch, waits, capsys):
    monkeypatch.setattr(training, "BAR_SECONDS", 0)
    d2l.Trainer(max_epochs=2).fit(Digits(), Batches(digits(5)))
    bar, = tqdm
    assert bar.options["total"] == 10 and sorted(set(bar.seen)) == list(range(1, 11)) and bar.closed
    assert bar.options["disable"]  # nobody sees the output of a test
    assert len(waits) == 2
    assert capsys.readouterr().out.startswith("above the bar: epoch 1.7: train_loss")


def test_tqdm_itself_takes_the_bar(monkeypatch, capsys):
    pytest.importorskip("tqdm")
    monkeypatch.setattr(training, "BAR_SECONDS", 0)
    monkeypatch.setattr(training, "_in_notebook", lambda: True)  # someone to see it
    d2l.Trainer(max_epochs=2).fit(Linear(), Line())
    shown = capsys.readouterr().err
    assert "training:" in shown and "/20 [" in shown and "batch/s" in shown


def test_tqdms_own_variable_turns_the_bar_off(root):
    pytest.importorskip("tqdm")
    script = """
import torch
import d2l_gpu as d2l
from d2l_gpu import training
training.BAR_SECONDS, training._in_notebook = 0, lambda: True
bar = training._ProgressBar(10)
bar.update(5)
"""
    for value, shown in (("", True), ("1", False)):
        done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True,
                              env=os.environ | ({"TQDM_DISABLE": value} if value else {}))
        assert ("training:" in done.stderr) == shown


def test_without_tqdm_a_long_fit_shows_nothing(monkeypatch):
    monkeypatch.setattr(training, "BAR_SECONDS", 0)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    d2l.Trainer(max_epochs=1).fit(Linear(), Line())


def test_an_error_of_the_gpu_is_not_hidden_by_the_board_that_cannot_fetch_any_more(monkeypatch):
    class Fails(Linear):
        def training_step(self, batch):
            super().training_step(batch)
            monkeypatch.setattr(progress, "_fetch", lambda tensors: [1 / 0 for _ in tensors])
            raise RuntimeError("CUDA error: device-side assert triggered")

    model = Fails(plot_train_per_epoch=10)
    with pytest.raises(RuntimeError, match="device-side assert") as caught:
        d2l.Trainer(max_epochs=1).fit(model, Line())
    assert caught.value.__context__ is None
    assert model.board.data == {}  # and the end of the cell does not try again


def test_a_model_that_was_trained_can_be_copied():
    model = Linear()
    d2l.Trainer(max_epochs=1).fit(model, Line())
    twin = copy.deepcopy(model)
    assert all(torch.equal(a, b) for a, b in zip(weights(model), weights(twin)))
    assert twin.board.data == model.board.data


def test_layer_summary_prints_the_shapes_and_leaves_the_network(capsys):
    model = Net(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.LazyLinear(10))
    model.apply_init([torch.ones(1, 1, 8, 8)], lambda layer: layer is model.net[2] and nn.init.zeros_(layer.bias))
    model.layer_summary((1, 1, 8, 8))
    assert capsys.readouterr().out.splitlines()[-1].endswith("torch.Size([1, 10])")
    assert model.net[2].bias.abs().sum() == 0
