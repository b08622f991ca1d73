"""Who may use the GPU: one program at a time, while others start."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TOKEN = "DEFECTS_TOKEN"
"""Environment variable with the file whose lock gives the right to use the GPU."""
CORES = "DEFECTS_CORES"
"""Environment variable with the cores, `0,1,2`, of who uses the GPU; the others start elsewhere."""
WAITED = "DEFECTS_WAITED"
"""Environment variable with a file for the seconds that a program has waited for its turn."""
BUSY = "busy"
"""Asks a program, in place of a time: for how many milliseconds of a step does the GPU work?"""
FEWEST_CORES = 9
"""For a program and the eight workers of its loader."""
MOST_LANES = 6
"""Programs that start at a time, where there are cores for them: what starts takes some three
times as long as what computes, so that few more would only wait. [own]"""


def take_turn() -> Any:
    """Wait until nobody else uses the GPU; the lock is held until this process ends."""
    if TOKEN not in os.environ:
        return None
    token = open(os.environ[TOKEN], "w")  # noqa: PTH123, SIM115
    began = time.monotonic()
    fcntl.lockf(token, fcntl.LOCK_EX)  # which workers of a loader do not inherit
    if WAITED in os.environ:
        Path(os.environ[WAITED]).write_text(f"{time.monotonic() - began:.4f}", "ascii")
    keep_to_cores()
    return token


def keep_to_cores() -> None:
    """Leave the cores on which others start."""
    if os.environ.get(CORES):
        os.sched_setaffinity(0, {int(each) for each in os.environ[CORES].split(",")})


def usual_lanes() -> int:
    """Return how many programs may start at a time, so that one can compute undisturbed."""
    return max(1, min(MOST_LANES, len(os.sched_getaffinity(0)) - FEWEST_CORES))


def share_cores(lanes: int) -> None:
    """Have programs start on one core a lane, and compute on the others where there are some."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) >= FEWEST_CORES + lanes:
        os.environ[CORES] = ",".join(map(str, cores[lanes:]))
        os.sched_setaffinity(0, cores[:lanes])


class Gpu:
    """The right to use it, for programs that this process has started."""

    def __init__(self, token: Path) -> None:
        self.token = token
        self._file = token.open("w")  # the lock is this process's: no second descriptor may close
        self._threads = threading.Lock()
        self.held_s = 0.0
        """How long programs were timed; their diagnoses come besides."""

    def __enter__(self) -> Gpu:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @contextmanager
    def turn(self) -> Iterator[float]:
        """Wait until nobody else uses it, and say for how many seconds that was."""
        asked = time.monotonic()
        with self._threads:
            fcntl.lockf(self._file, fcntl.LOCK_EX)
            began = time.monotonic()
            try:
                yield began - asked
            finally:
                self.held_s += time.monotonic() - began
                fcntl.lockf(self._file, fcntl.LOCK_UN)
