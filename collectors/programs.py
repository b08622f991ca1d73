"""Runs a program of somebody else's, or of ours that uses one, and outlives whatever it does."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

_MOST_SAID = 64 * 1024  # bytes of what it says, from the end


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    status: int | None
    """None where it was killed for taking too long; negative for a signal."""
    said: str
    """The end of what it printed, without that which went to `output`."""


class Running:
    """A program that runs, in a process group of its own; `end` ends that whole."""

    def __init__(
        self,
        argv: Sequence[str],
        output: IO[bytes] | None = None,
        folder: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start it; OSError if it cannot be. Arguments are those of `run`."""
        self._said = TemporaryFile()  # noqa: SIM115 - until it has ended
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=self._said if output is None else output,
                stderr=self._said,
                cwd=folder,
                env=environment,
                start_new_session=True,
            )
        except BaseException:
            self._said.close()
            raise

    def wait(self, timeout_s: float) -> Ended:
        """Return how it ended, or was ended as that took too long: nothing of it is left."""
        status: int | None = None
        try:
            with suppress(subprocess.TimeoutExpired):
                status = self._process.wait(timeout_s)
        finally:  # also on Ctrl-C, and for what it left behind
            self.kill()
        with self._said:
            self._said.seek(0, os.SEEK_END)
            self._said.seek(max(self._said.tell() - _MOST_SAID, 0))
            return Ended(status, self._said.read().decode("utf-8", "replace"))

    def end(self) -> None:
        """End it, and what it left behind, unless it was waited for."""
        if not self._said.closed:
            self.kill()
            self._said.close()

    def kill(self) -> None:
        """End it, and what it left behind; `wait` still says how it ended."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def run(
    argv: Sequence[str],
    timeout_s: float,
    output: IO[bytes] | None = None,
    folder: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Ended:
    """Run a program in a process group of its own, which is ended whole; OSError if it cannot.

    `folder` is its working directory and `environment` all of its variables, if not as ours.
    """
    running = Running(argv, output, folder, environment)
    try:
        return running.wait(timeout_s)
    finally:
        running.end()


def why(ended: Ended, timeout_s: float) -> str:
    """Return why a program failed, in its own last words where it had any."""
    if ended.status is None:
        return f"it did not end within {timeout_s:g} s"
    if lines := ended.said.strip().splitlines():
        return lines[-1].strip()[:500].rstrip(".")
    if ended.status < 0:
        return f"it crashed ({signal.Signals(-ended.status).name})"
    return f"it ended with status {ended.status}"


def absolute(path: Path) -> str:
    """Return a path that no program takes for an option."""
    return str(path.absolute())
