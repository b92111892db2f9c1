"""Checkers for chapter 04, networks on a GPU."""

import random
import tempfile
from pathlib import Path

import torch
from torch import nn

from ..transfers import count_transfers
from . import Hint, call, exercise, some_devices


@exercise("networks-1")
def device_of(answer):
    with some_devices() as devices:
        places = [torch.device("cpu"), *devices]
        for device in places:
            for module, what in ((nn.Linear(2, 2), "a linear layer"), (nn.Sequential(nn.BatchNorm1d(3)), "batch normalization"),
                                 (_OnlyBuffer(), "a module with a buffer and no parameter")):
                try:
                    got = call(answer, module.to(device))
                except StopIteration:
                    raise Hint(f"{what} has no parameters, so next() raised StopIteration. Look at the buffers too.")
                if got is None:
                    raise Hint("your function returned nothing. Is a return missing?")
                if not isinstance(got, torch.device):
                    raise Hint(f"return a torch.device, not {got!r}.")
                if got != device:
                    raise Hint(f"{what} is on {device}, and you returned {got}.")
        try:
            got = call(answer, nn.ReLU())
        except StopIteration:
            raise Hint("nn.ReLU() has no parameters and no buffers, so next() raised StopIteration. Then it is the CPU.")
        if got != torch.device("cpu"):
            raise Hint(f"nn.ReLU() has no tensors; the exercise asks for the CPU then, and you returned {got}.")
        if len(places) == 1:
            return
        for split, what in ((nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).to(places[1])), "two layers on two devices"),
                            (_split_buffer(places[1]), "a parameter and a buffer on two devices")):
            try:
                got = call(answer, split)
            except ValueError as error:
                if not any(name in str(error) for name in (str(places[1]), repr(places[1]))) or "cpu" not in str(error):
                    raise Hint(f"{what} is a ValueError, rightly, but its message ({str(error)!r}) does not name both devices.")
            else:
                raise Hint(f"for {what} you returned {got}. Raise a ValueError that names the devices.")


class _OnlyBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.ones(2))


def _split_buffer(device):
    module = nn.BatchNorm1d(2)
    module.running_mean = module.running_mean.to(device)
    return module


@exercise("networks-2")
def rescale(answer):
    with some_devices() as devices:
        for device in [*devices[:1], torch.device("cpu")]:
            net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(device)
            parameters, values = list(net.parameters()), [p.detach().cpu().clone() for p in net.parameters()]
            versions = [p._version for p in parameters]
            norm, target = torch.cat([v.flatten() for v in values]).norm().item(), random.uniform(2.0, 9.0)
            with count_transfers() as used:
                try:
                    got = call(answer, net, target)
                except RuntimeError as error:
                    if "leaf Variable" not in str(error):
                        raise
                    raise Hint("autograd refuses to have a parameter changed in place. Write inside torch.no_grad().")
            if not isinstance(got, float):
                raise Hint(f"return the norm before as a Python float, not {type(got).__name__}.")
            if any(p is not q for p, q in zip(net.parameters(), parameters)) or any(not p.requires_grad for p in parameters):
                raise Hint("the parameters are other objects now, or no longer trained. Write into them, in place.")
            now = torch.cat([p.detach().cpu().flatten() for p in parameters]).norm().item()
            each = [p.detach().cpu().norm().item() for p in parameters]
            if all(abs(n - target) < 1e-3 for n in each):
                raise Hint("each parameter has the norm `target` now. It is the norm over all of them together that counts.")
            if abs(now - norm) < 1e-4:
                raise Hint("the parameters have not changed.")
            if abs(now - target) > 1e-3:
                raise Hint(f"the norm over all parameters is {now:.4f} now, and should be {target:.4f}.")
            if any(not torch.allclose(p.detach().cpu(), v * target / norm, atol=1e-5) for p, v in zip(parameters, values)):
                raise Hint("the norm is right, and the parameters are not the old ones times one factor.")
            if abs(got - norm) > 1e-3:
                raise Hint(f"you returned {got:.4f}; the norm before was {norm:.4f}.")
            if [p._version for p in parameters] == versions:
                raise Hint("the numbers are right, and autograd has not noticed the change: you wrote through .data. Write under "
                           "torch.no_grad() instead.")
            if any(p.grad_fn is not None or p.grad is not None for p in parameters):
                raise Hint("the change has become part of the graph. Use torch.no_grad().")
            if used.copies["D2H"] > 1 or used.waits.total() > 1:
                raise Hint(f"{used.copies['D2H']} copies from the device and {used.waits.total()} waits: compute the norm "
                           "on the device and fetch one number.")


