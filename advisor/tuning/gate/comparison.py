"""The gate: runs two versions of a script in turns, and says whether the new one got worse."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from gpuadvisor.collectors.clocks import ClockSampler
from gpuadvisor.collectors.environment import environment
from gpuadvisor.collectors.interpreter import TargetPython
from gpuadvisor.collectors.script.request import Event
from gpuadvisor.collectors.script.specification import Schedule
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.gate import GateResult, GateRun, GateVerdict
from gpuadvisor.domain.knobs import Level
from gpuadvisor.domain.study import Objective, TrialState
from gpuadvisor.errors import RefusedError, ScriptError, UsageError
from gpuadvisor.tuners.gate.comparing import Compared, Comparing
from gpuadvisor.tuners.proof import Delay
from gpuadvisor.tuning.gate.options import GateOptions
from gpuadvisor.tuning.gate.sides import ReadySide, both_sides
from gpuadvisor.tuning.preparation import (
    devices_for,
    gpu_contention,
    reserved,
    target_python,
)
from gpuadvisor.tuning.trial_runner import Progress, Side, Silent, TrialRunner
from gpuadvisor.tuning.validator import TrialValidator

FIRST = Schedule(warmup_s=0.0, measure_s=0.2, min_steps=2)
"""The first run of a version only shows whether it works. It is not compared: it finds caches of
files, byte code and compiled kernels empty."""
KNOWN = 2
"""Runs of the base before the pairs, which say how much its runs differ: with them four pairs can
show a gross regression."""
OF_GPU = "GPU"
"""Word by which `collectors.load` tells what disturbed the GPU, not the CPU."""


class GateProgress(Protocol):
    """Hears of everything as it happens."""

    def on_message(self, sentence: str) -> None:
        """Show a sentence to the user."""

    def on_run_start(self, side: str, place: str) -> None:
        """Note that a run of a version begins, and what it is for."""

    def on_run_end(self, run: GateRun) -> None:
        """Note that it ended."""


def gate(
    options: GateOptions, progress: GateProgress, cancelled: Callable[[], bool] = lambda: False
) -> GateResult:
    """Compare two versions of a script on the first GPU that it would see, else on the CPU.

    Raises UsageError for what cannot be done, RefusedError where something else uses the GPU or
    holds it down, ScriptError where the script fails in both versions, and Interrupted when it was
    cancelled. No work tree and no process is left in any case.
    """
    if options.tolerance >= options.limit:
        raise UsageError("--tolerance has to be smaller than --limit")
    python = target_python(options.command)
    options = replace(options, command=replace(options.command, python=python.executable))
    device = devices_for(python, 1)[0]
    with reserved([device]), both_sides(options, python) as (base, head, notes):
        if warning := gpu_contention(device):
            raise RefusedError(f"{warning}; wait until it is free, or choose another GPU")
        for note in notes:
            progress.on_message(note)
        return _Gate(options, python, device, base, head, progress, cancelled, notes).run()


@dataclass
class _Gate:
    """A gate in progress."""

    options: GateOptions
    python: TargetPython
    device: Device
    base: ReadySide
    head: ReadySide
    progress: GateProgress
    cancelled: Callable[[], bool]
    notes: tuple[str, ...]
    runs: list[GateRun] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)
    """The end of what each side's last run printed."""

    def __post_init__(self) -> None:
        self._began_s = time.monotonic()
        self._clock = ClockSampler(self.device)
        self._delay = Delay(str(self.options.seed))
        self._validator = TrialValidator(Objective.THROUGHPUT, Level.BALANCED, None, {})
        listen: Callable[[GateProgress, ClockSampler], Progress] = _Ears
        self._runner = TrialRunner(
            {},
            self._validator,
            FIRST,
            self.options.seed,
            self.options.samples_per_step,
            self.options.timeout_s,
            cancelled=self.cancelled,
            progress=listen(self.progress, self._clock),
            delay_s=lambda: self._delay.next_s([run.trial for run in self.runs]),
        )

    def run(self) -> GateResult:
        first = {side: self._run(side, "first") for side in ("base", "head")}
        if any(run.trial.state is not TrialState.COMPLETE for run in first.values()):
            return self._broken(first)
        self._runner.schedule = Schedule(measure_s=self.options.measure_s)
        known = [self._run("base", "known") for _ in range(KNOWN)]
        compared = Comparing(
            self._run,
            [run for run in known if run.trial.state is TrialState.COMPLETE],
            self.options.tolerance,
            self.options.limit,
            str(self.options.seed),
            self._disturbed,
        ).go()
        if compared.failed is not None:
            return self._broken({compared.failed.side: compared.failed}, compared)
        return self._result(compared.verdict, "", compared)

    def _run(self, side: str, place: str) -> GateRun:
        version = self.base if side == "base" else self.head
        self.progress.on_run_start(side, place)
        # A new process for each; the phase is one in which none is forked and delays are drawn.
        self._clock.end()
        trial, outcome = self._runner.run(
            Side(version.command, self.device, environment=version.environment), "proof"
        )
        self.outputs[side] = outcome.output
        # `Delay` and readers of the trials tell the sides apart by their settings.
        trial = replace(trial, settings={} if side == "base" else {"version": "head"})
        if self._validator.baseline is None and side == "base" and trial.measurement is not None:
            self._validator.baseline = trial.measurement  # limits of all further runs
        run = GateRun(side, trial, self._clock.end(), place)
        self.runs.append(run)
        self.progress.on_run_end(run)
        return run

    def _disturbed(self, disturbance: str, repeated: bool) -> None:
        """Refuse where something else has the GPU or holds it down; else say it."""
        if repeated:
            self.progress.on_message(f"this pair is run again: {disturbance}")
        elif OF_GPU in disturbance:
            raise RefusedError(
                f"{disturbance}, also when runs were repeated: versions cannot be compared so; "
                "wait until the GPU is free and cool, or choose another one"
            )

    def _broken(self, failed: dict[str, GateRun], compared: Compared | None = None) -> GateResult:
        """Return what follows where a version does not run; ScriptError where neither does."""
        why = {
            side: f"{str(run.trial.state).replace('_', ' ')}: {run.trial.reason}"
            for side, run in failed.items()
            if run.trial.state is not TrialState.COMPLETE
        }
        if len(why) == 2:
            raise ScriptError(
                f"the script fails in both versions ({why['base']}): it has to run before its "
                "speed can be compared",
                self.outputs["base"],
            )
        (broken,) = why
        version = self.base if broken == "base" else self.head
        if broken == "head":
            verdict = GateVerdict.FAIL
            reason = (
                f"{version.side.name} is broken where {self.base.side.name} runs: {why['head']}"
            )
        else:
            verdict = GateVerdict.INCONCLUSIVE
            reason = (
                f"{version.side.name} is broken, so there is nothing to compare with: {why['base']}"
            )
        result = self._result(verdict, reason, compared or Compared())
        return replace(result, broken=broken, output=self.outputs[broken])

    def _result(self, verdict: GateVerdict, reason: str, compared: Compared) -> GateResult:
        here = environment(self.python, self.device, self.head.command.script)
        return GateResult(
            verdict,
            reason,
            self.base.side,
            self.head.side,
            compared.differences,
            compared.pairs,
            tuple(self.runs),
            None,
            self.notes,
            replace(here, git_commit=None, git_dirty=None),
            time.monotonic() - self._began_s,
        )


class _Ears(Silent):
    """Hears of a run for the gate: it has clocks read while steps are measured."""

    def __init__(self, progress: GateProgress, clock: ClockSampler) -> None:
        self._progress, self._clock = progress, clock

    def on_message(self, sentence: str) -> None:
        self._progress.on_message(sentence)

    def on_event(self, number: int, event: Event) -> None:
        if event["event"] == "warm":
            self._clock.begin()
        elif event["event"] == "measured":
            self._clock.pause()
