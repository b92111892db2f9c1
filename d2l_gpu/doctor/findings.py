"""What a report is made of, and the words that several rules share."""

from dataclasses import dataclass

OK, WARNING, PROBLEM = "ok", "warning", "problem"


def command(line):
    """A line to be copied, within the words of a way out; a report does not break it."""
    return f"\n    {line}\n"


@dataclass
class Finding:
    """One line of a report: what was looked at, "ok", "warning" or "problem", what was found, and the way out.

    Lines of `remedy` that start with four spaces are commands.
    """

    name: str
    status: str
    text: str
    remedy: str = ""


def size(n):
    """Bytes in words: GiB, or MiB below one."""
    return f"{n / 2**30:.1f} GiB" if n >= 2**30 else f"{n / 2**20:.0f} MiB"


def numbers(version):
    """The numbers at the start of a version, to be compared: "2.14.1+cu130" gives (2, 14, 1)."""
    parts = []
    for part in version.split("+")[0].split("."):
        digits = part[:len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        parts.append(int(digits))
    return tuple(parts)
