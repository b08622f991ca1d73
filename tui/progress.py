"""What `tune` and `gate` show while they work: a line a run, and a status line on a terminal."""

from __future__ import annotations

import math
import threading
import time
from typing import Self

from rich.console import Console
from rich.status import Status
from rich.text import Text

from gpuadvisor.collectors.script.request import Event
from gpuadvisor.domain.gate import GateRun
from gpuadvisor.domain.knobs import Settings, shown_value
from gpuadvisor.domain.loader_supply import Supplied
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.screening import Screened, ScreenedAs
from gpuadvisor.domain.study import Objective, Trial, TrialState
from gpuadvisor.printable import printable
from gpuadvisor.reports import figures
from gpuadvisor.reports.render_text import Line, print_lines

_TITLES = {
    "baseline": "Baseline",
    "profile": "Profile",
    "loader": "Loader alone",
    "finding": "Finding",
    "screening": "Screening",
    "search": "Search",
    "ablation": "Ablation",
    "proof": "Proof",
    "rehearsal": "Rehearsal",
}
_PLACES = {
    "first": "does it run",
    "known": "how much its runs differ",
    "counted": "what it counts",
    "again": "does it still run",
}
_STAGES = {"step": "warming up", "compiled": "compiling", "warm": "measuring"}
ENOUGH_S = 1.0
"""Seconds of counted steps after which they are told. They come after the script is warm, so that a
script whose start takes 10 s is told of within 15."""
ENOUGH_STEPS = 5
NEARLY_ALL = 0.95
"""Part of the time above which what is left without waiting is too short to give a bound."""
RESTING = "if all else takes as long as now"


