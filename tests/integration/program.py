"""The installed program in a process of its own, with its own store and cache."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import gettempdir

import psutil

SCRIPTS = Path(__file__).parents[1] / "scripts"
CLOCK = str(Path(__file__).parents[1] / "fake_clock")
"""For PYTHONPATH: scripts' steps take what they sleep and compute, whoever else works."""
QUICK = os.environ["PYTHONPATH"]
"""What `tests/conftest.py` has all programs begin with."""
PATIENCE_S = 500.0
"""Ends what hangs; a study of eleven processes takes a minute on a fast, idle machine."""


PYTHONS = Path(gettempdir()) / "gpuadvisor-tests" / "pythons"
"""What is known of interpreters, to all stores: each would import torch to ask again."""
ASK_PYTHON = ("diagnose", "gate", "profile", "tune", "verify")
"""Commands that ask the interpreter of a script what it has."""


def environment(home: Path, command: str = "", **variables: str) -> dict[str, str]:
    """Return the environment of a command."""
    own = home / "store" / "pythons"
    if command in ASK_PYTHON and not own.exists():
        for folder in (PYTHONS, own.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        own.symlink_to(PYTHONS)
    return {
        **os.environ,
        "GPUADVISOR_HOME": str(home / "store"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        **variables,
    }


@cache
def alone() -> tuple[str, ...]:
    """What starts a study where it cannot see others on this machine; nothing where that needs
    rights that we lack. Without it, a study of the developer's own would make it refuse to run.
    """
    command = ("unshare", "--net")
    may = shutil.which("unshare") and os.geteuid() == 0
    return command if may and not subprocess.call([*command, "true"]) else ()


@dataclass(frozen=True)
class Answer:
    status: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """The only line of an error; fails where there are more."""
        (line,) = self.err.splitlines()
        return line.removeprefix("gpuadvisor: ")


def run(home: Path, *words: str, folder: Path | None = None, **variables: str) -> Answer:
    """Run `gpuadvisor words...` in the folder."""
    started = Running(home, *words, folder=folder, **variables)
    return started.end()


class Running:
    """The program while it runs; what it says on stderr can be waited for."""

    def __init__(
        self, home: Path, *words: str, folder: Path | None = None, **variables: str
    ) -> None:
        self.process = subprocess.Popen(
            [
                *(alone() if words[0] in ("gate", "tune", "verify") else ()),
                *(sys.executable, "-m", "gpuadvisor", *words),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder or home,
            env=environment(home, words[0], **variables),
            text=True,
        )
        self._out: list[str] = []
        self._err: list[str] = []
        self._threads = [
            threading.Thread(target=self._drain, args=pair, daemon=True)
            for pair in ((self.process.stdout, self._out), (self.process.stderr, self._err))
        ]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _drain(stream, lines: list[str]) -> None:
        with stream:
            lines.extend(iter(stream.readline, ""))

    def wait_for(self, pattern: str) -> None:
        """Return once a line of stderr matches."""
        deadline = time.monotonic() + PATIENCE_S
        while not any(re.search(pattern, line) for line in list(self._err)):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.process.kill()
                self.process.wait()
                raise AssertionError(f"{pattern!r} was not said:\n{''.join(self._err)}")
            time.sleep(0.02)

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def end(self) -> Answer:
        try:
            status = self.process.wait(timeout=PATIENCE_S)
        finally:
            self.process.kill()
        for thread in self._threads:
            thread.join(timeout=30)
        return Answer(status, "".join(self._out), "".join(self._err))
