"""What the Trainer and the ProgressBoard cost: ratios of times, measured in pairs.

    python tools/bench_training.py

Each function below runs its two sides in turn, so that both meet the same machine, and returns the median of the
pairs' ratios. A ratio of 1 is no cost.
"""

import statistics
import sys
import time
from pathlib import Path
from unittest import mock

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))
import d2l_gpu as d2l  # noqa: E402
from d2l_gpu import progress  # noqa: E402


def median_ratio(first, second, pairs=7):
    """The median over `pairs` of the time of first() divided by that of second(), after one run of each."""
    def seconds(function):
        start = time.perf_counter()
        function()
        return time.perf_counter() - start
    first(), second()
    ratios = []
    for i in range(pairs):
        if i % 2:  # whichever goes first may find a warmer cache
            b, a = seconds(second), seconds(first)
        else:
            a, b = seconds(first), seconds(second)
        ratios.append(a / b)
    return statistics.median(ratios)


def _mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))


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
        self.net = _mlp()
        self.board.display = False

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def trainer_over_bare(pairs=7, epochs=3):
    """A fit by the Trainer over the plainest loop: MLP 784-128-64-10, Adam, batches of 64 resident on the device,
    the loss of every batch kept there and fetched once an epoch on both sides."""
    device = d2l.try_gpu()
    images, labels = d2l.load_images()
    images, labels = (images.float() / 255).to(device), labels.to(device)
    batches = list(zip(images.split(64), labels.split(64)))

    def trainer():
        d2l.Trainer(epochs, num_gpus=min(1, d2l.num_gpus())).fit(_MLP(), _Batches(batches))

    def bare():
        net = _mlp().to(device)
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

    return median_ratio(trainer, bare, pairs)


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


def board_over_none(pairs=7, epochs=100):
    """A fit of d2l's linear regression with the figure of a notebook over the same fit without a board."""
    data = _Line()
    display = mock.Mock()  # takes the finished PNGs
    with mock.patch.object(progress, "_in_notebook", lambda: True), mock.patch("IPython.display.display", display):
        ratio = median_ratio(lambda: d2l.Trainer(epochs).fit(_LinearRegression(), data),
                             lambda: d2l.Trainer(epochs).fit(_NoBoard(), data), pairs)
    assert display.called
    return ratio


def main():
    for name, ratio, target in (("trainer/bare", trainer_over_bare, 1.05), ("board/none", board_over_none, 1.5)):
        value = ratio()
        print(f"{name:14}{value:6.2f}   target: at most {target}   {'met' if value <= target else 'MISSED'}")


if __name__ == "__main__":
    main()
