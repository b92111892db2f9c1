"""What this package knows about errors: one entry each, read from knowledge/*.toml. Needs the standard library alone.

A file has a `topic` and a list of [[error]] with these fields:

    name      a slug                          title   what is wrong, in a line
    message   what a reader sees, shortened   kind    "error" (default), "warning", or "silent": no message at all
    patterns  regular expressions for the message; one of them is enough. White space is one blank, case does not count
    across    patterns that look at the whole pasted text, file names and code included
    like      the name of an entry whose patterns count for this one too
    clues     patterns in the whole text that raise this entry among those that match
    own       the same, in the innermost frame that is the reader's: its heading and code, the line that failed last, and
              below it "<deeper>" if the error came up in a library that the line called
    cause     one to three sentences          fix     a few lines of code
    section   "chapter#heading", or nothing where no chapter tells more
    texts     [source, text] pairs, real ones, that must find this entry first; a source owner/name#number is a thread
              on GitHub. Paths, names of users and process numbers in them are made up.
"""

import difflib
import functools
import html
import re
import textwrap
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent / "knowledge"
_KIND = re.compile(r"^(\S*: )??([\w.]*(Error|Warning|Exception)|what\(\)): *")   # what comes before a message
_TRACE = re.compile(r"File |raise |\^+$")
TOPICS = ("placement", "machine", "values", "memory", "loader", "numbers", "time", "several")


@dataclass(frozen=True)
class Entry:
    """One error: what it looks like, where it comes from, the way out. Printing it gives the cause and the fix.

    `title` says what is wrong, `message` is what PyTorch says, `cause` and `fix` are a sentence or two and a few lines of
    code. `topic` is one of `TOPICS`, `kind` "error", "warning", or "silent" where nothing is said, and `section` the
    section of the book that tells more, as "chapter#Heading".
    """

    name: str
    title: str
    message: str
    topic: str
    cause: str
    fix: str
    kind: str = "error"
    patterns: tuple = ()
    across: tuple = ()
    like: str = ""
    clues: tuple = ()
    own: tuple = ()
    section: str = ""
    texts: tuple = field(default=(), repr=False)

    @property
    def link(self):
        """The address of the section that tells more, relative to the folder of the chapters; "" if there is none."""
        chapter, _, heading = self.section.partition("#")
        return f"{chapter}.ipynb#{anchor(heading)}" if chapter else ""

    @property
    def more(self):
        """The section in words: 'chapter 06, "Out of memory"', or ""."""
        chapter, _, heading = self.section.partition("#")
        return f'chapter {chapter[:2]}, "{heading}"' if chapter else ""

    @property
    def also(self):
        """Up to two other wordings of the message, from `texts`: short ones, as unlike it and each other as there are."""
        known, found = [self.message], []
        for line in "\n".join(text for _, text in self.texts).split("\n"):
            said = "" if _TRACE.match(line.strip()) else _KIND.sub("", line.strip())
            cuts = [said[:end.start()] for end in re.finditer(r"\.? *$|\. |, | \(", said)]
            fit = next((cut for cut in cuts if any(re.search(p, cut, re.IGNORECASE) for p in self.patterns)), "")
            if 0 < len(fit) <= 80 and not any(_alike(fit, other) for other in known):
                known.append(fit)
                found.append(fit)
        return tuple(found[:2])

    def __str__(self):
        lines = [self.title, textwrap.indent(textwrap.fill(self.cause, 76), "  "), "", textwrap.indent(self.fix, "    ")]
        return "\n".join(lines + ["", f"  More: {self.more}"] * bool(self.section))


def _alike(one, other):
    one, other = (" ".join(re.findall(r"[a-z]+", text.lower())) for text in (one, other))
    return one in other or other in one or difflib.SequenceMatcher(None, one, other).ratio() > 0.7


def anchor(heading):
    """The name under which a heading of a chapter can be linked to, as the book makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@functools.cache
def entries():
    """All entries, as a tuple: topic after topic, and in a topic the likeliest first."""
    found = []
    for name in TOPICS:
        with open(FOLDER / f"{name}.toml", "rb") as file:
            content = tomllib.load(file)
        for raw in content["error"]:
            lists = {key: tuple(raw.pop(key, ())) for key in ("patterns", "across", "clues", "own")}
            raw["texts"] = tuple(map(tuple, raw["texts"]))
            raw.update(cause=" ".join(raw["cause"].split()), fix=raw["fix"].strip("\n"), topic=content["topic"])
            found.append(Entry(**raw, **lists))
    return tuple(found)


class ErrorTable(tuple):
    """Entries to look through: a notebook shows their messages, which open; printed, it is plain text."""

    def __str__(self):
        lines, topic = [], None
        for entry in self:
            if entry.topic != topic:
                topic = entry.topic
                lines += ["", topic.upper(), ""]
            lines.append(textwrap.fill(entry.message, 78, subsequent_indent="  "))
            lines.append(textwrap.fill(entry.title + (f" ({entry.more})" if entry.section else ""), 78,
                                       initial_indent="    ", subsequent_indent="    "))
        return "\n".join(lines[1:])

    __repr__ = __str__

    def _repr_markdown_(self):
        """Markdown, so that links to chapters are followed both in the built book and in Jupyter."""
        lines, topic = [], None
        for entry in self:
            if entry.topic != topic:
                topic = entry.topic
                lines += [f"**{topic}**", ""]
            message = html.escape(entry.message, quote=False)
            message = message if entry.kind == "silent" else f"<code>{message}</code>"
            lines += [f"<details><summary>{message}</summary>", "", f"**{entry.title}.** {entry.cause}", "",
                      "```python", entry.fix, "```", ""]
            if entry.also:
                lines += ["Also said as: " + "; ".join(f"`` {said} ``" for said in entry.also), ""]
            if entry.section:
                lines += [f"More: [{entry.more}]({entry.link})", ""]
            lines += ["</details>", ""]
        return "\n".join(lines)


def errors():
    """The table of all errors that `explain` knows, by topic: the message, and in a notebook its cause, fix and chapter.

    It is a tuple of entries as well: `errors()[0].fix`.
    """
    return ErrorTable(entries())
