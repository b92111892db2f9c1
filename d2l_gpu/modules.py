"""The classes that a model and its data are built from: HyperParameters, Module, Classifier, DataModule.

Names, signatures and behavior follow d2l.torch ("Object-Oriented Design for Implementation", D2L 3.2), so that
its chapters run with this package; where that code is known to go wrong, ours says so and differs.
"""

import inspect

import torch
from torch import nn
from torch.nn import functional as F

from .progress import ProgressBoard


def add_to_class(Class):
    """A decorator that makes a function a method of `Class`, also of the objects that exist already.

    Returns the function, so that its name keeps a meaning (in d2l.torch it becomes None).
    """
    def wrapper(function):
        setattr(Class, function.__name__, function)
        return function
    return wrapper


class HyperParameters:
    """The base of classes whose `__init__` keeps its arguments."""

    def save_hyperparameters(self, ignore=[]):
        """Store the calling function's local variables as attributes, and as the dictionary `self.hparams`.

        `self`, the names in `ignore` and names that start with "_" are left out. Called again by a subclass,
        `hparams` keeps what the base class stored (in d2l.torch the second call replaces it).
        """
        left_out = {ignore} if isinstance(ignore, str) else set(ignore)
        new = {name: value for name, value in inspect.currentframe().f_back.f_locals.items()
               if value is not self and not name.startswith("_") and name not in left_out}
        self.hparams = {**getattr(self, "hparams", {}), **new}
        for name, value in new.items():
            setattr(self, name, value)


class Module(nn.Module, HyperParameters):
    """The base of all models: what one step computes, and with which optimizer.

    `plot_train_per_epoch`, `plot_valid_per_epoch`: how many points an epoch adds to each curve of `self.board`
    (a `ProgressBoard`); 0 draws none. If an epoch has fewer batches than that, every batch is drawn.

    A leaf tensor that requires a gradient becomes an `nn.Parameter` when it is assigned to an attribute:
    `self.w = torch.zeros(3, requires_grad=True)` is a parameter, found by `parameters()` and moved by `to`.
    d2l.torch leaves it a plain tensor, on the CPU when the model moves to a GPU. The parameter shares the
    tensor's values; give the optimizer `self.w`, or `self.parameters()`, and not the tensor.

    Source: d2l.torch's `Module`.
    """

    def __init__(self, plot_train_per_epoch=2, plot_valid_per_epoch=1):
        super().__init__()
        self.save_hyperparameters()
        self.board = ProgressBoard()

    def __setattr__(self, name, value):
        if isinstance(value, torch.Tensor) and value.requires_grad and value.is_leaf and "_parameters" in self.__dict__:
            value = value if isinstance(value, nn.Parameter) else nn.Parameter(value)
        super().__setattr__(name, value)

    def loss(self, y_hat, y):
        """The loss of one batch, a tensor with one element; a subclass defines it. Raises NotImplementedError if none does."""
        raise NotImplementedError(f"{type(self).__name__} defines no loss(y_hat, y)")

    def forward(self, X):
        """`self.net(X)`, unless a subclass defines its own. Raises NotImplementedError if there is no `net` either."""
        try:
            net = self.net
        except AttributeError:
            raise NotImplementedError(f"{type(self).__name__} needs a network, self.net, or a forward(X)") from None
        return net(X)

    def plot(self, key, value, train):
        """Add a number (a tensor with one element) to the curve `train_key` or `val_key` of the board.

        The number stays on its device: the board fetches all of them together, once an epoch. d2l.torch
        copies each to the CPU, and so waits for the GPU in every batch. Raises RuntimeError before the first fit.
        """
        trainer = getattr(self, "trainer", None)
        if trainer is None:
            raise RuntimeError("plot draws while a Trainer fits the model: this one has no trainer yet")
        if train:
            batches, points = trainer.num_train_batches, self.plot_train_per_epoch
            x = trainer.train_batch_idx / batches
        else:
            batches, points = trainer.num_val_batches, self.plot_valid_per_epoch
            x = trainer.epoch + 1
        if points:
            self.board.xlabel = "epoch"
            self.board.draw(x, value, ("train_" if train else "val_") + key, every_n=int(batches / points))

    def training_step(self, batch):
        """The loss of one batch, whose last element is the labels; also plotted."""
        l = self.loss(self(*batch[:-1]), batch[-1])
        self.plot("loss", l, train=True)
        return l

    def validation_step(self, batch):
        """Plot the loss of one batch of the validation data."""
        self.plot("loss", self.loss(self(*batch[:-1]), batch[-1]), train=False)

    def configure_optimizers(self):
        """Stochastic gradient descent with the learning rate `self.lr`."""
        return torch.optim.SGD(self.parameters(), lr=self.lr)

    def apply_init(self, inputs, init=None):
        """Run the model once on the list `inputs`: lazy layers get their shapes; then apply `init` to the net."""
        self.forward(*inputs)
        if init is not None:
            self.net.apply(init)


