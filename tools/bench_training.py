"""Sides of the ratios in tools/bench.py about what the package's own conveniences cost: a ratio of 1 is no cost."""

import contextlib
from unittest import mock

import torch
from torch import nn
from torch.nn import functional as F

import d2l_gpu as d2l
from d2l_gpu import progress
from d2l_gpu.ladder import mlp


def seeded_mlp(device):
    torch.manual_seed(0)
    return mlp(device)


class _Batches(d2l.DataModule):
    """Batches that are ready, on the device; nothing to validate."""

    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def train_dataloader(self):
        return self.batches

    def val_dataloader(self):
        return None


class _MLP(d2l.Classifier):
    def __init__(self):
        super().__init__()
        self.net = seeded_mlp(d2l.cpu())
        self.board.display = False

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


@contextlib.contextmanager
def trainer_over_bare(device, steps):
    """A fit by the Trainer, and the plainest loop: MLP 784-128-64-10, Adam, batches of 64 resident on the device,
    the loss of every batch kept there and fetched once an epoch on both sides. An epoch has 79 steps."""
    epochs = max(1, steps // 13)
    images, labels = d2l.load_images()
    images, labels = (images.float() / 255).to(device), labels.to(device)
    batches = list(zip(images.split(64), labels.split(64)))

    def trainer():
        d2l.Trainer(epochs, num_gpus=min(1, d2l.num_gpus())).fit(_MLP(), _Batches(batches))

    def bare():
        net = seeded_mlp(device)
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
        for _ in range(epochs):
            net.train()
            losses = []
            for X, y in batches:
                loss = F.cross_entropy(net(X), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
            torch.stack(losses).tolist()

    yield trainer, bare


class _Line(d2l.DataModule):
    """1,000 points to train on and 1,000 to validate with: d2l's SyntheticRegressionData."""

    def __init__(self, batch_size=32):
        super().__init__()
        self.save_hyperparameters()
        self.X = torch.randn(2000, 2)
        self.y = self.X @ torch.tensor([[2.0], [-3.4]]) + 4.2 + 0.01 * torch.randn(2000, 1)

    def get_dataloader(self, train):
        return self.get_tensorloader((self.X, self.y), train, slice(0, 1000) if train else slice(1000, None))


class _LinearRegression(d2l.Module):
    def __init__(self, lr=0.03):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Linear(2, 1)

    def loss(self, y_hat, y):
        return F.mse_loss(y_hat, y)


class _NoBoard(_LinearRegression):
    def plot(self, key, value, train):
        pass


@contextlib.contextmanager
def board_over_none(device, steps):
    """A fit of d2l's linear regression (100 epochs for 40 steps) with the figure of a notebook, and one without a board."""
    data, epochs = _Line(), 5 * steps // 2
    with mock.patch.object(progress, "_in_notebook", lambda: True), mock.patch("IPython.display.display") as display:
        yield (lambda: d2l.Trainer(epochs).fit(_LinearRegression(), data),
               lambda: d2l.Trainer(epochs).fit(_NoBoard(), data))
    assert display.called


@contextlib.contextmanager
def simulator_over_cpu(device, steps):
    """Training the MLP at batch 64 on a simulated GPU, and on the CPU."""
    def training(place):
        net, X, y = mlp(place), torch.rand(64, 784).to(place), torch.randint(10, (64,)).to(place)
        optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

        def run():
            for _ in range(steps):
                optimizer.zero_grad()
                F.cross_entropy(net(X), y).backward()
                optimizer.step()
        return run

    with d2l.simulate_gpus(1, hide_real_gpus=True):
        yield training(d2l.gpu(0)), training(d2l.cpu())
