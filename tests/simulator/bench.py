"""How much slower than the CPU is a simulated GPU?

    python tests/simulator/bench.py [case ...]

Each case runs in turn on the host and on a simulated device, in one thread, so that a busy machine
slows both; printed is the ratio of the medians.
"""

import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2]))  # when run as a script
from d2l_gpu.simulator import simulate_gpus


def training(net, x, loss):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        loss(net(x)).backward()
        optimizer.step()

    return step


def classification(net, *shape):
    def case(device):
        x, y = torch.randn(*shape, device=device), torch.randint(10, shape[:1], device=device)
        return training(net().to(device), x, lambda out: F.cross_entropy(out, y))

    return case


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))


def cnn():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, 10),
    )


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x):
        return F.relu(x + self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x))))))


def resnet():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), Residual(32), Residual(32), Residual(32),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )


def gpt(device):
    layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
    net = nn.Sequential(nn.Embedding(100, 64), nn.TransformerEncoder(layer, 3), nn.Linear(64, 100))
    tokens = torch.randint(100, (8, 32), device=device)
    return training(net.to(device), tokens, lambda out: F.cross_entropy(
        out.flatten(0, 1), tokens.flatten()))


def recurrent(kind, train=True):
    def case(device):
        net, x = kind(32, 64).to(device), torch.randn(30, 16, 32, device=device)
        if train:
            return training(net, x, lambda out: out[0].square().mean())

        def forward():
            with torch.no_grad():
                net(x)

        return forward

    return case


def copies(device):
    x = torch.ones(8)
    return lambda: [x.to(device, copy=True) for _ in range(1000)]


def indexing(device):
    x = torch.ones(1000, device=device)
    return lambda: [x[i] for i in range(1000)]


def additions(device):
    x = torch.ones(8, device=device)
    return lambda: [x.add_(1) for _ in range(1000)]


def large_copy(device):
    x = torch.ones(2**22)
    return lambda: x.to(device, copy=True)


def large_sum(device):
    x = torch.ones(1000, 1000, device=device)
    return lambda: (x * 2 + x).sum()


CASES = {
    "MLP": classification(mlp, 64, 1, 28, 28), "CNN": classification(cnn, 64, 1, 28, 28),
    "ResNet": classification(resnet, 16, 3, 32, 32), "GPT": gpt,
    "LSTM": recurrent(nn.LSTM), "LSTM, no gradients": recurrent(nn.LSTM, train=False),
    "GRU": recurrent(nn.GRU), "RNN": recurrent(nn.RNN), "copy of 16 MiB": large_copy,
    "sum of a million": large_sum, "1000 x[i]": indexing, "1000 small copies": copies,
    "1000 small in-place additions": additions,
}


def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main(names):
    torch.set_num_threads(1)
    with simulate_gpus(2) as gpus:
        for name in names or CASES:
            host, device = CASES[name]("cpu"), CASES[name]("cuda")
            rounds = [(seconds(host), seconds(device)) for _ in range(12)][2:]
            cpu, simulated = (statistics.median(times) for times in zip(*rounds))
            with gpus.record() as used:
                device()
            print(f"{name:32} {cpu * 1e3:9.2f} ms {simulated * 1e3:9.2f} ms"
                  f" {simulated / cpu:6.1f} x  {used.kernels.total():5} operators")


if __name__ == "__main__":
    main(sys.argv[1:])
