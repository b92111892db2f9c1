"""Whether importing torch would end this process: it reads the setting of its allocator in C++, and aborts over a mistake.

Source: c10/core/AllocatorConfig.h of release 2.14.
"""

import os
import re
import subprocess
import sys

VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
# What is surely well, so that no second process is needed.
_OPTION = r"(expandable_segments:(True|False)|max_split_size_mb:\d{3,6}|garbage_collection_threshold:0\.\d+)"
_WELL = re.compile(rf"{_OPTION}(,{_OPTION})*")


def refusal():
    """What torch says to these variables, in a line, where it would abort; None where it would not.

    Any unusual value is tried in a process of its own, in which torch is imported, or fails to be.
    """
    given = {name: os.environ[name] for name in VARIABLES if os.environ.get(name)}
    if "torch" in sys.modules or all(_WELL.fullmatch(value) for value in given.values()):
        return None
    try:
        done = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True, text=True, errors="replace",
                              timeout=120)
    except Exception:
        return None
    said = re.search(r"what\(\): *(.*)", done.stderr)
    if done.returncode in (0, 1) or not said:  # 1: an exception of Python, which importing torch here will raise, too
        return None
    settings = " ".join(f"{name}={value}" for name, value in given.items())
    return f"torch cannot read {settings} and ends the process: {said[1]}"
