"""What a version needs before it can run: compiled extensions, packages of its own."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuadvisor.collectors import programs
from gpuadvisor.collectors.interpreter import TargetPython, inspect_python
from gpuadvisor.collectors.script.run_processes import RunProcesses, reap
from gpuadvisor.collectors.script.runner import Tail
from gpuadvisor.errors import Interrupted, UsageError
from gpuadvisor.interruption import to_its_end
from gpuadvisor.tuning.gate.sides import ReadySide
from gpuadvisor.tuning.preparation import target_python

TIMEOUT_S = 3600.0
"""Longest set-up of a version: attention kernels compile for half an hour on few cores."""
ENVIRONMENT_TIMEOUT_S = 120.0
POLL_S = 0.2
ENVIRONMENT = """
import glob, os, sys, venv
folder, seen = sys.argv[1], [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]
venv.create(folder, symlinks=True)
lines = "".join(f"import site; site.addsitedir({path!r})\\n" for path in seen)
(packages,) = glob.glob(folder + "/lib/python*/site-packages")
with open(packages + "/zz-below.pth", "w") as file:
    file.write(lines)
with open(os.open(folder + "/bin/pip", os.O_WRONLY | os.O_CREAT, 0o755), "w") as file:
    file.write(f'#!/bin/sh\\nexec "{folder}/bin/python" -m pip "$@"\\n')
"""
"""Makes a virtual environment above that of the interpreter which runs it, whose packages it has,
too; those of its own come first, as its `.pth` file is the last to be read."""


@dataclass(frozen=True)
class SetUp:
    """A side after its set-up."""

    side: ReadySide
    problem: str = ""
    """Why it failed, as a clause; empty where it did not."""
    output: str = ""
    """The end of what it printed."""


@dataclass
class SetUps:
    """Runs shell commands in versions' folders, each once, with an environment of its own.

    What one installs goes to a new folder in `folder`, above the packages that are there already:
    both versions may install themselves, and the user's packages stay as they are.
    """

    folder: Path
    say: Callable[[str], None]
    """Told what is set up."""
    cancelled: Callable[[], bool]
    _done: dict[tuple[str, str], tuple[TargetPython, str, str]] = field(default_factory=dict)
    """Interpreter, problem and output by folder and command."""

    def of(self, side: ReadySide, line: str | None) -> SetUp:
        """Return a side after its set-up; no process of that is left. None stands for no command.

        Raises Interrupted if it was cancelled.
        """
        if line is None:
            return SetUp(side)
        key = (side.side.folder, line)
        if key not in self._done:
            self.say(f"setting up {side.side.name}: {line}")
            above = self.folder / str(len(self._done))
            self._done[key] = self._set_up(side, line, above)
        python, problem, output = self._done[key]
        command = replace(side.command, python=python.executable)
        return SetUp(replace(side, python=python, command=command), problem, output)

    def _set_up(self, side: ReadySide, line: str, above: Path) -> tuple[TargetPython, str, str]:
        python = _environment_above(side.python, above)
        command = replace(side.command, python=python)
        environment = {**os.environ, **side.environment, "VIRTUAL_ENV": str(above)}
        folders = (above / "bin", Path(side.python.executable).parent, environment.get("PATH", ""))
        environment["PATH"] = os.pathsep.join(map(str, folders))
        processes = RunProcesses(["/bin/sh", "-c", line], environment, side.command.folder)
        try:
            output = processes.first.stdout
            tail = Tail(output) if output is not None else None
            status = _wait(processes, self.cancelled)
        finally:
            with to_its_end():
                processes.end()
        said = tail.text() if tail is not None else ""
        if status:
            return side.python, f"`{line}` ended with status {status}", said
        if status is None:
            return side.python, f"`{line}` took more than {TIMEOUT_S / 60:g} min", said
        inspected = inspect_python(python) if side.python.torch is None else target_python(command)
        return inspected, "", ""


def _environment_above(python: TargetPython, folder: Path) -> str:
    """Make a virtual environment and return its interpreter; UsageError where that fails."""
    line = [python.executable, "-c", ENVIRONMENT, str(folder)]
    ended = programs.run(line, ENVIRONMENT_TIMEOUT_S)
    if ended.status != 0:
        raise UsageError(
            f"--setup-cmd needs an environment for each version, and {python.executable} cannot "
            f"make one: {programs.why(ended, ENVIRONMENT_TIMEOUT_S)}"
        )
    return str(folder / "bin" / "python")


def _wait(processes: RunProcesses, cancelled: Callable[[], bool]) -> int | None:
    """Return the status of the first process; None where it took too long."""
    until_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until_s:
        if cancelled():
            raise Interrupted("interrupted")
        try:
            return processes.first.wait(POLL_S)
        except subprocess.TimeoutExpired:
            reap()
    return None
