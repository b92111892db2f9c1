"""What the text of a message says beside its meaning: sizes, names, numbers. Plain functions of the text."""

import re

_UNITS = {"bytes": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "KB": 2**10, "MB": 2**20, "GB": 2**30}
_SIZE = r"([\d.]+ (?:bytes|[KMG]i?B))"


def _bytes(size):
    number, unit = size.split()
    return float(number) * _UNITS[unit]


def _find(pattern, text):
    found = re.search(pattern, text, re.IGNORECASE)
    return found[1] if found else None


def _out_of_memory(text):
    asked = _find(rf"Tried to allocate {_SIZE}", text)
    total = _find(rf"total capacit?y of {_SIZE}", text) or _find(rf"{_SIZE} total capacity", text)
    free = _find(rf"of which {_SIZE} is free", text) or _find(rf"{_SIZE} free", text)
    limit = _find(rf"max allowed: {_SIZE}", text)
    unused = _find(rf"{_SIZE} is reserved by PyTorch but unallocated", text)
    if asked and limit:
        yield f"It asked for {asked}, and this process may use {limit} in all."
    if not (asked and total and free):
        return
    yield f"It asked for {asked}; the GPU has {total}, of which {free} were free."
    mine = [_find(rf"{_SIZE} is allocated by PyTorch", text), unused] if "is allocated by PyTorch" in text else \
        [_find(rf"{_SIZE} reserved in total by PyTorch", text)]
    mine = sum(map(_bytes, filter(None, mine))) if mine[0] else None
    # In a container the process that failed is listed under a number that is not its own: only PyTorch's part is surely ours.
    if mine is not None and _bytes(total) - _bytes(free) - mine > _bytes(total) / 2:
        held = " and ".join(f"process {number} has {held}"
                            for number, held in re.findall(rf"\bProcess (\d+) has {_SIZE} memory in use", text))
        yield (f"PyTorch holds {mine / 2**30:.2f} GiB of it here, and others most of it{f' ({held})' if held else ''}. A "
               "smaller batch helps little: end that program, if it is one that you left running (nvidia-smi), or take "
               "another GPU.")
    elif _bytes(asked) > _bytes(total):
        yield "That is more than the whole GPU has: look for a shape that is wrong."
    elif _bytes(asked) < _bytes(free) + (_bytes(unused) if unused else 0):
        kept = f" (PyTorch keeps {unused} that no tensor uses)" if unused and _bytes(unused) > _bytes(free) else ""
        yield (f"There was enough for it, but not in one piece{kept}: PYTORCH_ALLOC_CONF=expandable_segments:True, set "
               "before the program starts, may help more than a smaller batch.")


def _host_memory(text):
    count = _find(r"tried to allocate (\d+) bytes", text)
    if count:
        yield f"It asked for {int(count) / 1e9:,.1f} GB of main memory."


def _driver(text):
    version = _find(r"found version (\d{4,5})\b", text)
    if version:
        cuda = int(version) // 1000
        way = ": no build of today serves it, so update it." if cuda < 12 else ": a build for CUDA 12 will do."
        yield f"The driver runs CUDA {cuda}.{int(version) % 1000 // 10} at most" + (way if cuda < 13 else ".")


def _architectures(text):
    card = _find(r"CUDA capability sm_(\d+) is not compatible", text)
    card = int(card) if card else _capability(r"of (?:cuda|compute) capability (?:\(CC\) )?(\d+\.\d+)", text)
    built = _find(r"supports CUDA capabilities ((?:(?:sm|compute)_\d+[af]? ?)+)", text)
    built = [int(number) for number in re.findall(r"sm_(\d+)", built or "")]
    built = built or [round(10 * float(number)) for number in re.findall(r"(\d+\.\d) which supports hardware CC", text)]
    ends = _capability(r"\((\d+\.\d+)\) - \(\d", text), _capability(r"\d\) - \((\d+\.\d+)\)", text)
    built = built or [number for number in ends if number]
    if card and built:
        yield f"The card is sm_{card}, and this torch has code for {', '.join(f'sm_{number}' for number in built)}."
        if card > max(built):
            yield "The card is newer than this torch: take a newer build, the first of the two lines."
        elif card < min(built):
            yield ("The card is older than this torch serves: take the build for CUDA 12, the second of the two lines."
                   if card >= 50 else "No release of torch that this book can use has code for a card of this age.")


def _capability(pattern, text):
    """A compute capability in the text, such as 7.5, as the number 75, or None."""
    found = _find(pattern, text)
    return round(10 * float(found)) if found else None


def _cublas(text):
    if "cublasCreate" in text and "ssert" not in text:
        yield ("cuBLAS could not start, and does not say why: an assert before it is one reason, a GPU whose memory is full "
               "another, a second CUDA library found through LD_LIBRARY_PATH a third.")


def _labels(text):
    label = _find(r"Target (-?\d+) ", text)
    if label:
        yield f"The label is {label}; with n classes, labels go from 0 to n-1."


def _checkpoint(text):
    number, count = _find(r"on CUDA device (\d+)", text), _find(r"device_count\(\) is (\d+)", text)
    if number and count:
        yield f"The file asks for cuda:{number}, and {count} GPU{'s are' if count != '1' else ' is'} visible here."


def _prefix(text):
    prefix = _find(r'unexpected key(?:\(s\))?(?: in state_dict:)? \**"(module|_orig_mod)\.', text)
    if prefix:
        yield f"The names in the file begin with `{prefix}.`, the network's do not."
    elif prefix := _find(r'Missing key\(s\) in state_dict: \**"(module|_orig_mod)\.', text):
        yield f"The network's names begin with `{prefix}.`, those in the file do not."


def _global(text):
    name = _find(r"Unsupported global: GLOBAL ([\w.]+)", text)
    if name:
        yield f"The file asks for `{name}`."


def _pickled(text):
    name = _find(r"local object '([^']+)'", text) or _find(r"Can'?t get attribute '([^']+)'", text)
    if name:
        yield f"What cannot be sent is `{name}`."


def _device_name(text):
    name = _find(r"start of device string: (\S+)", text) or _find(r"Invalid device string: '([^']*)'", text)
    if name:
        yield f"The name was `{name}`."


def _widths(text):
    found = re.search(r"\((\d+)x(\d+) and (\d+)x(\d+)\)", text)
    if found:
        yield f"The input is {found[2]} wide, and the layer takes {found[3]}."


def _workers(text):
    found = re.search(r"create (\d+) worker processes.*?current system is (\d+)", text)
    if found:
        yield f"{found[1]} workers were asked for, {found[2]} are suggested here."


_FACTS = {
    "out-of-memory": _out_of_memory, "host-memory": _host_memory, "driver-too-old": _driver,
    "no-kernel-image": _architectures, "target-out-of-range": _labels, "checkpoint-device": _checkpoint,
    "wrapped-names": _prefix, "weights-only": _global, "unpicklable-worker": _pickled, "unpicklable-file": _pickled,
    "device-name": _device_name, "device-assert": _cublas, "flatten-first": _widths, "too-many-workers": _workers,
}


def facts(name, text):
    """Sentences on what `text`, a message in one line, says about the case of the entry `name`: a list, often empty."""
    return list(_FACTS[name](text)) if name in _FACTS else []
