"""`explain`: from an exception, or the text of one, to its cause, a fix of a few lines and the chapter that tells more.

The knowledge is in knowledge.py, the reading of pasted text in pasted.py, what a live exception shows in live.py. It all
works without torch, on text alone.
"""

import re
import sys
import textwrap
import traceback
from dataclasses import dataclass, field

from .facts import facts
from .knowledge import entries
from .live import evidence
from .pasted import take_apart

_KINDS = ("error", "warning", "silent")
_UNKNOWN = """\
This is not in the table of errors. The way to find the cause of any:
  1. In the traceback, find the last line that is your own code.
  2. Run that step on the CPU. Its messages are exact; a GPU's may come late.
  3. If only the GPU fails, let Python wait for each kernel, so that the line
     in the traceback is the one that failed (in a notebook, restart first).
  4. Make the input as small as it can be and still fail.

    net.cpu()(X[:2].cpu())                         # steps 2 and 4
    # step 3, in a terminal: CUDA_LAUNCH_BLOCKING=1 python train.py"""
_UNKNOWN_AMONG_SEVERAL = """\
This is not in the table of errors. Where several processes work together, one
that fails takes the others along, and they complain of it, each in its words:
  1. Find the first traceback of any process: what the others say (a timeout, a
     closed connection, ChildFailedError) follows from it.
  2. Start a single process. If it fails alone, it is an error like any other.
  3. If only several fail, let each say what it does, and with whom.
  4. "gloo" in place of "nccl" works on any machine, and slowly: if it helps,
     look at what joins the GPUs, if not, at the program.

    # step 2, in a terminal: torchrun --standalone --nproc-per-node=1 train.py
    # step 3: TORCH_DISTRIBUTED_DEBUG=DETAIL NCCL_DEBUG=INFO torchrun ..."""
_SEVERAL = re.compile(r"nccl|\bgloo\b|\bc10d\b|torch[./\\]distributed|torchrun|\brank ?\d|\b(server|client) socket has failed",
                      re.IGNORECASE)
_NOTHING = 'There is no exception in this session yet. Pass one, or a text: d2l.explain("...")'


@dataclass
class Explanation:
    """What `explain` found; printing it gives the likeliest cause in full, and the others in a line each.

    `error` is the line that names the error, `causes` a list of entries, the likeliest first (empty if the error is not
    known), `notes` a dict from an entry's name to sentences on this very case, `seen` whether the first cause was seen in
    the frames of a live exception; the others are then not printed. `several`: whether several processes are at work.
    """

    error: str
    causes: list
    notes: dict = field(default_factory=dict)
    seen: bool = False
    several: bool = False

    def __str__(self):
        if not self.causes:
            head = [_short(self.error), ""] if self.error else []
            way = _UNKNOWN_AMONG_SEVERAL if self.several else _UNKNOWN
            return "\n".join([*head, way if self.error else _NOTHING])
        first, *others = self.causes
        here = [textwrap.fill(note, 76, initial_indent="  ", subsequent_indent="  ")
                for note in self.notes.get(first.name, ())]
        title, rest = str(first).split("\n", 1)
        lines = [_short(self.error), "", title, *here, rest]
        if others and not self.seen:
            lines += ["", "It may also be, less likely:"]
            lines += [textwrap.fill(f"- {entry.title}" + (f" ({entry.more})" if entry.section else ""), 78,
                                    subsequent_indent="  ") for entry in others[:4]]
        return "\n".join(lines)

    __repr__ = __str__


def explain(what=None):
    """Name the cause of an error, show the fix as a few lines of code, and the chapter that tells more.

    `what` is an exception, or text: a message, a whole traceback as pasted, or a symptom in your words ("memory grows
    every step"). Without it, the last exception of this session is taken. Returns an `Explanation`, which prints as plain
    text. Of several possible causes the likeliest comes first; a live exception says more than its text, because the
    tensors and modules in its frames can be looked at (only that: nothing is run or changed). Raises TypeError for
    anything else, ValueError for a text without a word.
    """
    if what is None:
        what = sys.exception() or getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        if what is None:
            return Explanation("", [])
    if isinstance(what, BaseException):
        text = "".join(traceback.format_exception(what, limit=-40))
        pasted = take_apart(text)
        seen = evidence(what)
        pasted.error = f"{type(what).__name__}: {_line(what)}".rstrip(": ")
    elif isinstance(what, str):
        if not what.strip():
            raise ValueError("explain got a text without a word: pass the message, or the whole traceback")
        text, pasted, seen = what, take_apart(what), {}
    else:
        kind = what.__name__ if isinstance(what, type) else type(what).__name__
        hint = (f"catch one first: try: ... except {kind} as error: d2l.explain(error)"
                if isinstance(what, type) and issubclass(what, BaseException) else
                "if it holds a message, pass that: d2l.explain(str(...))")
        raise TypeError(f"explain takes an exception or a text, not {kind}; {hint}")
    causes = _rank(pasted, seen)
    everything = " ".join(pasted.messages)
    notes = {entry.name: facts(entry.name, everything) + seen.get(entry.name, []) for entry in causes}
    return Explanation(pasted.error, causes, {name: said for name, said in notes.items() if said},
                       bool(causes) and causes[0].name in seen, bool(_SEVERAL.search(text)))


def _rank(pasted, seen):
    """The entries that match, the likeliest first: errors before warnings, then by where the message stands, then by what
    was seen in live frames or by clues, then by their order in the table."""
    table = {entry.name: entry for entry in entries()}
    whole = " ".join(pasted.whole.split())
    found = []
    for order, entry in enumerate(entries()):
        as_kind, place = entry.kind, _place(entry, pasted.messages, whole)
        if entry.kind == "silent" and pasted.raised:
            place = None
        if place is None and entry.like:
            as_kind, place = table[entry.like].kind, _place(table[entry.like], pasted.messages, whole)
        if place is None:
            continue
        score = 100 * (entry.name in seen) + sum(bool(re.search(clue, whole, re.IGNORECASE)) for clue in entry.clues)
        score += sum(bool(re.search(clue, pasted.own)) for clue in entry.own)
        found.append(((_KINDS.index(as_kind), place, -score, order), entry))
    if any(key[0] < 2 for key, _ in found):
        found = [(key, entry) for key, entry in found if key[0] < 2]
    return [entry for _, entry in sorted(found, key=lambda pair: pair[0])]


def _place(entry, messages, whole):
    """The number of the first message that one of the entry's patterns fits, or None."""
    for place, message in enumerate(messages):
        if any(re.search(pattern, message, re.IGNORECASE) for pattern in entry.patterns):
            return place
    return 0 if any(re.search(pattern, whole, re.IGNORECASE) for pattern in entry.across) else None


def _line(error):
    """The first line of an exception's message, also of one whose __str__ fails."""
    try:
        return str(error).strip().split("\n")[0]
    except Exception:
        return ""


def _short(text, width=78, lines=3):
    """Text wrapped to a few lines, cut with dots."""
    wrapped = textwrap.wrap(" ".join(text.split()), width)
    if len(wrapped) > lines:
        wrapped = [*wrapped[:lines - 1], wrapped[lines - 1][:width - 4].rstrip() + " ..."]
    return "\n".join(wrapped)