class ConsoleProgress:
    """Writes to one console; on a pipe it writes the lines and leaves the status out."""

    def __init__(self, console: Console, objective: Objective = Objective.THROUGHPUT) -> None:
        self._console = console
        self._objective = objective
        self._lock = threading.RLock()
        self._status: Status | None = None
        self._running: dict[int, str] = {}
        self._lives: list[str] = []
        """Names of the shortened lives that are being lived."""
        self._stages: dict[int, str] = {}
        self._deadline_s: float | None = None
        self._best = 1.0
        self._first: int | None = None
        """Number of the unchanged script's first run, until that has ended."""
        self._first_look: FirstLook | None = FirstLook()
        """What is told of the script's first steps; None once a run of it was measured."""
        self._standing: Settings = {}
        self._untimed: dict[tuple[str, str], list[str]] = {}
        """Values that nothing is known of, by their knob and the reason, and not told yet."""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status = self._console.status("Getting ready ...")
            self._status.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._tell_untimed()
        if self._status is not None:
            self._status.stop()

    def on_message(self, sentence: str) -> None:
        with self._lock:
            self._tell_untimed()
            print_lines(self._console, [Line(sentence, "dim", margin=2)])

    def on_phase(self, name: str, detail: str = "") -> None:
        with self._lock:
            text = Text(_TITLES.get(name, name), style="bold")
            self._print_row(text.append(f"  {detail}", style="dim") if detail else text)

    def on_trial_start(self, number: int, settings: Settings, phase: str) -> None:
        with self._lock:
            self._running[number] = _label(settings, phase, self._standing)
            self._stages[number] = "starting"
            if phase == "baseline" and self._first is None:
                self._first = number
            self._refresh()

    def on_event(self, number: int, event: Event) -> None:
        stage = _STAGES.get(event["event"])
        with self._lock:
            look = self._first_look if number == self._first else None
            if look is not None and (sentence := look.take(event)):
                self.on_message(sentence)
            if stage is not None and number in self._running:
                self._stages[number] = stage
                self._refresh()

    def on_time_left(self, seconds: float | None) -> None:
        with self._lock:
            self._deadline_s = None if seconds is None else time.monotonic() + seconds
            self._refresh()

    def on_trial_end(self, trial: Trial) -> None:
        with self._lock:
            label = self._running.pop(trial.number, None)
            self._stages.pop(trial.number, None)
            self._print(trial, label or _label(trial.settings, trial.phase, self._standing))
            if trial.number == self._first and self._first_look is not None:
                self._end_first(trial)
            self._refresh()

    def _end_first(self, trial: Trial) -> None:
        """Say what the unchanged script's first run shows; the next is looked at if it failed."""
        self._first, self._first_look = None, FirstLook()
        if trial.measurement is not None:
            self._first_look = None
            if sentence := loader_bound(trial.measurement):
                self.on_message(sentence)

    def on_life_start(self, name: str) -> None:
        with self._lock:
            self._lives.append(name)
            self._refresh()

    def on_life_end(self, name: str, seconds: float, problem: str = "") -> None:
        with self._lock:
            if name in self._lives:
                self._lives.remove(name)
            line = Text(f"      {f'{name}, shortened':<42} ")
            if problem:
                # What a script raised may hold anything, commands to the terminal too.
                line.append(printable(problem), style="yellow")
            else:
                line.append(f"{figures.duration(seconds):>10}")
            self._print_row(line)
            self._refresh()

    def on_screened(self, screened: Screened) -> None:
        with self._lock:
            value = shown_value(screened.value)
            if screened.ratio is None and screened.state is ScreenedAs.UNRESOLVED:
                self._untimed.setdefault((screened.knob, screened.why), []).append(value)
                return
            label = f"{screened.knob}={value}"
            if screened.beside:
                label += f" beside {', '.join(screened.beside)}"
            line = Text(f"      {label:<42} ")
            found, spent = screened.ratio, f"  {figures.duration(screened.seconds)}"
            if found is None:
                # What a script raised may hold anything, commands to the terminal too.
                line.append(printable(screened.why), style="yellow")
            else:
                digits = figures.ratio_decimals(found.low, found.high)
                gains = screened.state in (ScreenedAs.GAINS, ScreenedAs.KEPT)
                line.append(f"{figures.ratio(found.ratio, digits):>10}", "green" if gains else "")
                of_what = " of the computing" if screened.of_computing else ""
                interval = figures.interval(found.low, found.high)
                line.append(f"{of_what}  ({interval}){spent}", "dim")
                if screened.state is ScreenedAs.UNRESOLVED:
                    line.append("  not decided", "dim")
            self._print_row(line)

    def on_supplied(self, supplied: Supplied) -> None:
        with self._lock:
            line = Text(f"      {figures.settings(supplied.settings):<42} ")
            if supplied.batch_ms is None:
                # What a script raised may hold anything, commands to the terminal too.
                line.append(printable(supplied.failed), style="yellow")
            else:
                line.append(f"{figures.milliseconds(supplied.batch_ms):>10}")
                line.append(f" a batch  {figures.duration(supplied.seconds)}", "dim")
            self._print_row(line)

    def on_best(self, settings: Settings, gain: float) -> None:
        with self._lock:
            self._best, self._standing = gain, settings
            self._refresh()

    def _print(self, trial: Trial, label: str) -> None:
        line = Text(f"{trial.number:>4}  {label:<42} ")
        if trial.measurement is None or trial.state is not TrialState.COMPLETE:
            # What a script raised may hold anything, commands to the terminal too.
            reason = f": {printable(trial.reason)}"
            line.append(f"{trial.state}", style="yellow").append(reason, style="dim")
        else:
            measured = [figures.milliseconds(trial.measurement.mean_step_ms)]
            if self._objective is Objective.MEMORY:
                measured.append(figures.memory(trial.measurement.peak_memory_bytes))
            elif self._objective is Objective.ENERGY:
                measured.append(figures.energy(trial.measurement.energy_j_per_step))
            elif self._objective is Objective.THROUGHPUT and figures.steps_vary(trial.measurement):
                run = trial.measurement
                measured.append(figures.throughput(run.throughput, run.throughput_unit))
            line.append("".join(f"{figure:>10}  " for figure in measured))
            # A proof compares the runs of its pairs, and none with the script's first runs.
            if trial.gain and trial.settings and trial.phase != "proof":
                style = "green" if trial.gain > 1.01 else ""
                line.append(f"{figures.ratio(trial.gain):>6}", style=style)
        self._print_row(line)

    def _tell_untimed(self) -> None:
        """Print a line for each knob of which values were not timed, for one reason."""
        untimed, self._untimed = self._untimed, {}
        for (knob, why), values in untimed.items():
            label = f"{knob}={', '.join(values)}"
            line = Text(f"      {label:<42} ")
            self._print_row(line.append(printable(why), "yellow"))

    def _print_row(self, row: Text) -> None:
        """Print a row of one line on a pipe; a terminal breaks it between words."""
        self._tell_untimed()
        row.rstrip()
        self._console.print(row, soft_wrap=not self._console.is_terminal)

    def _refresh(self) -> None:
        if self._status is None:
            return
        parts = [f"{label} ({self._stages[number]})" for number, label in self._running.items()]
        parts += [f"{name} (shortened, to its end)" for name in self._lives]
        text = ", ".join(parts) or "thinking"
        if self._deadline_s is not None:
            left = int(self._deadline_s - time.monotonic())
            later = f"at most {left // 60}:{left % 60:02d} left"
            text += f" - {later if left > 0 else 'past the budget'}"
        if self._best > 1:
            text += f" - best so far {figures.ratio(self._best)}"
        self._status.update(Text(text))


