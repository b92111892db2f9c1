"""Checkers for chapter 03, copying."""

import random

import torch

from ..transfers import count_transfers
from . import Hint, call, exercise, some_devices


@exercise("copying-1")
def be_there(answer):
    with some_devices() as devices:
        places = [torch.device("cpu"), *devices]
        for source in places:
            for target in places:
                x = torch.arange(4.0, device=source)
                got = call(answer, x, target)
                if got is None:
                    raise Hint("your function returned nothing. Is a return missing?")
                if not isinstance(got, torch.Tensor):
                    raise Hint(f"your function returned {got!r}. Return a tensor.")
                if got.device != target:
                    raise Hint(f"x was on {source}, the result should be on {target} and is on {got.device}. " +
                               ("x.to(device) does not change x: return what it returns." if got is x else
                                "The argument `device` says where it should be."))
                if source == target and got is not x:
                    raise Hint(f"x was on {source} already and you made a copy. Return x itself; .to does.")
                if got.tolist() != [0, 1, 2, 3]:
                    raise Hint("the numbers have changed on the way.")


@exercise("copying-2")
def as_floats(answer):
    n = random.randrange(20, 40)
    with some_devices() as devices:
        for device in [*devices[:1], torch.device("cpu")]:
            values = [k / 4 for k in range(n)]
            losses = [torch.tensor(value, device=device, requires_grad=True) for value in values]
            with count_transfers() as used:
                got = call(answer, losses)
            if not isinstance(got, list) or not all(type(value) is float for value in got):
                raise Hint("return a list of Python floats: no tensors in it, and no tensor itself.")
            if got != values:
                raise Hint("these are not the losses in their order.")
            if used.copies["D2H"] == n:
                raise Hint(f"for {n} losses you made {n} copies, each with a wait. Put the losses together on the device "
                           "first, and fetch once.")
            if used.copies["D2H"] > 1 or used.waits.total() > 1:
                raise Hint(f"for {n} losses you made {used.copies['D2H']} copies and {used.waits.total()} waits: one of each "
                           "is enough.")
    if call(answer, []) != []:
        raise Hint("the list may be empty: then return an empty list.")


@exercise("copying-3")
def project(answer):
    n = random.randrange(4, 8)
    with some_devices() as devices:
        device = [*devices, torch.device("cpu")][0]
        batches = [torch.randn(3, 5) for _ in range(n)]
        table = torch.randn(5, 2)
        with count_transfers() as used:
            got = call(answer, list(batches), table, device)
        if not isinstance(got, list) or len(got) != n:
            raise Hint(f"return a list (not a {type(got).__name__}) with one product for each of the {n} batches."
                       if not isinstance(got, list) else f"{len(got)} products for {n} batches: return one for each.")
        for product, batch in zip(got, batches):
            if product.device != device:
                raise Hint(f"the products should be on {device}; yours are on {product.device}.")
            if not torch.allclose(product.cpu(), batch @ table, atol=1e-4):
                raise Hint("a product is wrong: each should be batch @ table.")
        if device.type == "cpu":
            return
        if used.copies["D2H"]:
            raise Hint(f"you copied something back {used.copies['D2H']} times. The products stay on the device.")
        moved = n * 3 * 5 * 4
        if used.bytes["H2D"] == n * 3 * 2 * 4:
            raise Hint("you moved the products: they were computed on the CPU. Move the batches and compute on the device.")
        if used.copies["H2D"] == 2 * n:
            raise Hint(f"{2 * n} copies for {n} batches: the table moved every time. It does not change: move it before the loop.")
        if used.copies["H2D"] < n + 1 and used.bytes["H2D"] >= moved:
            raise Hint(f"{used.copies['H2D']} copies: you moved all batches together. Here each moves when its turn comes, since "
                       "they may not fit at once.")
        if used.copies["H2D"] != n + 1:
            raise Hint(f"{used.copies['H2D']} copies for {n} batches: {n + 1} are enough.")


@exercise("copying-4")
def move(answer):
    with some_devices() as devices:
        device = [*devices, torch.device("cpu")][0]
        x, there = torch.ones(2, 3), torch.zeros(2, device=device)
        for batch in (x, [x, there], (x, there), {"x": x, "y": there}):
            got = call(answer, batch, device)
            if got is None and batch is not None:
                raise Hint(f"for a {type(batch).__name__} your function returned nothing.")
            if not isinstance(got, torch.Tensor if batch is x else type(batch)):
                raise Hint(f"a {type(batch).__name__} came back as a {type(got).__name__}. Keep the structure.")
        nested = {"image": x, "box": (there, [x, {"deep": x}]), "name": "cat.png", "size": 3, "none": None}
        kept = dict(nested)
        try:
            got = call(answer, nested, device)
        except AttributeError as error:
            if any(f"'{kind}' object" in str(error) for kind in ("dict", "list", "tuple")):
                raise Hint(f"{error}: batches nest. Do the same for what is inside a list, tuple or dict.")
            raise Hint(f"{error}: a batch holds more than tensors, such as names and numbers. Leave them alone.")
        if any(nested[key] is not kept[key] for key in kept) or nested["box"][1][0] is not x:
            raise Hint("the original batch has changed. Make a new structure.")
        if not isinstance(got, dict) or list(got) != list(nested):
            raise Hint(f"a dict came back with other keys: {list(got) if isinstance(got, dict) else got!r}.")
        if got["name"] != "cat.png" or got["size"] != 3 or got["none"] is not None:
            raise Hint("what is not a tensor should be left alone, and came back changed.")
        box = got["box"]
        if not isinstance(box, tuple) or not isinstance(box[1], list) or not isinstance(box[1][1], dict):
            raise Hint("inside the dict, the tuple, list or dict lost its type. Do the same at every depth.")
        if box[0] is not there:
            raise Hint("a tensor that was on the device already is now another object. .to(device) returns the same one.")
        for name, tensor in (("image", got["image"]), ("list in box", box[1][0]), ("dict in box", box[1][1]["deep"])):
            if tensor.device != device:
                raise Hint(f"the tensor under {name} is still on {tensor.device}. Go into every list, tuple and dict.")
