"""Runs of one script for the table "By hand", kept as they end, each with the machine it was on.

`by_hand.py` and `hand_compared.py` make them. A call may end at any time: what a file holds is not
run again. Runs of several machines are compared through the unchanged script, which each machine
runs first. Runs that choose something are forked from a process that has imported already, as those
of `tune` are, where one such run of the unchanged script showed nothing else than fresh ones.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from gpuadvisor.collectors.script.request import Command, RunOutcome
from gpuadvisor.collectors.script.runner import start_template
from gpuadvisor.collectors.script.templates import NoTemplateError
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Level, Settings, Value
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import Objective, Trial
from gpuadvisor.errors import UsageError
from gpuadvisor.interruption import stoppable
from gpuadvisor.storage.codec import dumps, loads
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit, schedule_for
from gpuadvisor.tuning.preparation import check_script, devices_for, reserved, target_python
from gpuadvisor.tuning.trials.baselines import measured_baseline, needs_other_seed
from gpuadvisor.tuning.trials.forking import difference
from gpuadvisor.tuning.trials.trial_runner import Side, TrialRunner
from gpuadvisor.tuning.trials.validator import TrialValidator

BASELINE = "baseline"
"""Stage of the unchanged script's first runs on a machine."""
UNCHANGED = "unchanged"
USUAL = "10m"
"""Budget of the study whose length of measurement each run has."""
BOOT = Path("/proc/sys/kernel/random/boot_id")
"""Another text after each start of a machine: proc_sys_kernel(5)."""


class TimeIsUpError(Exception):
    """A further run has no room in this call; those before it are kept."""


@dataclass(frozen=True)
class Run:
    """One run of the script, and the machine it was on."""

    trial: Trial
    machine: str


def key(settings: Settings) -> frozenset[tuple[str, Value]]:
    """Return settings in any order as one key."""
    return frozenset(settings.items())


def cost(trial: Trial) -> float:
    """Return what is to be small: the time of a sample, or of a step without samples."""
    assert trial.measurement is not None
    return Objective.THROUGHPUT.cost(trial.measurement) or math.inf


def shown(settings: Settings) -> str:
    """Return settings in words."""
    return ", ".join(f"{name}={value}" for name, value in settings.items()) or UNCHANGED


def machine_of(device: Device) -> str:
    """Return what tells a device apart from each other, and a machine from itself after a restart:
    where it is had anew its host may have other work."""
    boot = BOOT.read_text("ascii")[:8] if BOOT.exists() else "unknown"
    return f"{(device.uuid or device.kind)[:12]} {boot}"