@exercise("networks-3")
def standardize(answer):
    if isinstance(answer, nn.Module) or not (isinstance(answer, type) and issubclass(answer, nn.Module)):
        raise Hint(f"pass the class itself, a subclass of nn.Module; this is {answer!r}.")
    mean, std = [1.0, 2.0], [random.choice([0.5, 0.25]), 4.0]
    layer = call(answer, mean, std)
    x = torch.tensor([[3.0, 10.0]])
    want = (x - torch.tensor(mean)) / torch.tensor(std)
    got = layer(x)
    if not isinstance(got, torch.Tensor) or not torch.allclose(got, want):
        raise Hint(f"forward({x.tolist()}) with mean {mean} and std {std} gave {got!r}, expected {want.tolist()}.")
    if got.requires_grad or any(p.requires_grad for p in layer.parameters()):
        raise Hint("the numbers are parameters, so an optimizer would train them. Register them as buffers.")
    if list(layer.parameters()):
        raise Hint("the numbers are parameters without a gradient; an optimizer still gets them. Buffers are for this.")
    with some_devices() as devices:
        for device in devices:
            moved = call(answer, mean, std).to(device)
            try:
                got = moved(x.to(device))
            except RuntimeError as error:
                raise Hint(f"after .to the forward pass failed ({str(error)[:60]} ...): the numbers stayed behind. "
                           "A plain attribute does not move; a buffer does.")
            with count_transfers() as used:
                moved(x_there := x.to(device, copy=True))
            if used.copies["H2D"] > 1 or x_there.device != device:
                raise Hint(f"each forward pass copies to the device again ({used.copies['H2D'] - 1} copies). Let the numbers "
                           "move with the module.")
            if got.device != device or not torch.allclose(got.cpu(), want):
                raise Hint("after .to the result is wrong, or on another device.")
    saved = {value for tensor in layer.state_dict().values() for value in tensor.flatten().tolist()}
    if not {*mean, *std} <= saved:
        raise Hint(f"the state_dict holds {sorted(saved)}: mean and std should be in it. Is `persistent=False` set?")


@exercise("networks-4")
def resume(answer):
    with some_devices() as devices, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.pt"
        saved_on, here = (devices[0], devices[-1]) if devices else (torch.device("cpu"),) * 2
        epoch = random.randrange(3, 90)
        source, optimizer, x = _trained(saved_on)
        torch.save({"model": source.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, path)
        for device in {torch.device("cpu"), here}:
            net, fresh, _ = _trained(device, steps=0)
            parameters, seen = list(net.parameters()), []
            original = torch.load

            def load(*args, **kwargs):
                seen.append((args, kwargs))
                return original(*args, **kwargs)

            torch.load = load
            try:
                got = call(answer, path, net, fresh)
            finally:
                torch.load = original
            if not seen:
                raise Hint("your function did not call torch.load.")
            args, kwargs = seen[-1]
            if kwargs.get("weights_only") is False:
                raise Hint("weights_only=False runs whatever code is in the file. Leave it at True.")
            where = args[1] if len(args) > 1 else kwargs.get("map_location")
            if where is None:
                raise Hint("without map_location the tensors are loaded to the device that the file names.")
            if str(where) != "cpu":
                raise Hint(f"map_location is {where}: there the file's tensors stand beside the network's own, and take as much "
                           "memory again. Load to the CPU; the copy into the parameters does the rest.")
            if got != epoch:
                what = got if isinstance(got, int) else f"a {type(got).__name__}"
                raise Hint(f"you returned {what}; the checkpoint says epoch {epoch}.")
            if any(p is not q for p, q in zip(net.parameters(), parameters)):
                raise Hint("the network has other parameter objects now, and the optimizer still has the old ones.")
            if any(p.device != device for p in net.parameters()):
                raise Hint(f"the network was on {device} and has moved. load_state_dict copies to where it is.")
            if any(not torch.equal(p.detach().cpu(), q.detach().cpu()) for p, q in zip(net.parameters(), source.parameters())):
                raise Hint("the network does not have the weights of the checkpoint.")
            if not fresh.state:
                raise Hint("the optimizer that you were given has no state: load it into this one.")
            net(x.to(device)).sum().backward()
            try:
                fresh.step()
            except RuntimeError as error:
                raise Hint(f"the next step failed: {str(error).splitlines()[0][:90]}")


def _trained(device, steps=2):
    torch.manual_seed(random.randrange(10_000))
    net, x = nn.Linear(3, 2).to(device), torch.ones(4, 3)
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(steps):
        optimizer.zero_grad()
        net(x.to(device)).sum().backward()
        optimizer.step()
    return net, optimizer, x
