"""What is wrong with this machine, or with a program.

    python -m d2l_gpu                     a report on this machine; the exit status is 1 if there is a problem
    python -m d2l_gpu --json              the same as JSON (its keys: d2l_gpu/doctor/report.py)
    python -m d2l_gpu explain [FILE]      what an error means, from its text: a file, what is pasted, or "the message"
"""

import argparse
import json
import os
import sys


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m d2l_gpu", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    commands = parser.add_subparsers(dest="command", metavar="explain")
    commands.add_parser("explain", help="explain the text of an error").add_argument(
        "file", nargs="*", help="a file with the text, or the text itself; without it, what is pasted or piped")
    options = parser.parse_args(arguments)
    if options.command == "explain":
        if options.json:
            parser.error("--json is for the report")
        try:
            text = _read(options.file)
        except OSError as error:
            parser.error(f"cannot read file {error.filename!r}: {error.strerror}")
        from .doctor.explain import explain
        print(explain(text))
        return 0
    from .doctor.report import doctor
    report = doctor()
    print(json.dumps(report.as_dict(), indent=1) if options.json else report)
    return 1 if report.count("problem") else 0


def _read(words):
    """The text of an error: several words, or one argument with blanks that is no file's name, are the text itself."""
    given = " ".join(words)
    if len(words) > 1 or (len(given.split()) > 1 and not os.path.exists(given)):
        return given
    if words:
        with open(given, encoding="utf-8", errors="replace") as opened:
            return opened.read()
    if sys.stdin.isatty():
        print("Paste the error, then press Ctrl-D (Windows: Ctrl-Z and Enter).", file=sys.stderr)
    return sys.stdin.read()


if __name__ == "__main__":
    sys.exit(main())
