"""The terminal, or the pipe, that a command writes its result to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def output() -> Console:
    """Return rich's console of the standard output; BrokenPipeError where its reader is gone.

    Rich's own ends the program with the exit status 1, which is that of a failure.
    """
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Output(highlight=False)
