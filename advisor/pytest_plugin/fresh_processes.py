"""Fresh processes of pytest that run some benchmarks of a version, and what they run on."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from gpuadvisor.collectors import programs
from gpuadvisor.collectors.clocks import ClockSampler
from gpuadvisor.collectors.energy import ComputeProcess, other_processes
from gpuadvisor.collectors.interpreter import TargetPython, inspect_python
from gpuadvisor.collectors.load import LoadMeter
from gpuadvisor.collectors.script.request import Command
from gpuadvisor.domain.device import Device
from gpuadvisor.errors import RefusedError
from gpuadvisor.interruption import at_once, to_its_end
from gpuadvisor.pytest_plugin.comparing import SideRun
from gpuadvisor.pytest_plugin.session import TESTS, TIMES
from gpuadvisor.tuning.gate.sides import ReadySide
from gpuadvisor.tuning.preparation import devices_for, reserved

FIRST_TIMEOUT_S = 3600.0
"""Longest first run of a version: it may compile all that the benchmarks use."""
TIMES_LONGER = 5.0
"""How much longer than the first run of its version a later one may take, beside `LEAST_TIMEOUT_S`,
until it counts as hung."""
LEAST_TIMEOUT_S = 120.0
INTERACTIVE = ("--pdb", "--trace", "--looponfail", "-f")
"""Options that wait for somebody."""
TAKE_WORDS = ("-k", "-m", "-p", "-c", "-o", "-W")
"""Options whose next word names no tests, even if it is spelt as one that does."""


T = TypeVar("T")
Checked = Callable[[Command], AbstractContextManager[T]]
"""Checks what is asked of a command, and holds what that needs."""


@dataclass(frozen=True)
class Asked:
    """What is asked for before the tests themselves."""

    config: pytest.Config
    items: Sequence[pytest.Item]
    """The tests with benchmarks."""
    tell: Callable[[str], None]
    """Shows a sentence to the user."""
    cancelled: Callable[[], bool]

    @property
    def tests(self) -> list[str]:
        """Their node ids."""
        return [item.nodeid for item in self.items]


@dataclass(frozen=True)
class Machine:
    """What fresh processes run on."""

    python: TargetPython
    device: Device
    command: Command
    """pytest, without its arguments."""
    folder: Path
    """A folder that goes with it."""
    ours: frozenset[int] = frozenset()
    """Ids of processes on the GPU that are our own."""


@contextmanager
def machine(checked: Checked[T]) -> Iterator[tuple[Machine, T]]:
    """Keep other studies away from the device until the block ends.

    `checked`, which is given the command of pytest, is entered before that. RefusedError where
    something else computes on the GPU, or a study does.
    """
    with at_once():
        python = inspect_python(sys.executable)
    device = devices_for(python, 1)[0]
    command = Command(python.executable, "pytest", is_module=True)
    with reserved([device], checked(command)) as found, _folder() as folder:
        ours, others = on_gpu(device)
        if others:
            names = ", ".join(f"{each.name or 'process'} ({each.pid})" for each in others[:3])
            raise RefusedError(
                f"others use {device.name} at the same time: {names}; wait until it is free, or "
                "choose another GPU with CUDA_VISIBLE_DEVICES"
            )
        yield Machine(python, device, command, folder, ours), found


def on_gpu(device: Device) -> tuple[frozenset[int], list[ComputeProcess]]:
    """Return the ids by which the driver knows this process on a GPU, and the others there.

    This one is among them where a conftest or a module of tests asked torch for something of the
    GPU. In a container with its own process numbers it is not known by which: the first counts.
    """
    running = other_processes(device) or []
    theirs = other_processes(device, [os.getpid()]) or []
    torch = sys.modules.get("torch")
    if len(theirs) == len(running) and torch is not None and torch.cuda.is_initialized():
        theirs = running[1:]
    return frozenset(each.pid for each in running) - {each.pid for each in theirs}, theirs


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="gpuadvisor-pytest-"))
    try:
        yield folder
    finally:
        with to_its_end():
            shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Side:
    """A version whose tests can be run."""

    config: pytest.Config
    side: ReadySide
    top: Path
    """Top of the user's own work tree."""
    root: Path
    """Top of this version's, which stands for it; the user's own where there is one version."""
    device: Device
    folder: Path
    """Folder for what is asked of its processes, and for what they answer."""
    ours: frozenset[int] = frozenset()
    """Ids of processes on the GPU that are our own all the time."""
    timeout_s: float = field(default=FIRST_TIMEOUT_S, init=False)

    def run(self, only: Sequence[str]) -> SideRun:
        """Run some benchmarks in a fresh process."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        (self.folder / TESTS).write_text(json.dumps(list(only)), "utf-8")
        line = self.line(only)
        if line is None:
            return SideRun({}, "it has no such file")
        meter = LoadMeter(self.device, ours=self.ours)
        began, limit_s = time.monotonic(), self.timeout_s
        clock = ClockSampler(self.device)
        meter.begin()
        clock.begin()
        try:
            with at_once():
                ended = programs.run(
                    line, limit_s, folder=self.side.command.folder, environment=self._environment
                )
        finally:
            clock.pause()
        meter.end()
        wall_s = time.monotonic() - began
        if limit_s == FIRST_TIMEOUT_S:
            self.timeout_s = max(LEAST_TIMEOUT_S, TIMES_LONGER * wall_s)
        told = self._told()
        times = {each["test"]: each["time_s"] for each in told}
        clocks = {each["test"]: clock.between(*each["span_s"]) for each in told}
        why = "" if len(times) == len(only) else _why(ended, limit_s)
        return SideRun(times, why, meter.disturbance(), wall_s, clocks)

    def line(self, only: Sequence[str]) -> list[str] | None:
        """Return the words that start such a process; None where the tests' files are not there."""
        files = self._files(only)
        return [*self.side.command.line(), *self._arguments(), *files] if files else None

    @property
    def _rootdir(self) -> str:
        return self._mapped(str(self.config.rootpath.resolve()))

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self.side.environment}

    def _files(self, only: Sequence[str]) -> list[str]:
        """Return the tests' files that this version has."""
        rootpath = Path(self._rootdir)
        paths = dict.fromkeys(rootpath / test.partition("::")[0] for test in only)
        return [str(path) for path in paths if path.exists()]

    def _arguments(self) -> list[str]:
        """Return the user's own options, without the tests that they name, and ours.

        Of an option that is given twice, the last one counts.
        """
        config = self.config
        named = set(config.args) if config.args_source is config.ArgsSource.ARGS else set()
        words = list(map(str, config.invocation_params.args))
        given = [
            self._mapped(word)
            for before, word in zip(["", *words], words, strict=False)
            if word not in INTERACTIVE and (word not in named or before in TAKE_WORDS)
        ]
        ours = [
            f"--rootdir={self._rootdir}",
            f"--basetemp={self.folder / 'tmp'}",
            f"--gpu-benchmark-side={self.folder}",
            "--maxfail=0",
        ]
        if config.getoption("xmlpath", None):
            ours.append(f"--junitxml={self.folder / 'junit.xml'}")
        if config.pluginmanager.hasplugin("cacheprovider"):  # what failed last is the user's
            ours.append(f"--override-ini=cache_dir={self.folder / 'cache'}")
        if config.pluginmanager.hasplugin("pytest_cov"):
            ours.append("--no-cov")
        return [*given, *ours]

    def _mapped(self, word: str) -> str:
        """Return an argument with paths in the user's work tree replaced by this version's."""
        return word.replace(str(self.top.resolve()), str(self.root))

    def _told(self) -> list[dict[str, Any]]:
        """Return what the process told of its benchmarks."""
        path = self.folder / TIMES
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        found = []
        for line in lines:
            with suppress(ValueError):  # it was killed meanwhile
                found.append(json.loads(line))
        return found


def _why(ended: programs.Ended, timeout_s: float) -> str:
    """Return the first line in which pytest says what failed, else its last words."""
    if ended.status == 0:
        return "there is no such test, or it is skipped"
    errors = [line for line in ended.said.splitlines() if line.startswith(("E   ", "ERROR"))]
    return errors[0].removeprefix("E").strip() if errors else programs.why(ended, timeout_s)
