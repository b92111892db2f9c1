"""Why torch or torchvision cannot be imported, and the way out.

The messages are those of users' reports: undefined symbols https://github.com/pytorch/pytorch/issues/111469 and
https://github.com/pytorch/pytorch/issues/123097, DLLs https://github.com/pytorch/pytorch/issues/131662, the static TLS
block https://github.com/opencv/opencv/issues/14884, nms https://github.com/pytorch/vision/issues/9174.
"""

import re
import sys
import sysconfig
import traceback
from pathlib import Path

from .builds import AGAIN, ANY, INDEX, PIP, fresh, install, packages
from .findings import command

# (what the error says, what that means, the way out), the most telling first. {fresh} is a fresh environment, {both}
# installs torch and torchvision anew, {what} is what to install, each as it fits the machine.
REASONS = [
    (r"No module named 'torch'",
     "torch is not installed for this Python, {python}",
     "Install it there:" + command('"{python}" -m pip install {what}')
     + "Or run the Python that has it (in a notebook: choose its kernel)."),
    (r"torch cannot read PYTORCH",
     "torch does not start with this setting of its allocator",
     "Unset it, or write a colon between name and value and a comma between options:"
     + command("PYTORCH_ALLOC_CONF=expandable_segments:True")),
    (r"Failed to load PyTorch C extensions|No module named 'torch\._C'|cannot import name '_C' from",
     "a folder named torch was imported which is not an installed PyTorch (its source code, or a broken installation)",
     "Work in another folder than the one that holds it, or rename it. {fresh}"),
    (r"iJIT_NotifyEvent",
     "the MKL library that conda installed is too new for this torch",
     "Take an older one:" + command('conda install "mkl<2024.1"')),
    (r"undefined symbol: _*(?:cu|nccl|nv)\w+|symbol _*nvJitLink\w+, version",
     "a CUDA library of another version was found before the one that torch brings",
     "Try without the variable that names folders of libraries:" + command("env -u LD_LIBRARY_PATH python -m d2l_gpu")
     + "If that is well, take the CUDA folder out of it. If not: make a fresh environment."),
    (r"undefined symbol|symbol not found",
     "torch's libraries are of different versions (two installations are mixed, by pip and conda, say)",
     "{fresh}"),
    (r"libcuda\.so",
     "this torch asks for the NVIDIA driver's own library, and there is no driver",
     "Install the driver, or a build of torch for the CPU:"
     + command(f"{AGAIN} {ANY} --index-url {INDEX}/cpu")),
    (r"lib(?:cu|nccl|nv|torch_cuda|c10_cuda)[\w.-]*: cannot open shared object file",
     "a CUDA library that this torch was built with is missing",
     "Let pip bring it along (without --no-deps). {both}"),
    (r"lib(?:torch|c10)[\w.-]*: cannot open shared object file",
     "the installation of torch is incomplete",
     "{both}"),
    (r"GLIBCXX_[\d.]+|CXXABI_[\d.]+",
     "the C++ library is older than this torch needs",
     "Under conda:" + command("conda install -c conda-forge libstdcxx-ng")
     + "Otherwise take a newer system, or a container with one."),
    (r"GLIBC_[\d.]+",
     "the system's C library is older than this torch needs, and only a newer system brings another",
     "Take a newer system, or a container with one. PyTorch's own wheels ask for 2.28; where the message asks for more, a "
     "library from elsewhere is mixed in. {fresh}"),
    (r"cannot open shared object file|Library not loaded|image not found",
     "a library of the system that torch needs is missing",
     "Install the library that the message names with the system's package manager, then try again."),
    (r"compiled using NumPy 1|numpy\.dtype size changed|multiarray failed to import|_ARRAY_API not found|numpy\.core",
     "numpy is of another generation than the one torch or another library was compiled for",
     "Bring them to one generation:" + command(f"{PIP} --upgrade numpy") + "{both}"
     + "Where an old library cannot be upgraded:" + command('python -m pip install "numpy<2"')),
    (r"WinError 1455|paging file is too small|[Cc]annot allocate memory(?! in static)|^MemoryError",
     "there is not enough memory to load torch's libraries",
     "Close other programs, notebooks above all; on Windows enlarge the paging file."),
    (r"DLL load failed|WinError (?:126|127|182|193|1114)|Error loading \".*\.dll\"",
     "a Windows library that torch needs is missing or of the wrong kind",
     "Install the x64 package from https://aka.ms/vs/17/release/vc_redist.x64.exe, restart, and use a 64-bit Python. "
     "If it says the same: {fresh}"),
    (r"static TLS block",
     "another library was loaded first and took the room that torch's needs",
     "Import torch before all else; or start Python with LD_PRELOAD set to the library that the message names."),
    (r"incompatible architecture|wrong ELF class|mach-o file",
     "torch and this Python are built for different processors",
     "Install the Python of this machine's own processor (arm64 on a Mac with Apple's chip), and torch with it."),
    (r"torchvision::nms|partially initialized module 'torchvision'|different CUDA (?:major )?versions",
     "torchvision was built for another release of torch",
     "{both}"),
    (r"No module named",
     "a package that torch needs is missing",
     "Let pip bring it along (without --no-deps). {both}"),
    (r"Permission denied",
     "this user may not read the installed files",
     "{fresh}"),
]


def explain_import(error, f):
    """(What the error "ImportError: ..." of an import on a machine of these `Facts` means, the way out)."""
    if f.shadows:
        names = ", ".join(f.shadows)
        return (f"a file or folder of yours has the name of a library and is imported in its place: {names}",
                "Rename it, and delete the folder __pycache__ beside it.")
    fits = {"python": f.executable, "fresh": fresh(f), "both": install(f, "Install torch and torchvision anew:"),
            "what": packages(f) or ANY}
    for pattern, meaning, way_out in REASONS:
        if re.search(pattern, error, re.MULTILINE):
            return meaning.format(**fits), way_out.format(**fits)
    return "its installation is broken", fits["fresh"]


def shadowing(error):
    """Files and folders of the reader's that were imported as torch, numpy or a module of Python itself and led to `error`."""
    names = set(sys.stdlib_module_names) | {"torch", "torchvision", "numpy"}
    met = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    met += [_where(module) for name, module in sys.modules.items() if f"'{name}'" in str(error)]
    paths = sysconfig.get_paths()
    installed = [Path(paths[key]).resolve() for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    found = set()
    for path in (Path(name).resolve() for name in met if name):
        inside_a_package = (path.parent / "__init__.py").exists()
        theirs = {"site-packages", "dist-packages"} & set(path.parts) or any(path.is_relative_to(folder) for folder in installed)
        if path.suffix in ("", ".py") and path.stem in names and not inside_a_package and not theirs:
            found.add(str(path))
    return sorted(found)


def _where(module):
    """A module's file; a folder that has no __init__.py is a module, too, and has none."""
    return getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", [])), None)
