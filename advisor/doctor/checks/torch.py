"""torch must be importable, recent enough, and built for the GPUs that are there."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpuadvisor.collectors.interpreter import TargetPython
from gpuadvisor.doctor.check import Check, CheckState, MachineState

ORDER = 20
NAME = "torch"
OLDEST_TESTED = (2, 4)
"""The oldest in gpuadvisor's own requirements (pyproject.toml)."""
_INSTALL = "see https://pytorch.org/get-started/locally for the command"


def check(machine: MachineState) -> Iterator[Check]:
    """Look at the version and at what torch was built for."""
    python = machine.python
    if python is None:
        return
    if python.torch is None:
        fix = f"run `{python.executable} -m pip install torch`, or give another Python (--python)"
        yield Check(NAME, CheckState.PROBLEM, python.torch_problem or "torch is not there", fix)
    elif python.cuda is None and machine.gpus:
        detail = f"{python.torch} is built without CUDA: scripts run on the CPU, beside a GPU"
        yield Check(NAME, CheckState.WARNING, detail, f"install a build for CUDA; {_INSTALL}")
    elif _version(python.torch) < OLDEST_TESTED:
        oldest = ".".join(map(str, OLDEST_TESTED))
        detail = f"{_described(python)} is older than {oldest}, the oldest that is tested"
        yield Check(NAME, CheckState.WARNING, detail, f"upgrade torch; {_INSTALL}")
    else:
        yield Check(NAME, CheckState.OK, _described(python))


def _described(python: TargetPython) -> str:
    if python.cuda is None:
        return f"{python.torch}, without CUDA"
    cudnn = f"cuDNN {python.cudnn}" if python.cudnn else "no cuDNN"
    return f"{python.torch}, CUDA {python.cuda}, {cudnn}"


def _version(version: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else OLDEST_TESTED  # a development build
