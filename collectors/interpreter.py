"""What the interpreter that will run the user's script has: Python, torch, CUDA, GPUs.

It may belong to another environment than gpuadvisor (`--python PATH`), so it is asked in a
process of its own, which runs the text of `interpreter_probe.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from gpuadvisor.collectors import programs
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

    packages: tuple[str, ...] = ()
    """Installed packages with their versions, such as `numpy-2.1.0`; sorted."""
    editable: tuple[str, ...] = ()
    """Folders of packages that are installed from their source, which may change."""

    @property
    def runs_harness(self) -> bool:
        """Say whether gpuadvisor's code for the target process can run in it."""
        major, minor = self.version.split(".")[:2]
        return (int(major), int(minor)) >= OLDEST_PYTHON


def describe_python(
    python: str, timeout_s: float = TIMEOUT_S, kept: Path | None = None
) -> TargetPython:
    """Return what the interpreter has; raises UsageError where scripts cannot be tuned with it.

    Arguments are those of `inspect_python`.
    """
    return able(inspect_python(python, timeout_s, kept))


def able(found: TargetPython) -> TargetPython:
    """Return an interpreter that scripts can be tuned with; UsageError for any other."""
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


def inspect_python(
    python: str, timeout_s: float = TIMEOUT_S, kept: Path | None = None
) -> TargetPython:
    """Return what the interpreter has, with or without torch.

    In the folder `kept` its answers are kept, if given: to import torch for them takes 2 s and
    more, and is left out where they were asked for before and nothing that they rest on has
    changed. Raises UsageError where there is no such interpreter, or it crashes or hangs.
    """
    return Inspection(python, kept).answer(timeout_s)


class Inspection:
    """A question to an interpreter that is under way: what it has."""

    def __init__(self, python: str, kept: Path | None = None) -> None:
        """Ask; UsageError where there is no such interpreter. Arguments as of `inspect_python`."""
        self.path = locate(python)
        """The interpreter's absolute path, as `TargetPython.executable` has it."""
        self._file = (
            kept and kept / f"{hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]}.json"
        )
        self._known = _read_known(self._file) if self._file else {}
        self._output = TemporaryFile()  # noqa: SIM115 - until it is answered
        source = Path(__file__).with_name("interpreter_probe.py").read_text("utf-8")
        # A shell given by mistake refuses `-X utf8`, rather than run `import` of ImageMagick.
        argv = [self.path, "-X", "utf8", "-c", source, str(self._known.get("identity", ""))]
        try:
            self._program = programs.Running(argv, self._output)
        except OSError as error:
            self._output.close()
            raise UsageError(f"{self.path} cannot be run: {error.strerror}") from error

    @property
    def used_gpus(self) -> bool | None:
        """Whether its torch could use a GPU when it was asked before; None where it was not."""
        return bool(self._known.get("gpus")) if self._known else None

    def end(self) -> None:
        """Ask no more, where the answer was not waited for."""
        self._program.end()
        self._output.close()

    def answer(self, timeout_s: float = TIMEOUT_S) -> TargetPython:
        """Wait for the answer, once; UsageError where the interpreter crashes or hangs."""
        try:
            found = self._found(timeout_s)
        finally:
            self.end()
        if found.keys() == {"identity"}:
            found = self._known
        elif self._file and "identity" in found:
            _keep(self._file, found)
        fields = {name: value for name, value in found.items() if name != "identity"}
        fields["cudnn"] = _dotted(fields.get("cudnn"))
        fields["gpus"] = tuple(map(_gpu, fields.get("gpus", ())))
        for name in ("architectures", "packages", "editable"):
            fields[name] = tuple(fields.get(name, ()))
        return TargetPython(self.path, **fields)

    def _found(self, timeout_s: float) -> dict[str, Any]:
        """Return what the probe answers in the interpreter; UsageError where it does not."""
        ended = self._program.wait(timeout_s)
        self._output.seek(0)
        lines = self._output.read().decode("utf-8", "replace").splitlines()
        if ended.status is None:
            message = f"{self.path} did not say within {timeout_s:g} s what torch it has"
            raise UsageError(f"{message}: try `{self.path} -c 'import torch'`")
        told = [line for line in lines if line.startswith(MARK)]
        if not told:
            raise UsageError(_why_silent(self.path, ended.status, ended.said))
        found: dict[str, Any] = json.loads(told[-1].removeprefix(MARK))
        return found


def _read_known(file: Path) -> dict[str, Any]:
    """Return answers that were kept; empty where there are none."""
    try:
        known = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) and "version" in known else {}


def _keep(file: Path, found: dict[str, Any]) -> None:
    """Keep answers for another time, if there is a place for them."""
    draft = file.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        file.parent.mkdir(exist_ok=True)
        draft.write_text(json.dumps(found), "utf-8")
        draft.replace(file)


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


def _why_silent(path: str, status: int, said: str) -> str:
    if status < 0:
        name = signal.Signals(-status).name
        return f"{path} crashed ({name}) while importing torch: reinstall torch there"
    errors = _PYTHON_ERROR.findall(said)
    detail = f" ({errors[-1]})" if errors else ""
    return f"{path} does not act as Python 3{detail}: give the path of an interpreter"


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
