"""Proves settings of a study, and rehearses them as soon as they are shown to be faster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from gpuadvisor.domain.knobs import Contribution, Settings, Value
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import Rehearsal, StudyResult
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.equivalence import TOLERANCES
from gpuadvisor.tuners.proof import is_faster, prove_point
from gpuadvisor.tuners.rehearsal.comparison import as_trials_showed, missing
from gpuadvisor.tuning.budget import Budget
from gpuadvisor.tuning.evaluator import ScriptEvaluator
from gpuadvisor.tuning.options import TuneOptions
from gpuadvisor.tuning.rehearsal import Rehearsed, Rehearser, harmless_part
from gpuadvisor.tuning.results import proven, typical
from gpuadvisor.tuning.trial_runner import Progress, Side


@dataclass
class Prover:
    """Makes the proofs and rehearsals of one study."""

    options: TuneOptions
    side: Side
    """The unchanged script, on the study's first device."""
    knobs: Mapping[str, Knob]
    evaluator: ScriptEvaluator
    budget: Budget
    progress: Progress
    cancelled: Callable[[], bool]
    enter: Callable[[str, str], None]
    """Begins a phase, of which it gets the name and a few words."""
    note: Callable[[str], None]
    """Keeps a sentence for the study's result."""
    undecided: Callable[[], StudyResult]
    """Returns the study's result without a gain."""
    without: Callable[[Settings, str], Settings]
    """Takes a knob out of settings, with those that need it."""
    rehearsed: Rehearsed = field(default_factory=lambda: Rehearsed({}, None))
    """What is left of the settings that were proven last, and all that was ever taken out."""
    _proofs: int = 0
    """Proofs that were made: of several, each has to be surer."""

    def prove(
        self, settings: Settings, contributions: tuple[Contribution, ...] = ()
    ) -> StudyResult:
        """Prove settings, and rehearse them as soon as a gain is shown; then the rest of them where
        some do harm.
        """
        if self.rehearsed.settings != settings:
            self.rehearsed = Rehearsed(settings, None, self.rehearsed.dropped)
        if not settings:
            return self.undecided()
        if not self.budget.has_room_for_proof(settings):
            self.note(f"the budget left no room to prove {format_settings(settings)}")
            return replace(self.undecided(), settings=settings)
        self.enter("proof", "fresh processes, best and baseline in turn")
        objective, seed = self.options.objective, str(self.options.seed)
        proof = prove_point(
            self.evaluator, settings, objective, seed, self._proofs, lambda: self._goes_on(settings)
        )
        self._proofs += 1
        if proof.failed is not None:
            which = "best" if proof.failed in proof.head else "unchanged script"
            self.note(
                f"the {which} failed in the proof, so nothing is claimed for "
                f"{format_settings(settings)}: {proof.failed.state}: {proof.failed.reason}"
            )
        result = proven(self.undecided(), settings, contributions, proof)
        if is_faster(result.speedup) and self.rehearsed.rehearsal is None:
            self._rehearse(settings)
        if self.rehearsed.settings != settings:
            return self.prove(self.rehearsed.settings, contributions)
        rehearsal = self.rehearsed.rehearsal
        if rehearsal is None:
            return result
        rehearsal = as_trials_showed(rehearsal, proof.head)
        return replace(result, rehearsal=rehearsal, equivalence=rehearsal.equivalence)

    def _goes_on(self, settings: Settings) -> bool:
        """Rehearse what a proof has shown to be faster, and say whether the proof goes on to know
        better how much.
        """
        if self.rehearsed.rehearsal is not None or not self._allowed_s(settings):
            return True
        goes_on = self._rehearse(settings) and self.evaluator.affordable([{}, settings])
        if goes_on:
            self.enter("proof", "more pairs, to know better how much is gained")
        return goes_on

    def _rehearse(self, settings: Settings) -> bool:
        """Let the script live its whole life in short, and leave out what does harm there.

        Return whether nothing does; else what is left has to be proven by itself.
        """
        earlier, objective = self.rehearsed.dropped, self.options.objective
        self.enter("rehearsal", "a shortened life, to the script's end; nothing it writes remains")
        best = typical([t for t in self.evaluator.trials if t.settings == settings], objective)
        step_ms = best.measurement.mean_step_ms if best and best.measurement else None

        def rehearse(some: Settings) -> Rehearsal:
            self._rehearser.allowed_s = self._allowed_s(settings)
            found = self._rehearser.rehearse(some, step_ms)
            self.budget.durations.record_rehearsal(some, found.wall_s)
            return found

        self.rehearsed = harmless_part(
            rehearse, settings, self.without, lambda: self._allowed_s(settings) > 0
        )
        for each in self.rehearsed.dropped:
            self.note(f"{each.knob} is left out: {each.problem.sentence}")
        self.rehearsed.dropped = earlier + self.rehearsed.dropped
        lacks = missing(self.rehearsed.rehearsal)
        if self.rehearsed.settings and lacks is not None:
            self.progress.on_message(f"not rehearsed enough: {lacks}")
        self.budget.phase = "proof"
        return self.rehearsed.settings == settings

    def _allowed_s(self, settings: Settings) -> float:
        """Return how long a rehearsal of proven settings may take now."""
        return self.budget.rehearsal_s(settings, is_proven=True)

    @cached_property
    def _rehearser(self) -> Rehearser:
        """Rehearses all that a study finds: the unchanged script lives for all of it together."""
        options, baseline = self.options, self._baseline
        tolerance = TOLERANCES[options.level] if options.tolerance is None else options.tolerance
        return Rehearser(
            self.side,
            self.knobs,
            tolerance,
            options.seed,
            samples_per_step=baseline.samples_per_step,
            step_ms=baseline.mean_step_ms,
            cancelled=self.cancelled,
            progress=self.progress,
        )

    @property
    def _baseline(self) -> Measurement:
        baseline = self.evaluator.validator.baseline
        assert baseline is not None  # nothing is proven without
        return baseline


def format_settings(settings: Mapping[str, Value]) -> str:
    """Return settings in words."""
    return ", ".join(f"{name}={value}" for name, value in settings.items())
