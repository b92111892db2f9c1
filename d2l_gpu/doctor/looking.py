"""Looks at frames, tensors and modules without touching them: no code of theirs or of the reader runs, nothing changes."""

import dis
import inspect
import itertools
import os
import sys
import sysconfig
from collections import namedtuple

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARIES = tuple(sysconfig.get_paths()[name] + os.sep for name in ("stdlib", "platstdlib"))
#: What a call of one of these methods gives is not where the tensor is, or is no tensor.
_MOVES = {"to", "cuda", "cpu", "item", "tolist", "numpy", "shape", "size", "dtype", "device"}
_MAKERS = {"zeros", "ones", "full", "empty", "eye", "arange", "linspace", "rand", "randn", "randint", "randperm", "tensor"}
#: One name in an expression. `owner.attribute` is the value, or both are None; `direct`: it takes part itself, and not the
#: result of a call on it.
Operand = namedtuple("Operand", "name value owner attribute direct")


def is_library(path):
    """Whether a file belongs to Python, to an installed package, or to this one: not the reader's."""
    return (path.startswith((_HERE, *_LIBRARIES)) or "site-packages" in path or "dist-packages" in path
            or path.startswith("<frozen"))


def variables(frame):
    """A frame's variables by name. Before Python 3.13, asking for them leaves a copy in the frame, which would keep tensors
    alive as long as the frame: it is emptied, unless somebody else has it too."""
    local = frame.f_locals
    found = {**frame.f_globals, **local}
    if (sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED and frame.f_trace is None
            and sys.getrefcount(local) <= 3):  # the frame's, ours, and the argument's
        local.clear()
    return found


def operands(entry, names, torch):
    """What the expression that failed names, from the bytecode: no source is needed, and nothing is evaluated."""
    code = entry.tb_frame.f_code
    where = list(code.co_positions())[entry.tb_lasti // 2]
    if None in where:
        return []
    steps, whole = _steps(code), _span(dis.Positions(*where))
    steps = [step for step in steps if step[2] and whole[0] <= step[2][0] and step[2][1] <= whole[1]]
    calls = [span for kind, _, span in steps if kind.startswith("CALL") and span != whole]
    found, last = [], None
    for kind, argument, span in steps:
        if kind.startswith(("LOAD_ATTR", "LOAD_METHOD")) and last is not None:
            found.pop()
            base, last = last, _attribute(last, argument, torch)
            if last is not None:
                found.append(last)
            elif argument not in _MOVES and isinstance(base.value, torch.Tensor):
                found.append(base._replace(direct=False))  # X.reshape(...) is where X is; y.to(device) is not
        elif kind.startswith(("LOAD_FAST", "LOAD_NAME", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_CLASSDEREF")):
            loaded = argument if isinstance(argument, tuple) else (argument,)
            direct = not any(call[0] <= span[0] and span[1] <= call[1] for call in calls)
            found += [Operand(name, names[name], None, None, direct) for name in loaded if name in names]
            last = found[-1] if loaded[-1] in names else None
        elif kind not in ("CACHE", "PUSH_NULL"):
            last = None
    return found


def made_here(entry, name):
    """Whether the last assignment to `name` above what failed calls torch.ones, or another that makes a tensor of numbers."""
    made = maker = stored = False
    for step in dis.get_instructions(entry.tb_frame.f_code):
        if step.offset >= entry.tb_lasti:
            break
        storing = step.opname.startswith("STORE_")
        if stored and not storing:  # the next statement
            maker = False
        stored = storing
        if storing:
            targets = step.argval if step.opname == "STORE_FAST_STORE_FAST" else (step.argval,)
            if name in (targets[0][:1] if isinstance(targets[0], tuple) else targets):  # STORE_FAST_LOAD_FAST: the first
                made = maker
        elif step.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")) and step.argval in _MAKERS:
            maker = True
    return made


def _steps(code):
    """Kind, argument and place of each instruction. From Python 3.13 on, a store and the load after it may be one that has
    the place of the store; the load belongs to what follows."""
    for step, following in itertools.pairwise(dis.get_instructions(code)):
        if step.opname == "STORE_FAST_LOAD_FAST":
            yield "LOAD_FAST", step.argval[1], _span(following.positions)
        else:
            yield step.opname, step.argval, _span(step.positions)


def _span(at):
    """Where an instruction's expression begins and ends in the source, or None."""
    return None if at is None or None in at else ((at.lineno, at.col_offset), (at.end_lineno, at.end_col_offset))


def _attribute(operand, name, torch):
    """An operand's attribute, from dictionaries alone: a property or __getattr__ would be the reader's code."""
    places = [own(operand.value)]
    if isinstance(operand.value, torch.nn.Module):
        places += [places[0].get(kind, {}) for kind in ("_parameters", "_buffers", "_modules")]
    for place in places:
        if name in place:
            return Operand(f"{operand.name}.{name}", place[name], operand.value, name, operand.direct)
    return None


def own(value):
    """An object's own attributes, as they are stored; {} if it has no dictionary."""
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}


def plain(value, torch):
    """Whether this is a tensor of torch's own kind or of the simulator: of others, `.device` may be the reader's code."""
    return isinstance(value, torch.Tensor) and (type(value).__module__.split(".")[0] in ("torch", "d2l_gpu"))


def devices(value, torch):
    """The devices of a tensor, of what a tuple, list or dict holds, or of a module's parameters or buffers, as a set."""
    if plain(value, torch):
        return set() if value.dim() == 0 and value.device.type == "cpu" else {str(value.device)}
    if type(value) in (tuple, list, dict) and len(value) < 100:
        items = value.values() if type(value) is dict else value
        return {device for item in items for device in devices(item, torch)}
    if isinstance(value, torch.nn.Module):
        return {str(t.device) for t in tensors(value)[1] if plain(t, torch)}
    return set()


def tensors(module):
    """("parameters", all of a module and its submodules), or ("buffers", those) if it has none; calls no method of it."""
    modules, todo = {}, [module]
    while todo:
        one = todo.pop()
        if one is not None and id(one) not in modules:
            modules[id(one)] = own(one)
            todo += own(one).get("_modules", {}).values()
    for kind in ("parameters", "buffers"):
        found = [t for one in modules.values() for t in one.get(f"_{kind}", {}).values() if t is not None]
        if found:
            break
    return kind, found