@dataclass
class Runs:
    """Runs of one script on devices of one kind, kept in a file."""

    state: Path
    command: Command
    device: Device
    machine: str
    """Which machine this is, as `machine_of` tells."""
    until_s: float = math.inf
    """When this call is over, by the monotonic clock: a run that would last beyond is not begun."""
    for_proof: bool = False
    """Whether they choose nothing: then those of other machines do not count, and a knob that finds
    nothing to change is no failure."""
    cancelled: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        self.knobs = load_knobs()
        self.validator = TrialValidator(Objective.THROUGHPUT, Level.BALANCED, None, self.knobs)
        schedule = schedule_for(BudgetLimit.parse(USUAL))
        self._runner = TrialRunner(self.knobs, self.validator, schedule, cancelled=self.cancelled)
        self._baselines: dict[str, list[Run]] = defaultdict(list)
        self._recorded: dict[tuple[str, frozenset[tuple[str, Value]]], deque[Run]] = defaultdict(
            deque
        )
        self._walls: list[float] = []
        """Time of each run that is known, those that were not asked for again included."""
        self.spent: list[float] = []
        """Time of each run that was asked for, recorded ones included, without baselines."""
        self._imports = self.state.with_suffix(".imports")
        """Where the first run on a machine notes what it imports."""
        if not self.for_proof:
            self._runner.notes = str(self._imports)
        for line in self._lines()[1:]:
            known = json.loads(line)
            run = Run(loads(Trial, json.dumps(known["trial"])), known["machine"])
            if run.machine == self.machine or not self.for_proof:
                self._walls.append(run.trial.wall_s)
                self._place(known["stage"], run).append(run)

    @property
    def usual_s(self) -> float:
        """Time that a run usually takes; 0 where there was none."""
        return median(self._walls) if self._walls else 0.0

    @property
    def unchanged(self) -> list[Run]:
        """The unchanged script's first two runs on each machine, once there was a `baseline`."""
        return [run for runs in self._baselines.values() for run in runs[:2]]

    def baseline(self) -> Measurement:
        """Run the unchanged script here until it is known how much two of its runs differ.

        Return what its very first run showed, on whatever machine: the search is led by that, so
        that it goes on as it began. ScriptError where it cannot be measured.
        """
        here = self._baselines[self.machine]
        fresh: list[RunOutcome] = []
        for number, seed in enumerate((None, None, 1)):
            if number == 2 and not needs_other_seed(_measured(here[0])):
                break
            if len(here) <= number:
                fresh.append(self._fresh(BASELINE, {}, seed)[1])
            self.validator.baseline = _measured(here[0])
        traces = [_measured(run).trace for run in here]
        self.validator.comparison.calibrate(traces[:2], traces[2] if traces[2:] else None)
        if not self.for_proof:
            self._fork(fresh, [_measured(run) for run in here])
        return _measured(next(iter(self._baselines.values()))[0])

    def run(self, stage: str, settings: Settings) -> Run:
        """Return the next run of settings in a stage: a recorded one, or else a fresh process.

        TimeIsUpError where this call has no room for it.
        """
        recorded = self._recorded[stage, key(settings)]
        run = recorded.popleft() if recorded else self._fresh(stage, settings)[0]
        self.spent.append(run.trial.wall_s)
        return run

    def close(self) -> None:
        """End the process that runs are forked from."""
        if self._runner.template is not None:
            self._runner.template.close()
            self._runner.template = None

    def _fork(self, fresh: Sequence[RunOutcome], baselines: Sequence[Measurement]) -> None:
        """Have later runs forked where nothing depends on it; say why where they are not.

        What was found out on a machine is kept: in a later call there nothing is fresh to compare
        a forked run with.
        """
        kept = self.state.with_suffix(".forks.json")
        known = json.loads(kept.read_text("utf-8")) if kept.exists() else {}
        why = known.get(self.machine, "" if len(fresh) > 1 else "nothing was there to compare with")
        if not why:
            side = Side(self.command, self.device)
            try:
                self._runner.template = start_template(
                    self._runner.request(side, BASELINE), self._imports
                )
            except NoTemplateError as error:
                why = str(error)
            else:
                forked: list[RunOutcome] = []
                for _ in range(0 if self.machine in known else 2):  # one may have been disturbed
                    forked.append(self._runner.run(side, BASELINE)[1])
                    if not (why := difference(fresh[:2], baselines, forked, Objective.THROUGHPUT)):
                        break
        if why:
            self.close()
        print(f"  runs are {f'not forked: {why}' if why else 'forked'}", file=sys.stderr)
        written(kept, {**known, self.machine: why})

    def _fresh(
        self, stage: str, settings: Settings, seed: int | None = None
    ) -> tuple[Run, RunOutcome]:
        if time.monotonic() + self.usual_s > self.until_s:
            raise TimeIsUpError
        side = Side(self.command, self.device, settings)
        phase = "baseline" if not settings else "proof" if self.for_proof else "search"
        trial, outcome = self._runner.run(side, phase, seed=seed)
        if stage == BASELINE:
            measured_baseline(outcome, self.command)
            self._baselines[self.machine].append(Run(trial, self.machine))
        self._keep(stage, trial)
        self._walls.append(trial.wall_s)
        ms = f"{trial.measurement.mean_step_ms:.2f} ms" if trial.measurement else trial.reason
        number = len(self._walls)
        name = stage.partition(" ")[0]
        print(f"  {number}. {name}: {shown(settings)}: {trial.state} {ms}", file=sys.stderr)
        return Run(trial, self.machine), outcome

    def _place(self, stage: str, run: Run) -> list[Run] | deque[Run]:
        if stage == BASELINE:
            return self._baselines[run.machine]
        return self._recorded[stage, key(run.trial.settings)]

    def _lines(self) -> list[str]:
        """Return the lines of the file, the last of which may have been cut off in writing.

        UsageError where it holds runs of something else.
        """
        if not self.state.exists():
            return []
        whole, newline, rest = self.state.read_text("utf-8").rpartition("\n")
        if rest:
            self.state.write_text(whole + newline, "utf-8")
        lines = whole.splitlines()
        if lines and (known := json.loads(lines[0])) != self._header():
            other = next(name for name, value in self._header().items() if known[name] != value)
            raise UsageError(
                f"{self.state} holds runs with another {other}: {known[other]}, and here it is "
                f"{self._header()[other]}; name another file"
            )
        return lines

    def _keep(self, stage: str, trial: Trial) -> None:
        is_new = not self.state.exists()
        with self.state.open("a", encoding="utf-8") as file:
            if is_new:
                print(json.dumps(self._header()), file=file)
            words = f'"stage":{json.dumps(stage)},"machine":{json.dumps(self.machine)}'
            print(f'{{{words},"trial":{dumps(trial)}}}', file=file)

    def _header(self) -> dict[str, Any]:
        command = self.command
        return {
            "script": command.script,
            "args": list(command.args),
            "is_module": command.is_module,
            "device": self.device.name,
            "cores": self.device.cores,
        }


