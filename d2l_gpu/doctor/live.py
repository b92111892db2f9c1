"""What a live exception shows: which tensors and modules of the reader's own lines are on which device.

It looks at the frames of the traceback, at the names in the expression that failed, and at devices. It runs no code of
the reader, changes nothing, keeps no reference, and never raises: where something cannot be seen it says nothing.
"""

import os
import sys

from .looking import devices, is_library, made_here, operands, own, plain, tensors, variables

_LOSSES = {"cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div",
           "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "multi_margin_loss",
           "gaussian_nll_loss"}


def evidence(error):
    """{name of an entry: [sentences]} from the frames of an exception and of those that it came from; {} if none speak."""
    torch = sys.modules.get("torch")
    found, todo, seen = {}, [error], set()
    while todo and torch is not None:
        error = todo.pop(0)
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        try:
            for name, said in _of_one(error, torch).items():
                found.setdefault(name, said)
            todo += [*getattr(error, "exceptions", ()), error.__cause__, error.__context__]
        except Exception:  # an object that does not like to be looked at
            pass
    return found


def _of_one(error, torch):
    message = " ".join(str(part) for part in error.args)
    out_of_range = "Target " in message or "index out of range in self" in message
    if not (out_of_range or any(word in message for word in ("device", "type (", "backend"))) or "numpy" in message:
        return {}
    scenes, after, entry = [], [], error.__traceback__
    while entry is not None:
        code = entry.tb_frame.f_code
        if is_library(code.co_filename):
            after.append(code)
        else:
            scenes.append(_Scene(entry, torch))
            after = []
        entry = entry.tb_next
    if not scenes:
        return {}
    return _ranges(scenes[-1], torch) if out_of_range else _apart(scenes, after, torch)


class _Scene:
    """One frame of the reader: the operands of what failed in it, the module whose method it is, if any, and the devices
    that its tensors should be on: those of the module, or, if it has none, the GPUs of the arguments."""

    def __init__(self, entry, torch):
        self.entry = entry
        code, names = entry.tb_frame.f_code, variables(entry.tb_frame)
        self.arguments = code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
        first = names.get(self.arguments[0]) if self.arguments else None
        self.module = first if isinstance(first, torch.nn.Module) else None
        self.operands = operands(entry, names, torch)
        self.given = {device for name in self.arguments for device in devices(names.get(name), torch)
                      if not isinstance(names.get(name), torch.nn.Module)}  # the devices of the arguments
        self.home, self.where = devices(self.module, torch), "the parameters of the module are"
        if self.module is not None and not self.home and "cpu" not in self.given:
            self.home, self.where = self.given, "the arguments are"

    def apart(self, torch):
        """Whether the operands are on more than one device."""
        return len({device for o in self.operands for device in devices(o.value, torch)}) > 1


def _apart(scenes, after, torch):
    inner = scenes[-1]
    module, home = inner.module, inner.home
    elsewhere = [o for o in inner.operands if devices(o.value, torch) and home and not devices(o.value, torch) <= home]
    for o in inner.operands:
        kept = _list_holding(module, o.value, torch)
        if kept and inner.apart(torch):
            return {"layers-in-list": [f"`self.{kept}` is no nn.ModuleList, and the layers in it are on "
                                       f"{_names(o.value, torch)}."]}
    for o in elsewhere:
        if o.owner is module and o.attribute in own(module):  # what is registered is stored elsewhere
            return {"plain-attribute": [f"`{o.name}` is on {_names(o.value, torch)} and is neither a parameter nor a "
                                        f"buffer; {inner.where} on {_list(home)}."]}
    if any(code.co_name in _LOSSES or code.co_filename.endswith(os.path.join("modules", "loss.py")) for code in after):
        return _sentence("labels-behind", inner, torch)
    if module is not None:
        made = [o for o in elsewhere if o.owner is None and o.name not in inner.arguments
                and isinstance(o.value, (torch.Tensor, tuple, list)) and not devices(o.value, torch) & inner.given]
        if made:
            return {"made-in-forward": [f"`{made[0].name}` was made on {_names(made[0].value, torch)}; "
                                        f"{inner.where} on {_list(home)}."]}
    elif not after and inner.apart(torch) and not any(isinstance(o.value, torch.nn.Module) for o in inner.operands):
        for o in inner.operands:  # no module takes part: what was made here, by torch.ones and the like
            if o.owner is None and devices(o.value, torch) == {"cpu"} and made_here(inner.entry, o.name):
                return _sentence("made-in-forward", inner, torch)
    for outer in reversed(scenes[:-1]):  # as far out as the tensors are apart: there they have the names that count
        if not outer.apart(torch):
            break
        inner = outer
    layers = {place for o in inner.operands if isinstance(o.value, torch.nn.Module) for place in devices(o.value, torch)}
    return _sentence("network-behind" if layers == {"cpu"} else "batch-behind", inner, torch)


def _sentence(name, scene, torch):
    if not scene.apart(torch):
        return {}
    parts = {}
    for o in sorted(scene.operands, key=lambda o: isinstance(o.value, torch.nn.Module)):
        if devices(o.value, torch):
            what = f"`{o.name}` is on"
            if isinstance(o.value, torch.nn.Module):
                what = f"the {tensors(o.value)[0]} of `{o.name}` are on"
            parts.setdefault(f"{what} {_names(o.value, torch)}")
    text = ", ".join(list(parts)[:4])
    if all(place.startswith("cuda") for o in scene.operands for place in devices(o.value, torch)):
        name = "cards-apart"
    return {name: [text[0].upper() + text[1:] + "."]}


def _ranges(scene, torch):
    """The range of whole-numbered tensors in the expression, where reading costs no copy, and the number of classes."""
    said = []
    for o in scene.operands:
        value = o.value
        if isinstance(value, torch.nn.Embedding):
            said.append(f"`{o.name}` has {value.num_embeddings} rows")
        if not (plain(value, torch) and o.direct):
            continue
        value = getattr(value, "_value", value)  # a simulated GPU's values are in main memory
        if value.device.type != "cpu" or not 0 < value.numel() < 10**8:
            continue
        if not value.dtype.is_floating_point and not value.dtype.is_complex:
            said.append(f"`{o.name}` goes from {value.min().item()} to {value.max().item()}")
        elif value.dim() > 1:
            said.append(f"`{o.name}` has scores for {value.shape[1]} classes")
    return {"target-out-of-range": ["; ".join(said) + "."]} if said else {}


def _list_holding(module, value, torch):
    """The name of a plain list, tuple or dict among a module's attributes that `value` is, or that holds it as a layer."""
    for name, kept in own(module).items():
        items = kept.values() if type(kept) is dict else kept if type(kept) in (list, tuple) else ()
        layers = [item for item in items if isinstance(item, torch.nn.Module)]
        if not name.startswith("_") and layers and (kept is value or any(layer is value for layer in layers)):
            return name
    return None


def _names(value, torch):
    return _list(devices(value, torch))


def _list(places):
    return " and ".join(sorted(places))
