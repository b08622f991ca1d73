"""The Python that runs the scripts: its version, its torch, and what `torch.compile` needs."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

from gpuadvisor.collectors.interpreter import OLDEST_PYTHON, TargetPython
from gpuadvisor.doctor.check import Check, CheckState, MachineState, from_sentence

OLDEST_TESTED = (2, 4)
"""The oldest in gpuadvisor's own requirements (pyproject.toml)."""
_INSTALL = "see https://pytorch.org/get-started/locally for the command"


def check_python(machine: MachineState) -> Iterator[Check]:
    """The interpreter that runs the scripts must be there and new enough."""
    if machine.python is None:
        yield from_sentence("python", CheckState.PROBLEM, machine.python_problem)
        return
    found = f"{machine.python.version} ({machine.python.executable})"
    if machine.python.runs_harness:
        yield Check("python", CheckState.OK, found)
        return
    oldest = ".".join(map(str, OLDEST_PYTHON))
    fix = f"make an environment with Python {oldest} or newer, or give another with --python"
    yield Check("python", CheckState.PROBLEM, f"{found} is too old", fix)


def check_torch(machine: MachineState) -> Iterator[Check]:
    """torch must be importable, recent enough, and built for the GPUs that are there."""
    python = machine.python
    if python is None:
        return
    if python.torch is None:
        fix = f"run `{python.executable} -m pip install torch`, or give another Python (--python)"
        yield Check("torch", CheckState.PROBLEM, python.torch_problem or "torch is not there", fix)
    elif python.cuda is None and machine.gpus:
        detail = f"{python.torch} is built without CUDA: scripts run on the CPU, beside a GPU"
        yield Check("torch", CheckState.WARNING, detail, f"install a build for CUDA; {_INSTALL}")
    elif _version(python.torch) < OLDEST_TESTED:
        oldest = ".".join(map(str, OLDEST_TESTED))
        detail = f"{_described(python)} is older than {oldest}, the oldest that is tested"
        yield Check("torch", CheckState.WARNING, detail, f"upgrade torch; {_INSTALL}")
    else:
        yield Check("torch", CheckState.OK, _described(python))


def _described(python: TargetPython) -> str:
    if python.cuda is None:
        return f"{python.torch}, without CUDA"
    cudnn = f"cuDNN {python.cudnn}" if python.cudnn else "no cuDNN"
    return f"{python.torch}, CUDA {python.cuda}, {cudnn}"


def _version(version: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else OLDEST_TESTED  # a development build


def check_compiler(machine: MachineState) -> Iterator[Check]:
    """`torch.compile` needs a compiler and Python's headers, on the GPU also Triton.

    Sources: `config.cpp.cxx` in torch/_inductor/config.py; triton/runtime/build.py.
    """
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
        yield Check("compiler", CheckState.WARNING, detail, "; ".join(how))
    else:
        triton = f"Triton {torch.triton}, " if torch.cuda_available else ""
        yield Check("compiler", CheckState.OK, f"{triton}{compiler}, Python.h")


def _compiler(machine: MachineState, torch: TargetPython) -> str | None:
    """Return the path of the compiler that would be used."""
    names = ("gcc", "clang") if torch.cuda_available else ("g++",)
    chosen = machine.environ.get("CC" if torch.cuda_available else "CXX")
    if chosen:
        names = (chosen.split()[0],)
    path = machine.environ.get("PATH")
    return next((found for name in names if (found := shutil.which(name, path=path))), None)


CHECKS = {10: check_python, 20: check_torch, 80: check_compiler}
