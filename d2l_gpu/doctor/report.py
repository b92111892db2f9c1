"""The report on this machine: `python -m d2l_gpu`, and `d2l_gpu.doctor()` in a notebook.

As JSON (`python -m d2l_gpu --json`, `Report.as_dict()`) it has these keys, which stay as they are:

    schema     1
    d2l_gpu    the package's version
    device     what training will run on, "cuda:0", "mps" or "cpu"; null if nothing will run
    verdict    the same in a sentence
    problems, warnings    how many there are
    findings   a list of {name, status: "ok", "warning" or "problem", text, remedy: "" if there is none}
    facts      what was found out, under the names of `d2l_gpu.doctor.probes.Facts`; sizes in bytes, null if unknown
"""

import contextlib
import sys
import textwrap
from dataclasses import asdict, dataclass

WIDTH = 96


def doctor():
    """What is wrong with this machine, and the way out: driver, CUDA, GPUs, memory, cores, shared memory, settings.

    Returns a `Report`, which prints as text: problems first, then warnings, then what is well. It never raises, and it
    works where PyTorch cannot be imported. On each real GPU it computes one small sum, which takes a context of CUDA
    there, as the first tensor does.
    """
    from .probes import gather
    with contextlib.redirect_stdout(sys.stderr):  # what libraries print while they are imported is no part of the report
        return Report(gather())


@dataclass(repr=False)
class Report:
    """What was found on a machine: `facts`, and from them `findings`, `device` and `verdict`."""

    facts: object

    @property
    def findings(self):
        """The findings, problems first, then warnings, then what is ok."""
        from . import findings, gpu_rules, host_rules
        found = [finding for rule in gpu_rules.RULES + host_rules.RULES for finding in rule(self.facts)]
        return sorted(found, key=lambda finding: (findings.PROBLEM, findings.WARNING, findings.OK).index(finding.status))

    def count(self, status):
        """How many findings are "ok", "warning" or "problem"."""
        return sum(finding.status == status for finding in self.findings)

    @property
    def device(self):
        """What `try_gpu()` gives on the real machine: "cuda:0", "mps" or "cpu"; None where torch is not to be had."""
        f = self.facts
        return None if not f.torch else "cuda:0" if f.gpus else "mps" if f.mps else "cpu"

    @property
    def verdict(self):
        """One sentence: what training will run on."""
        from .gpu_rules import usable
        f = self.facts
        if not f.torch:
            return "Nothing will run until PyTorch can be imported."
        if f.gpus and not usable(f, f.gpus[0]):
            return "Training will be sent to cuda:0, and fail there."
        if f.gpus:
            return f"Training will run on cuda:0, {f.gpus[0].name}."
        if f.mps:
            return "Training will run on mps, Apple's GPU."
        if f.simulated:
            return "Training will run on the CPU, which the simulated GPUs also use."
        if f.environment.get("D2L_GPU_SIMULATE", "").strip() == "0":
            return "Training will run on the CPU, which stands in for every GPU: D2L_GPU_SIMULATE is 0."
        return "Training will run on the CPU; chapters that need GPUs simulate them."

    def as_dict(self):
        """The report as plain values, as `--json` prints them (the keys are described at the top of this module)."""
        return {"schema": 1, "d2l_gpu": self.facts.package, "device": self.device, "verdict": self.verdict,
                "problems": self.count("problem"), "warnings": self.count("warning"),
                "findings": [asdict(finding) for finding in self.findings], "facts": asdict(self.facts)}

    def __str__(self):
        from ..machine import _count
        lines, found = [], self.findings
        column = max((len(finding.name) for finding in found if _in_a_row(finding)), default=0)
        for finding in found:
            if _in_a_row(finding):
                lines += _hanging(f"ok       {finding.name:{column}}  ", finding.text)
                continue
            head = "PROBLEM" if finding.status == "problem" else finding.status
            lines += _hanging(f"{head:7}  ", f"{finding.name}: {finding.text}")
            for line in f"Way out: {finding.remedy}".splitlines() if finding.remedy else []:
                lines += [line] if line.startswith("    ") else _hanging(" " * 9, line.strip())
            lines.append("")
        counts = [_count(n, noun) for noun in ("problem", "warning") if (n := self.count(noun))]
        lines += [""] if lines[-1] else []
        return "\n".join([*lines, f"{self.verdict} {' and '.join(counts) or 'Nothing is wrong'}."])

    __repr__ = __str__


def _in_a_row(finding):
    return finding.status == "ok" and len(finding.name) <= 16


def _hanging(head, text):
    """`text` in lines of at most WIDTH after `head`; commands and paths are not broken inside a word."""
    return textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head),
                         break_long_words=False, break_on_hyphens=False)
