"""The terminal, or the pipe, that a command writes to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def output() -> Console:
    """Return the console of the standard output; BrokenPipeError where its reader is gone."""
    return _console(stderr=False)


def messages() -> Console:
    """Return the console of the standard error, for progress; BrokenPipeError as above."""
    return _console(stderr=True)


def _console(stderr: bool) -> Console:
    from rich.console import Console

    class Ours(Console):
        def on_broken_pipe(self) -> None:
            # Rich's own ends the program with the exit status 1, which is that of a failure.
            raise BrokenPipeError

    return Ours(stderr=stderr, highlight=False)
