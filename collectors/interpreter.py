"""What the interpreter that will run the user's script has: Python, torch, CUDA, GPUs.

It may belong to another environment than gpuadvisor (`--python PATH`), so it is asked in a
process of its own, which runs the text of `interpreter_probe.py`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuadvisor.collectors.interpreter_probe import MARK
from gpuadvisor.errors import UsageError

TIMEOUT_S = 120.0
"""Importing torch takes 3 s warm and 20 s or more from a cold or a network disk."""
OLDEST_PYTHON = (3, 10)
"""The oldest Python for which the code inside the target process is written."""
_PYTHON_ERROR = re.compile(r"^(?:Fatal Python error|\w*Error): .*", re.MULTILINE)


@dataclass(frozen=True)
class TorchGpu:
    """A GPU as torch sees it: `cuda:0` is the first."""

    name: str
    compute_capability: tuple[int, int]
    memory_bytes: int
    uuid: str | None
    """`GPU-...` as NVML gives it; None before torch had it."""


@dataclass(frozen=True)
class TargetPython:
    """The interpreter that runs the script. What is not there is None or empty."""

    executable: str
    """Absolute path, links not followed: a virtual environment is known by its link."""
    version: str
    """Version of Python, such as `3.12.3`."""
    has_header: bool = False
    """Whether `Python.h` is there, which Inductor and Triton compile against."""
    torch: str | None = None
    torch_problem: str | None = None
    """Why torch cannot be imported, in words; None where it can."""
    cuda: str | None = None
    """Version of CUDA that torch was built for; None for a build without CUDA."""
    cudnn: str | None = None
    """Version of cuDNN, such as `9.10.2`."""
    triton: str | None = None
    cuda_available: bool = False
    cuda_problem: str | None = None
    """What CUDA or torch said where it cannot use a GPU."""
    gpus: tuple[TorchGpu, ...] = ()
    architectures: tuple[str, ...] = ()
    """Architectures of torch's kernels, such as `sm_90` and `compute_90`; empty without a GPU."""

    @property
    def runs_harness(self) -> bool:
        """Say whether gpuadvisor's code for the target process can run in it."""
        major, minor = self.version.split(".")[:2]
        return (int(major), int(minor)) >= OLDEST_PYTHON


def describe_python(python: str, timeout_s: float = TIMEOUT_S) -> TargetPython:
    """Return what the interpreter has; raises UsageError where scripts cannot be tuned with it."""
    found = inspect_python(python, timeout_s)
    if not found.runs_harness:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        raise UsageError(
            f"{found.executable} is Python {found.version}, but {oldest} or newer is needed: "
            "give another one with --python"
        )
    if found.torch_problem is not None:
        raise UsageError(
            f"{found.torch_problem} in {found.executable}: install torch there, "
            "or give the Python that has it with --python"
        )
    return found


def inspect_python(python: str, timeout_s: float = TIMEOUT_S) -> TargetPython:
    """Return what the interpreter has, with or without torch.

    Raises UsageError where there is no such interpreter, or it crashes or hangs.
    """
    path = locate(python)
    source = Path(__file__).with_name("interpreter_probe.py").read_text("utf-8")
    # A shell given by mistake refuses `-X utf8`, rather than run `import` (an ImageMagick tool).
    process = _run([path, "-X", "utf8", "-c", source], timeout_s)
    found = _findings(process.stdout)
    if found is None:
        raise UsageError(_why_silent(path, process))
    return _target(path, found)


def locate(python: str) -> str:
    """Return the absolute path of an interpreter; UsageError if there is none."""
    expanded = os.path.expanduser(python)  # noqa: PTH111 - Path would drop the `./` that which needs
    if Path(expanded).is_dir():
        hint = Path(expanded, "bin", "python")
        raise UsageError(f"{python} is a folder: give the interpreter in it, such as {hint}")
    path = shutil.which(expanded)
    if path is None:
        exists = Path(expanded).exists()
        fault = "is not an executable file" if exists else "does not exist"
        raise UsageError(f"the Python {python} {fault}: give the path of an interpreter")
    return os.path.abspath(path)  # noqa: PTH100 - resolve() would follow a virtual environment's link


def _run(argv: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run the probe; on a time-out or Ctrl-C kill all that it started."""
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise UsageError(f"{argv[0]} cannot be run: {error.strerror}") from error
    with process:
        try:
            out, err = process.communicate(timeout=timeout_s)
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            message = f"{argv[0]} did not say within {timeout_s:g} s what torch it has"
            raise UsageError(f"{message}: try `{argv[0]} -c 'import torch'`") from error
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


def _findings(output: str) -> dict[str, Any] | None:
    lines = [line for line in output.splitlines() if line.startswith(MARK)]
    return json.loads(lines[-1].removeprefix(MARK)) if lines else None


def _why_silent(path: str, process: subprocess.CompletedProcess[str]) -> str:
    if process.returncode < 0:
        name = signal.Signals(-process.returncode).name
        return f"{path} crashed ({name}) while importing torch: reinstall torch there"
    said = _PYTHON_ERROR.findall(process.stderr)
    detail = f" ({said[-1]})" if said else ""
    return f"{path} does not act as Python 3{detail}: give the path of an interpreter"


def _target(path: str, found: dict[str, Any]) -> TargetPython:
    return TargetPython(
        executable=path,
        version=found["version"],
        has_header=found["header"],
        torch=found.get("torch"),
        torch_problem=found.get("torch_problem"),
        cuda=found.get("cuda"),
        cudnn=_dotted(found.get("cudnn")),
        triton=found.get("triton"),
        cuda_available=found.get("cuda_available", False),
        cuda_problem=found.get("cuda_problem"),
        gpus=tuple(_gpu(gpu) for gpu in found.get("gpus", ())),
        architectures=tuple(found.get("architectures", ())),
    )


def _gpu(found: dict[str, Any]) -> TorchGpu:
    major, minor = found["compute_capability"]
    uuid = found["uuid"]
    if uuid and not uuid.startswith(("GPU-", "MIG-")):
        uuid = f"GPU-{uuid}"  # torch leaves out the prefix
    return TorchGpu(found["name"], (major, minor), found["memory_bytes"], uuid)


def _dotted(cudnn: int | None) -> str | None:
    """Return `9.10.2` for 91002 and `8.9.7` for 8907 (CUDNN_VERSION in cudnn_version.h)."""
    if cudnn is None:
        return None
    major_unit = 10000 if cudnn >= 90000 else 1000
    return f"{cudnn // major_unit}.{cudnn % major_unit // 100}.{cudnn % 100}"
