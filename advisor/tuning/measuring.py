"""What a study and a verification of a plan have in common: they measure within a budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import StudyResult
from gpuadvisor.errors import Interrupted
from gpuadvisor.storage.home import home
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.equivalence import tolerance_of
from gpuadvisor.tuning.budgeting.budget import Budget
from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit, schedule_for
from gpuadvisor.tuning.options import TuneOptions
from gpuadvisor.tuning.outcome.recorder import StudyRecorder
from gpuadvisor.tuning.preparation import gpu_contention
from gpuadvisor.tuning.rehearsal import Rehearser
from gpuadvisor.tuning.trials.evaluator import ScriptEvaluator
from gpuadvisor.tuning.trials.first_run import FirstRun
from gpuadvisor.tuning.trials.forking import Forker
from gpuadvisor.tuning.trials.leftovers import left_since, look
from gpuadvisor.tuning.trials.trial_runner import BASELINE, Progress


@dataclass
class Measuring:
    """What measures a script, and tells of it, in progress."""

    measures_as: ClassVar[BudgetLimit | None] = None
    """Budget whose runs measure for as long as those here; None for its own."""

    options: TuneOptions
    devices: list[Device]
    knobs: Mapping[str, Knob]
    recorder: StudyRecorder
    progress: Progress
    cancelled: Callable[[], bool]
    first: FirstRun | None = field(default=None, kw_only=True)
    """The unchanged script's first run, if it has begun."""

    def __post_init__(self) -> None:
        self._began_s = time.monotonic()
        self._budget = Budget(self.options.budget, self.knobs)
        self._notes: list[str] = []
        self._entered = ("", "")
        self._evaluator = ScriptEvaluator(
            self.options,
            self.devices,
            self.knobs,
            self._budget,
            self.progress,
            self.recorder.keep,
            self.cancelled,
            schedule_for(self.measures_as or self.options.budget),
        )
        if self.first is not None:
            self._evaluator.runner.begun = self.first.outcome

    @property
    def _wall_s(self) -> float:
        return time.monotonic() - self._began_s

    @property
    def _baseline(self) -> Measurement:
        baseline = self._evaluator.validator.baseline
        assert baseline is not None  # without it, measuring it raised
        return baseline

    @cached_property
    def _rehearser(self) -> Rehearser:
        """Rehearses whatever is asked: the unchanged script lives for all of it together."""
        options, baseline = self.options, self._baseline
        return Rehearser(
            self._evaluator.side({}, self.devices[0]),
            self.knobs,
            tolerance_of(options.level, options.tolerance),
            options.seed,
            samples_per_step=baseline.samples_per_step,
            step_ms=baseline.mean_step_ms,
            cancelled=self.cancelled,
            progress=self.progress,
        )

    @cached_property
    def _forker(self) -> Forker:
        """Decides whether runs are forked; proofs only on a GPU."""
        notes = self.first.notes if self.first is not None else None
        return Forker(self._evaluator.runner, self.options, notes, self.devices[0].is_gpu)

    def _enter(self, phase: str, detail: str = "") -> None:
        """Begin a phase, and tell of it unless the last one was told of in the same words."""
        self._budget.phase = phase
        if (phase, detail) != self._entered:
            self.progress.on_phase(phase, detail)
        self._entered = phase, detail

    def _note(self, sentence: str) -> None:
        if sentence:
            self._notes.append(sentence)
            self.progress.on_message(sentence)

    def _enter_baseline(self) -> None:
        """Enter it, where the first run has not begun, and say what may spoil its figures."""
        if self.first is not None:
            warnings = self.first.warnings
        else:
            self._enter(*BASELINE)
            warnings = tuple(filter(None, map(gpu_contention, self.devices)))
        for warning in warnings:
            self._note(warning)

    def _check_measured(self, why: str) -> None:
        """Raise Interrupted where what ends for some reason has not measured the script."""
        if self._evaluator.validator.baseline is None:
            raise Interrupted(f"{why} before the unchanged script was measured")

    def _storing(self, plan: Path) -> Callable[[StudyResult], StudyResult]:
        """Return what stores a result and returns it, with what runs leave behind from now on, or
        have since the first one began."""
        command, first = self.options.command, self.first
        before = first.before if first is not None else None
        before = None if self.options.scratch else before or look(command)

        def stored(result: StudyResult) -> StudyResult:
            if before is not None:
                result = replace(result, left=left_since(before, command, (plan, home())))
            self.recorder.finish(result)
            return result

        return stored