def _measured(run: Run) -> Measurement:
    assert run.trial.measurement is not None  # a baseline without one is not kept
    return run.trial.measurement


@dataclass(frozen=True)
class Asked:
    """What the command line of a program asks for."""

    options: argparse.Namespace
    command: Command

    @property
    def title(self) -> str:
        return " ".join([self.command.script, *self.command.args])


def asked(parser: argparse.ArgumentParser) -> Asked:
    """Read a command line whose script and arguments follow `--`."""
    parser.add_argument("--python", default=sys.executable, help="interpreter of the script")
    parser.add_argument(
        "--call-seconds", type=float, default=math.inf, help="begin no run that would last longer"
    )
    line = sys.argv[1:]
    own = line.index("--") if "--" in line else len(line)
    options = parser.parse_args(line[:own])
    words = line[own + 1 :]
    is_module = words[:1] == ["-m"]
    if not words[is_module:]:
        parser.error("name the script after --")
    script, *args = words[is_module:]
    return Asked(options, Command(options.python, script, tuple(args), is_module))


@contextmanager
def measuring(asked: Asked, state: Path, for_proof: bool = False) -> Iterator[tuple[Runs, str]]:
    """Yield the runs that a file keeps, and the version of torch, while nobody else measures here.

    AdvisorError where nothing can be measured.
    """
    until_s = time.monotonic() + asked.options.call_seconds
    check_script(asked.command)
    python = target_python(asked.command)
    device = devices_for(python, 1)[0]
    with reserved([device], nullcontext()), stoppable() as stop:
        machine = machine_of(device)
        runs = Runs(state, asked.command, device, machine, until_s, for_proof, stop.requested)
        with closing(runs):
            yield runs, str(python.torch)


def written(path: Path, result: Any) -> None:
    """Write a result, whole or not at all."""
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    draft.replace(path)


def machines_of(runs: Sequence[Run]) -> list[str]:
    """Return the machines of runs, in the order of their first ones."""
    return list(dict.fromkeys(run.machine for run in runs))
