"""Takes a pasted text apart: which lines are messages, and which frame is the reader's own.

It reads Python's tracebacks, IPython's, pytest's and rich's, with colors, with the prefixes of torchrun and of log
files, and the lines that CUDA writes above an error. Nothing here raises, whatever the text.
"""

import re
from dataclasses import dataclass

_COLOR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_QUOTES = str.maketrans({"‘": "'", "’": "'", "“": "\"", "”": "\"", "：": ":", "（": "(", "）": ")"})
_PREFIX = re.compile(r"(\[(rank|default)?\d+\]:? ?|\d+: (?=Traceback|  File|\w+Error)|[EWI]\d{4} [\d:.]+ \d+ \S+\] ?|"
                     r"[\w-]+ +\| |> |E   (?=\s*\S)|\s*│ ?|\s*\| )*")
_FRAME = re.compile(r"""(?P<indent>\s*)
    (?:File\s"(?P<file>[^"]+)",\sline\s\d+ | File\s(?P<new>\S.*?)(?::\d+)?,\sin\s        # Python's and IPython's
    |  (?:Cell|Input)\sIn\s?\[.*?\] | <ipython-input[^>]*> | (?P<old>[~/.\w-]\S*\.py)\sin\s)  # cells, older IPythons
    (?P<rest>.*)""", re.VERBOSE)
_NUMBERED = re.compile(r"(?P<arrow>-+> *|❱ *)?\d+ ?[│ ]?(?P<code>.*)")
_RULES = re.compile(r"[-=~^─╭╰╮╯ ]*|(\w+ +)?(Original )?Traceback \(most recent call last\):?|frame #\d+: .*")
_LIBRARY = re.compile(r"(site|dist)-packages|[\\/]torch[\\/]|[\\/]lib[\\/]python3|<frozen ", re.IGNORECASE)
_DURING = re.compile(r"During handling of the above exception, another exception occurred")
_HEAD = re.compile(r"(?:[A-Za-z_][\w.]*\.)?\w*(?:Error|Exception|Warning|Interrupt|Failed)\b ?:")


@dataclass
class Pasted:
    """The parts of a text.

    `messages`: what is no frame and no code, each in one line, those that say most about the cause first. `own`: the
    innermost frame that is not of a library, with "<deeper>" as its last line if a library went on from there. `whole`:
    all of it, without colors and prefixes. `error`: the line that names the error. `raised`: whether this is an error's
    text at all, or somebody's words.
    """

    messages: list
    own: str
    whole: str
    error: str
    raised: bool


def take_apart(text):
    """A `Pasted` of any text; of a long one, of its end."""
    clean = _COLOR.sub("", text[-300_000:].replace("\r\n", "\n").replace("\r", "\n")).translate(_QUOTES)
    lines = [line[_PREFIX.match(line).end():].rstrip().removesuffix("│").rstrip() for line in clean.split("\n")]
    arrows = any(_arrow(line) for line in lines)
    blocks, chunk, own, frame, deeper = [[]], [], [], None, False

    def close():
        if chunk:
            blocks[-1].append(list(chunk))
            chunk.clear()

    for line in lines:
        started = _FRAME.match(line)
        if started and (started["file"] or started["new"] or started["old"] or "line" in line or " in " in line):
            close()
            path = started["file"] or started["new"] or started["old"] or ""
            frame = [started["rest"] or line]
            indent = len(started["indent"])
            if not _LIBRARY.search(path):
                own, deeper = frame, False
            else:
                deeper = True
        elif frame and arrows and (numbered := _NUMBERED.fullmatch(line.strip())):
            if frame[-1:] != ["<failed>"]:
                frame += [numbered["code"]] + ["<failed>"] * bool(numbered["arrow"])
        elif frame and not arrows and line[:1].isspace() and len(line) - len(line.lstrip()) > indent:
            if line.strip(" ~^"):
                frame.append(line)
        elif _DURING.search(line):
            close()
            blocks.append([])
        elif not line or _RULES.fullmatch(line.strip()):
            if line:
                close()
        else:
            frame = None
            chunk.append(line)
    close()
    heard = [chunk for block in reversed(blocks) for chunk in block]
    said = [line for block in blocks for chunk in block for line in chunk]
    heads = [line.strip() for line in said if _HEAD.match(line.strip()[:200])]
    error = heads[-1] if heads else next((line.strip() for line in said if line.strip()), "")
    return Pasted([" ".join(" ".join(chunk).split()) for chunk in heard],
                  "\n".join([line for line in own if line != "<failed>"] + ["<deeper>"] * deeper), "\n".join(lines), error,
                  bool(heads) or "Traceback (most recent call last)" in clean)


def _arrow(line):
    numbered = _NUMBERED.fullmatch(line.strip())
    return bool(numbered and numbered["arrow"])
