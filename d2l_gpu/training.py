"""The training loop: `Trainer(max_epochs).fit(model, data)`, on the CPU or on a GPU.

`model` is a `Module`: it computes the loss of a batch and names an optimizer. `data` is a `DataModule`: it gives
the batches to train on and those to validate with. Names and signatures follow d2l.torch ("Object-Oriented
Design for Implementation", D2L 3.2, and "GPUs", D2L 6.7).
"""

import copy
import dataclasses
import sys
import time
from collections.abc import MutableMapping

import torch
from torch.nn.utils.rnn import PackedSequence

from . import devices
from .interrupts import Updating
from .modules import Classifier, DataModule, HyperParameters, Module, add_to_class
from .progress import _in_notebook

__all__ = ["Classifier", "DataModule", "HyperParameters", "Module", "Trainer", "add_to_class", "to"]

BAR_SECONDS = 3  # a fit that takes longer shows a progress bar


def to(x, device):
    """`x` on `device`: a tensor, a module, or tensors in tuples, lists, dictionaries, named tuples, dataclasses.

    Containers may be nested and come back as new ones of the same type; what is no tensor stays as it is. The host
    does not wait for the copy of a tensor in pinned memory, and waits for every other. Source: d2l.torch's `to`.
    """
    if isinstance(x, (torch.Tensor, PackedSequence)):
        return x.to(device, non_blocking=x.is_pinned())
    if hasattr(x, "to"):
        return x.to(device)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(to(item, device) for item in x))
    if isinstance(x, (list, tuple)):
        return type(x)(to(item, device) for item in x)
    if isinstance(x, MutableMapping):
        moved = copy.copy(x)
        moved.update({key: to(value, device) for key, value in x.items()})
        return moved
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        moved = copy.copy(x)
        for field in dataclasses.fields(x):
            object.__setattr__(moved, field.name, to(getattr(x, field.name), device))  # frozen ones too
        return moved
    return x


class Trainer(HyperParameters):
    """Trains a model for `max_epochs` passes over the data.

    `num_gpus` GPUs are asked for; the Trainer uses one, the first. `self.gpus` lists those that are there, and is
    empty on the CPU. Fewer than asked, or more than are used, or a GPU that is not asked for, is said in one line, once.
    `gradient_clip_val`, if above 0, is the largest norm that the gradient of all parameters together may have.

    During a fit: `model`, `optim`, `epoch` (from 0), `train_batch_idx` and `val_batch_idx` (batches done, over all
    epochs), `num_train_batches` and `num_val_batches` (in one epoch).

    Validation runs under `evaluation`, torch.inference_mode. For a model that keeps tensors from it and trains
    with them, set `trainer.evaluation = torch.no_grad`.

    Raises ValueError if a number is negative. Source: d2l.torch's `Trainer`.
    """

    evaluation = torch.inference_mode
    _interrupted = None  # the model whose fit was interrupted
    _bar, _updating = None, Updating()

    def __init__(self, max_epochs, num_gpus=0, gradient_clip_val=0):
        self.save_hyperparameters()
        for name in ("max_epochs", "num_gpus", "gradient_clip_val"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is at least 0, not {getattr(self, name)}")
        self.gpus = _available(num_gpus)

    def prepare_data(self, data):
        """Take the batches from `data`. Raises ValueError if there is none to train on."""
        self.train_dataloader = data.train_dataloader()
        self.val_dataloader = data.val_dataloader()
        self.num_train_batches = len(self.train_dataloader)
        self.num_val_batches = len(self.val_dataloader) if self.val_dataloader is not None else 0
        if self.num_train_batches == 0:
            raise ValueError("the training data has no batch: fewer examples than a batch, with drop_last=True?")

    def prepare_model(self, model):
        """Connect `model` with this trainer and its board, and move it to the first GPU, if there is one."""
        model.trainer = self
        model.board.xlim = [0, self.max_epochs]
        if self.gpus:
            model.to(self.gpus[0])
        self.model = model

    def prepare_batch(self, batch):
        """`batch`, its tensors moved to the first GPU, if there is one; it may be nested (see `to`)."""
        return to(batch, self.gpus[0]) if self.gpus else batch

    def fit(self, model, data):
        """Train `model` on `data`.

        The losses stay on the device; the board fetches them once an epoch. A fit of more than a few seconds
        shows a progress bar if tqdm is installed. Afterwards the model is in evaluation mode, or in training mode
        if there was nothing to validate.

        Interrupted (Ctrl-C, or a notebook's stop button), a fit ends with KeyboardInterrupt between two updates of
        the weights, and the model is in the mode it was in before. Called again with the same model, the trainer
        goes on with the same optimizer, from the beginning of the epoch that was interrupted.

        An error keeps its type and traceback, and has a note that names the epoch and the batch, counted from 1.
        Raises RuntimeError if the optimizer holds a tensor that did not move to the GPU with the model.
        """
        goes_on = self._interrupted is model
        first = self.epoch if goes_on else 0
        modes = [(module, module.training) for module in model.modules()]
        self.prepare_data(data)
        self.prepare_model(model)
        if goes_on:
            print(f"Trainer: going on with epoch {first + 1} of {self.max_epochs}")
        else:
            self.optim = model.configure_optimizers()
            _check_placement(self.optim, self.gpus)
        model.board.clear(after=first if first else None)
        self.epoch = first
        self.train_batch_idx, self.val_batch_idx = first * self.num_train_batches, first * self.num_val_batches
        self._interrupted, self._bar = None, _ProgressBar(self.max_epochs * self.num_train_batches)
        self._updating = Updating()
        self._updating.watch()
        try:
            for self.epoch in range(first, self.max_epochs):
                self.fit_epoch()
                self._bar.update(self.train_batch_idx)
                model.board.flush()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                self._interrupted = model
            error.add_note(self._position())
            model.board.raw_points.clear()  # batches of an epoch that is not complete
            for module, mode in modes:
                module.training = mode
            try:
                model.board.finish()
            except Exception:  # a GPU that has failed gives nothing back; its error is the one to see
                model.board._pending.clear()
            raise
        finally:
            self._updating.unwatch()
            self._bar.close()
            self._bar, self._updating = None, Updating()
        model.board.finish()

    def fit_epoch(self):
        """One pass over the training data and, if there is any, one over the validation data."""
        self.model.train()
        for batch in self.train_dataloader:
            loss = self.model.training_step(self.prepare_batch(batch))
            self.optim.zero_grad()
            loss.backward()
            if self.gradient_clip_val > 0:
                self.clip_gradients(self.gradient_clip_val, self.model)
            with torch.no_grad(), self._updating:
                self.optim.step()
            self.train_batch_idx += 1
            if self._bar is not None:
                self._bar.update(self.train_batch_idx)
        if self.val_dataloader is None:
            return
        self.model.eval()
        for batch in self.val_dataloader:
            batch = self.prepare_batch(batch)
            with self.evaluation():
                self.model.validation_step(batch)
            self.val_batch_idx += 1

    def clip_gradients(self, grad_clip_val, model):
        """Scale the gradients so that their norm, all together, is at most `grad_clip_val`; the host does not wait."""
        torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip_val)

    def _position(self):
        kind, done, batches = (("training", self.train_batch_idx, self.num_train_batches) if self.model.training else
                               ("validation", self.val_batch_idx, self.num_val_batches))
        batch = min(done - self.epoch * batches + 1, batches)
        return f"in epoch {self.epoch + 1} of {self.max_epochs}, {kind} batch {batch} of {batches}"