class Classifier(Module):
    """A model whose outputs are scores of shape (..., classes) and whose labels are class numbers of shape (...)."""

    def loss(self, Y_hat, Y, averaged=True):
        """The cross-entropy: a tensor with one element, or one value for each label if not `averaged`."""
        if Y_hat.dim() != 2:
            Y_hat, Y = Y_hat.reshape(-1, Y_hat.shape[-1]), Y.reshape(-1)
        return F.cross_entropy(Y_hat, Y, reduction="mean" if averaged else "none")

    def accuracy(self, Y_hat, Y, averaged=True):
        """The share of labels whose class has the largest score, 0 to 1, or a 0 or 1 for each label if not `averaged`.

        A tensor on the device of the inputs: nothing is fetched.
        """
        right = (Y_hat.reshape(-1, Y_hat.shape[-1]).argmax(dim=1) == Y.reshape(-1)).float()
        return right.mean() if averaged else right

    def validation_step(self, batch):
        """Plot the loss and the accuracy of one batch of the validation data."""
        Y_hat = self(*batch[:-1])
        self.plot("loss", self.loss(Y_hat, batch[-1]), train=False)
        self.plot("acc", self.accuracy(Y_hat, batch[-1]), train=False)

    @torch.no_grad()
    def layer_summary(self, X_shape):
        """Print each layer of `self.net` with the shape of its output for an input of shape `X_shape`."""
        device = next((p.device for p in self.parameters()), None)
        X = torch.randn(*X_shape, device=device)
        for layer in self.net:
            X = layer(X)
            print(type(layer).__name__, "output shape:\t", X.shape)


class DataModule(HyperParameters):
    """The base of data sets: `train_dataloader()` and `val_dataloader()`, both made by `get_dataloader(train)`.

    `num_workers` is how many processes prepare batches. The default is 0, none (d2l.torch has 4): data that is
    already in memory is ready sooner than a worker starts. Source: d2l.torch's `DataModule`.
    """

    def __init__(self, root="data", num_workers=0):
        self.save_hyperparameters()

    def get_dataloader(self, train):
        """An iterable with a length, of batches: a `DataLoader`, for example; a subclass defines it.

        Raises NotImplementedError if none does.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no get_dataloader(train)")

    def train_dataloader(self):
        """The training data."""
        return self.get_dataloader(train=True)

    def val_dataloader(self):
        """The validation data, or None."""
        return self.get_dataloader(train=False)

    def get_tensorloader(self, tensors, train, indices=slice(0, None)):
        """A DataLoader over the rows `indices` of the `tensors`, in batches of `self.batch_size`, shuffled if `train`.

        Uses `num_workers` processes and keeps them from one epoch to the next.
        """
        dataset = torch.utils.data.TensorDataset(*(tensor[indices] for tensor in tensors))
        return torch.utils.data.DataLoader(dataset, self.batch_size, shuffle=train, num_workers=self.num_workers,
                                           persistent_workers=self.num_workers > 0)
