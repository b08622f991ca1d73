"""Progress on a terminal: the stages of a recording and the bar of an import; nothing on a pipe."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.status import Status
from rich.text import Text

from gpuadvisor.collectors.script.request import Event
from gpuadvisor.errors import Interrupted
from gpuadvisor.profiling.evidence import HarnessEvents
from gpuadvisor.profiling.importing import Progress

STAGES = {"step": "warming up", "compiled": "compiling", "warm": "recording", "done": "saving"}
"""The harness's events to what a script that is recorded does from then on."""
DESCRIPTORS = Path("/proc/self/fd")


class Stages:
    """A line that says what goes on now, and the events of the script's harness behind it."""

    def __init__(self, console: Console) -> None:
        self.saw_torch = False
        self.harness = HarnessEvents()
        self._console = console
        self._status: Status | None = None
        self._what = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def say(self, what: str) -> None:
        """Show what begins now."""
        self._what = what
        self._show(f"{what} ...")

    def note(self, sentence: str) -> None:
        """Print a sentence that stays."""
        self._console.print(Text(f"gpuadvisor: {sentence}"), soft_wrap=True)

    def event(self, event: Event) -> None:
        """Take an event of the harness, and show the stage that begins with it."""
        self.harness.take(event)
        if event["event"] == "torch":
            self.saw_torch = True
        stage = STAGES.get(event["event"])
        if stage is not None:
            self._show(f"{self._what}: {stage} ...")

    def close(self) -> None:
        """Remove the line."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _show(self, text: str) -> None:
        if not self._console.is_terminal:
            return
        if self._status is None:
            self._status = self._console.status(Text(text))
            self._status.start()
        self._status.update(Text(text))


class ImportProgress(Progress):
    """A bar a file with the bytes that its reader has taken; nothing on a pipe.

    Its calls are where an import can end early: they raise Interrupted once `cancelled`.
    An exception at any other moment would be lost in SQLite's callbacks, or leave rows behind.
    """

    def __init__(self, console: Console, cancelled: Callable[[], bool] = lambda: False) -> None:
        self._cancelled = cancelled
        self._bar = Bar(
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

    def __exit__(self, *_: object) -> None:
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
        done = _position(path)  # None where the reader does not read by position, as with SQLite
        what = f"Reading {path.name}"
        self._bar.update(self._task, description=what, completed=done, rows=f"{rows:,} rows")

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
                info = DESCRIPTORS.with_name("fdinfo") / link.name
                return int(info.read_text("ascii").split(None, 2)[1]) or None
    except (OSError, ValueError, IndexError):
        pass
    return None
