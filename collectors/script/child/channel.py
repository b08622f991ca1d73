"""Events from the script's processes to gpuadvisor: JSON lines through a named pipe.

A pipe of its own, because progress bars write to stdout without a newline. A named one, because
a process started by `spawn` inherits no descriptors.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import Any, Protocol

LINE_BYTES = 4096
"""PIPE_BUF on Linux: writes up to it are atomic, so lines of two processes never mix."""
GONE = (errno.ENXIO, errno.EPIPE, errno.ENOENT)
"""Errors that say that nobody reads any more: gpuadvisor has ended."""

CUDA_ERROR = "CUDA error"
"""Begin of what torch says of an error of CUDA, such as a failed assertion of a kernel, after which
the process can use its GPU no more. Memory that is not there is none of them."""

leave = os._exit
"""The interpreter's own; the harness puts another in its place."""


class Report(Protocol):
    """Takes events: those of a `Channel` go to gpuadvisor at once, those of a `Record` to a file
    that it reads after the script's end."""

    def send(self, event: str, /, **fields: Any) -> None:
        """Send one event."""


class Channel:
    """The writing end; opened on the first event, so silent processes cost nothing."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._identity = (0, 0)

    def send(self, event: str, /, **fields: Any) -> None:
        """Send one event. When gpuadvisor is gone there is no use in going on: exit."""
        line = _line({"event": event, "pid": os.getpid(), **fields})
        for _ in range(2):
            try:
                os.write(self._open(), line)
            except OSError as error:
                if error.errno in GONE:
                    leave(1)
                self._descriptor = None
            else:
                return

    def send_list(self, event: str, values: list[float], **fields: Any) -> None:
        """Send a list of numbers in as many events as it takes to stay below `LINE_BYTES`."""
        per_line = LINE_BYTES // 32  # a float's longest repr is 24 characters
        for start in range(0, len(values), per_line):
            self.send(event, values=values[start : start + per_line], **fields)

    def owner(self) -> int | None:
        """Return the process whose steps gpuadvisor counts, or None if it has not said yet."""
        try:
            return int(owner_file(self._path).read_text())
        except (OSError, ValueError):
            return None

    def is_ready(self) -> bool:
        """Say whether gpuadvisor has nothing else to do any more than to listen."""
        return ready_file(self._path).exists()

    def _open(self) -> int:
        """Return the pipe's descriptor, opened again if the script has closed or reused it."""
        if self._descriptor is not None and _identity(self._descriptor) == self._identity:
            return self._descriptor
        # Without O_NONBLOCK this would wait for a reader for ever when gpuadvisor is gone.
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(self._descriptor, True)
        self._identity = _identity(self._descriptor)
        return self._descriptor


class guarded:  # noqa: N801 - a context, as those that are functions
    """Report a failure of the harness in the block; the script runs on without that part.

    Where no part of gpuadvisor takes reports, the script's user is told. After an error of CUDA no
    script can run on, so that is raised.
    """

    __slots__ = ("_report", "_what")

    def __init__(self, report: Report | None, what: str) -> None:
        self._report = report
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if not isinstance(error, Exception) or str(error).startswith(CUDA_ERROR):
            return False
        text = f"gpuadvisor could not {self._what}: {type(error).__name__}: {error}"
        if self._report is not None:
            self._report.send("harness_failed", detail=text)
        elif sys.stderr is not None:
            print(f"{text}; the script runs without it", file=sys.stderr)
        return True


def owner_file(path: str) -> Path:
    """Return the file beside a pipe in which gpuadvisor keeps whose steps it counts."""
    return Path(f"{path}.owner")


def ready_file(path: str) -> Path:
    """Return the file beside a pipe that is there once gpuadvisor only listens."""
    return Path(f"{path}.ready")


def _identity(descriptor: int) -> tuple[int, int]:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return (0, 0)
    return status.st_dev, status.st_ino


def _line(event: dict[str, Any]) -> bytes:
    """Return an event as a line; what is too long for one is cut."""
    while True:
        line = (json.dumps(event) + "\n").encode()
        if len(line) <= LINE_BYTES:
            return line
        sizes = {k: len(json.dumps(v)) for k, v in event.items() if isinstance(v, (str, list))}
        longest = max(sizes, key=lambda key: sizes[key])
        if len(event[longest]) < 2:
            return line
        event[longest] = event[longest][: len(event[longest]) // 2]