def _label(settings: Settings, phase: str, standing: Settings) -> str:
    """Name a run by what is new in it."""
    if not settings:
        return "baseline"
    if phase == "proof":
        return "best"
    new = [f"{n}={shown_value(v)}" for n, v in settings.items() if standing.get(n) != v]
    gone = [n for n in standing if n not in settings]
    if phase == "ablation":
        return f"best without {', '.join(gone)}" if gone else "best"
    return " ".join([*(f"+ {text}" for text in new), *(f"- {name}" for name in gone)]) or "best"


class FirstLook:
    """Hears of the events of one run, and says once what the first counted steps look like."""

    def __init__(self) -> None:
        self._process: int | None = None
        self._windows: list[Event] = []
        self._told = False

    def take(self, event: Event) -> str | None:
        """Take an event; return a sentence at the first one that makes enough steps."""
        if self._told:
            return None
        match event["event"]:
            case "step":  # from here on steps are counted by a better marker
                self._process = None
                self._windows.clear()
            case "dropped":
                del self._windows[: event["windows"]]
            case "window" if self._process in (None, event["pid"]):
                self._process = event["pid"]
                self._windows.append(event)
                enough = self._total("steps") >= ENOUGH_STEPS
                self._told = enough and self._total("seconds") >= ENOUGH_S
        return self._sentence() if self._told else None

    def _total(self, name: str) -> float:
        return math.fsum(window[name] for window in self._windows)

    def _sentence(self) -> str:
        seconds, loaded = self._total("seconds"), self._total("loader_samples")
        step_ms = 1e3 * seconds / self._total("steps")
        parts = [f"first look: {figures.milliseconds(step_ms)} a step"]
        if samples := loaded or self._total("root_samples"):
            parts.append(figures.throughput(samples / seconds, "samples/s"))
        if loaded:
            waiting = figures.percent(self._total("data_wait_s") / seconds)
            parts.append(f"{waiting} of it waiting for the DataLoader")
        return ", ".join(parts) + "; not settled yet"


def loader_bound(measurement: Measurement) -> str | None:
    """Return what a run says of its DataLoader's worth; None where it has none.

    More workers may slow down all else, and waiting for none may make it faster: of a GAN on an
    H200 a step took 45 ms, 29 % of it waiting, and 15 with a batch that was there.
    """
    if not measurement.facts.loaders:
        return None
    share = measurement.data_wait_share
    workers = figures.count(measurement.facts.loaders[0].num_workers, "worker")
    waits = f"{figures.percent(share)} of that is waiting for the DataLoader ({workers})"
    if share >= NEARLY_ALL:
        return f"{waits}: loading decides its speed"
    if not share:
        return f"none of that is waiting for the DataLoader ({workers})"
    most = math.ceil(100 / (1 - share)) / 100
    idle = measurement.starved_share
    if idle == share:
        return f"{waits}: without it a step would be {figures.ratio(most)} as fast, {RESTING}"
    return (
        f"{waits}, while the GPU has nothing to do in {figures.percent(idle)}: without it a step"
        f" would be about {figures.ratio(1 / (1 - idle))} as fast, {figures.ratio(most)} at most, "
        f"{RESTING}"
    )


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
