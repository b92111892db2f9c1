"""What is wrong with this machine, or with a program.

    python -m d2l_gpu                     a report on this machine; the exit status is 1 if there is a problem
    python -m d2l_gpu --json              the same as JSON (its keys: d2l_gpu/doctor/report.py)
    python -m d2l_gpu explain [FILE]      what an error means, from its text: a file, or what is pasted
"""

import argparse
import json
import sys


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m d2l_gpu", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    commands = parser.add_subparsers(dest="command", metavar="explain")
    file = commands.add_parser("explain", help="explain the text of an error").add_argument("file", nargs="?")
    options = parser.parse_args(arguments)
    if options.command == "explain":
        if options.json:
            parser.error("--json is for the report")
        try:
            text = _read(options.file)
        except OSError as error:
            parser.error(f"cannot read {file.dest} {options.file!r}: {error.strerror}")
        from .doctor.explain import explain
        print(explain(text))
        return 0
    from .doctor.report import doctor
    report = doctor()
    print(json.dumps(report.as_dict(), indent=1) if options.json else report)
    return 1 if report.count("problem") else 0


def _read(file):
    if file is not None:
        with open(file, encoding="utf-8", errors="replace") as opened:
            return opened.read()
    if sys.stdin.isatty():
        print("Paste the error, then press Ctrl-D (Windows: Ctrl-Z and Enter).", file=sys.stderr)
    return sys.stdin.read()


if __name__ == "__main__":
    sys.exit(main())
