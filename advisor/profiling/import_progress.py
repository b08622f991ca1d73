"""How far an import is, on a terminal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from gpuadvisor.errors import Interrupted

DESCRIPTORS = Path("/proc/self/fd")


class ImportProgress:
    """A bar a file with the bytes that its reader has taken; nothing on a pipe.

    What it is told of is where an import can end early: it raises Interrupted once `cancelled`.
    An exception at any other moment would be lost in SQLite's callbacks, or leave rows behind.
    """

    def __init__(self, console: Console, cancelled: Callable[[], bool] = lambda: False) -> None:
        self._cancelled = cancelled
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TextColumn("{task.fields[rows]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", rows="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def hashed(self, path: Path, done_bytes: int, size_bytes: int) -> None:
        """Show how much of a file was looked at, to see whether it is stored."""
        self._go_on()
        what = f"Looking at {path.name}"
        self._bar.update(
            self._task, description=what, completed=done_bytes, total=size_bytes, rows=""
        )

    def read(self, path: Path, rows: int) -> None:
        """Show how much of a file was read into rows."""
        self._go_on()
        if self._bar.disable:
            return
        done = _position(path)
        self._bar.update(
            self._task,
            description=f"Reading {path.name}",
            completed=done,  # stays where the reader does not read by position, as with SQLite
            rows=f"{rows:,} rows",
        )

    def _go_on(self) -> None:
        if self._cancelled():
            raise Interrupted("interrupted")


def _position(path: Path) -> int | None:
    """Return how far this process has read in a file; None where the system does not tell.

    Readers take a path and no stream, as SQLite does; the kernel knows how far they are.
    """
    try:
        target = str(path.resolve())
        for link in DESCRIPTORS.iterdir():
            if str(link.readlink()) == target:
                told = DESCRIPTORS.with_name("fdinfo") / link.name
                return int(told.read_text("ascii").split(None, 2)[1]) or None
    except (OSError, ValueError, IndexError):
        pass
    return None
