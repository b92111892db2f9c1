"""A training script that learns what it should, slowly. Chapter 15 asks to make it at least three times as fast.

    python -m d2l_gpu.capstone.slow
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import d2l_gpu as d2l


class Clothes(Dataset):
    """Pictures of full contrast, brightened, with mean 0 and standard deviation 1, and their labels, one-hot."""

    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        picture = self.images[i].float()
        picture = (picture - picture.min()) / (picture.max() - picture.min())
        picture = picture.sqrt()
        picture = (picture - picture.mean()) / picture.std()
        target = torch.zeros(10)
        target[self.labels[i]] = 1
        return picture, target


def accuracy(net, test_set, device):
    """The share of the test set that `net` gets right."""
    net.eval()
    correct = 0
    for X, y in DataLoader(Clothes(*test_set)):
        X, y = X.to(device), y.to(device)
        if net(X).argmax() == y.argmax():
            correct += 1
    return correct / len(test_set[1])


def train(net, train_set, test_set, device, passes, seed):
    """Train `net` on `device`. For each pass a triple: mean loss, how many of each class were right, test accuracy."""
    net.to(device)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    history = []
    for _ in range(passes):
        net.train()
        order = torch.randperm(len(train_set[1]), generator=generator).tolist()
        total_loss, right = 0.0, torch.zeros(10, dtype=torch.long, device=device)
        for X, y in DataLoader(Clothes(*train_set), batch_size=64, sampler=order):
            X, y = X.to(device), y.to(device)
            optimizer.zero_grad()
            with torch.autograd.set_detect_anomaly(True):  # the loss was NaN once
                output = net(X)
                loss = nn.functional.cross_entropy(output, y)
                loss.backward()
            optimizer.step()
            total_loss += loss * len(y)
            for prediction, label in zip(output.argmax(1), y.argmax(1)):
                if prediction == label:
                    right[label] += 1
            torch.cuda.empty_cache()  # so that memory does not run out
        history.append((total_loss.item() / len(order), right.tolist(), accuracy(net, test_set, device)))
    return history


def network():
    """784-32-10, with ReLU."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))


if __name__ == "__main__":
    device = d2l.try_gpu()
    torch.manual_seed(0)
    history = train(network(), d2l.load_images(), d2l.load_images(train=False), device, passes=12, seed=0)
    for number, (loss, right, test) in enumerate(history, 1):
        print(f"pass {number:2}: loss {loss:.3f}, {sum(right)} right in training, test accuracy {test:.3f}")
