"""Data sets for a DataLoader with workers.

They are in the package because workers must be able to import them: where workers are not forked (macOS, Windows, and
Linux from Python 3.14 on), a class that is defined in a notebook cannot reach them.
"""

import torch
from torch.utils.data import Dataset, TensorDataset

MEAN, STD = 0.1307, 0.3081  # of MNIST's pixels between 0 and 1: the pair usually taken


class Pictures(Dataset):
    """Images made into PIL pictures one at a time, as torchvision's MNIST does, and then transformed.

    `images`: uint8 of shape (N, 1, 28, 28); `labels`: int64 of shape (N,). `transform` is a function of a picture,
    by default torchvision's `ToTensor` and `Normalize(MEAN, STD)`, which give a float32 tensor of shape (1, 28, 28).
    An item is what it returns, and an int. Raises ImportError where torchvision is missing.
    """

    def __init__(self, images, labels, transform=None):
        from torchvision import transforms
        self.images, self.labels = images, labels
        self.transform = transform or transforms.Compose([transforms.ToTensor(), transforms.Normalize((MEAN,), (STD,))])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.transform(self.picture(i)), int(self.labels[i])

    def picture(self, i):
        """Image i as a PIL picture."""
        from PIL import Image
        return Image.fromarray(self.images[i, 0].numpy())


class BatchedPictures(Pictures):
    """The same pictures, but a whole batch is fetched, stacked and normalized in one go.

    `__getitems__` returns one pair of tensors, so the loader needs `collate_fn=as_it_is`.
    """

    def __getitems__(self, indices):
        import numpy as np
        stacked = np.stack([np.asarray(self.picture(i)) for i in indices])
        return normalized(torch.from_numpy(stacked).unsqueeze(1)), self.labels[indices]


class BatchedTensors(TensorDataset):
    """A TensorDataset that fetches a whole batch at a time; the loader needs `collate_fn=as_it_is`."""

    def __getitems__(self, indices):
        rows = torch.tensor(indices)
        return tuple(tensor.index_select(0, rows) for tensor in self.tensors)


def as_it_is(batch):
    """A collate_fn for data sets whose `__getitems__` returns a batch that is already one."""
    return batch


def normalized(images):
    """Images of bytes as float32 with the mean and deviation that `Pictures` gives them by default."""
    return images.float().div_(255).sub_(MEAN).div_(STD)
