"""`torch.compile` needs a compiler and Python's headers, on the GPU also Triton.

Sources: `config.cpp.cxx` in torch/_inductor/config.py; triton/runtime/build.py.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from gpuadvisor.collectors.interpreter import TargetPython
from gpuadvisor.doctor.check import Check, CheckState, MachineState

ORDER = 80
NAME = "compiler"


def check(machine: MachineState) -> Iterator[Check]:
    """Look for what Inductor starts on the device that torch would use."""
    torch = machine.torch
    if torch is None:
        return
    compiler = _compiler(machine, torch)
    missing = []
    if torch.cuda_available and torch.triton is None:
        missing.append(("Triton", f"run `{torch.executable} -m pip install triton`"))
    if compiler is None:
        language, package = ("C", "gcc") if torch.cuda_available else ("C++", "g++")
        missing.append((f"a {language} compiler", f"install one (`apt install {package}`)"))
    if not torch.has_header:
        missing.append(("Python.h", "install Python's headers (`apt install python3-dev`)"))
    if missing:
        what, how = zip(*missing, strict=True)
        detail = f"torch.compile cannot work without {' and '.join(what)}; other knobs can"
        yield Check(NAME, CheckState.WARNING, detail, "; ".join(how))
    else:
        triton = f"Triton {torch.triton}, " if torch.cuda_available else ""
        yield Check(NAME, CheckState.OK, f"{triton}{compiler}, Python.h")


def _compiler(machine: MachineState, torch: TargetPython) -> str | None:
    """Return the path of the compiler that would be used."""
    names = ("gcc", "clang") if torch.cuda_available else ("g++",)
    chosen = machine.environ.get("CC" if torch.cuda_available else "CXX")
    if chosen:
        names = (chosen.split()[0],)
    path = machine.environ.get("PATH")
    return next((found for name in names if (found := shutil.which(name, path=path))), None)
