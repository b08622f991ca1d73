"""What `gpuadvisor gate` shows while it works: a line a run, and a status line on a terminal."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.status import Status
from rich.text import Text

from gpuadvisor.domain.gate import GateRun
from gpuadvisor.domain.study import TrialState
from gpuadvisor.printable import printable
from gpuadvisor.reports import figures
from gpuadvisor.reports.render_text import Line, print_lines

_PLACES = {
    "first": "does it run",
    "known": "how much its runs differ",
    "counted": "what it counts",
    "again": "does it still run",
}


class ConsoleGateProgress:
    """Writes to one console; on a pipe it writes the lines and leaves the status out."""

    def __init__(self, console: Console, first: str) -> None:
        self._console = console
        self._first = first
        self._status: Status | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status = self._console.status(self._first)
            self._status.start()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._status is not None:
            self._status.stop()

    def on_message(self, sentence: str) -> None:
        print_lines(self._console, [Line(sentence, "dim", margin=2)])

    def on_run_start(self, side: str, place: str) -> None:
        if self._status is not None:
            self._status.update(Text(f"{side}: {_PLACES.get(place, place)}"))

    def on_run_end(self, run: GateRun) -> None:
        trial = run.trial
        line = Text(f"{trial.number:>4}  {run.side:<5} {_PLACES.get(run.place, run.place):<25} ")
        if trial.measurement is None or trial.state is not TrialState.COMPLETE:
            # What a script raised may hold anything, commands to the terminal too.
            line.append(str(trial.state), "yellow").append(f": {printable(trial.reason)}", "dim")
        elif run.place != "first":
            line.append(f"{figures.milliseconds(trial.measurement.mean_step_ms):>10}")
            line.append(f"  {figures.memory(trial.measurement.peak_memory_bytes):>10}", "dim")
        else:
            line.append("yes")
        self._console.print(line, soft_wrap=not self._console.is_terminal)