def _available(asked):
    """The first `asked` GPUs, as far as they exist; what that leaves unfulfilled is said once."""
    found = [devices.gpu(i) for i in range(min(asked, devices.num_gpus()))]
    said = []
    if not asked and (devices.num_gpus() or devices._has_mps()) and not devices._simulation():
        said.append("training on the CPU; the GPU that is here is not used, num_gpus=1 would use it")
    if asked and not found and devices._has_mps():
        found = [torch.device("mps")]
        said.append("no CUDA GPU here, training on Apple's GPU (mps)")
    elif asked and not found:
        said.append("no GPU here, training on the CPU")
    elif len(found) < asked:
        said.append(f"only {devices._count(len(found), 'GPU')} here")
    if len(found) > 1:
        said.append(f"the Trainer uses the first, {found[0]}; training on several takes DistributedDataParallel")
    if said:
        devices._say_once(f"Trainer(num_gpus={asked}): {'; '.join(said)}")
    return found


def _check_placement(optimizer, gpus):
    for group in getattr(optimizer, "param_groups", []) if gpus else []:
        for p in group["params"]:
            if p.device.type != gpus[0].type:
                raise RuntimeError(
                    f"the optimizer holds a tensor of shape {tuple(p.shape)} on {p.device}, but the model trains on "
                    f"{gpus[0]}: model.to moves only registered parameters. Assign it to an attribute of the model; "
                    "put several in an nn.ParameterList, not in a list")


class _ProgressBar:
    """Batches done of `total`, shown by tqdm after BAR_SECONDS, where there is tqdm and someone to see it."""

    def __init__(self, total):
        self.total, self.bar = total, None
        self.opens_at = time.monotonic() + BAR_SECONDS

    def update(self, done):
        if self.bar is None and time.monotonic() >= self.opens_at:
            self._open(done)
        if self.bar is not None:
            self.bar.update(done - self.bar.n)

    def _open(self, done):
        try:
            from tqdm import tqdm
        except ImportError:
            self.opens_at = float("inf")
            return
        options = {} if _in_notebook() or sys.stderr.isatty() else {"disable": True}  # else TQDM_DISABLE decides
        self.bar = tqdm(total=self.total, initial=done, desc="training", unit="batch", leave=False, **options)

    def close(self):
        if self.bar is not None:
            self.bar.close()
