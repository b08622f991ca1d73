"""Asks the running script for values of knobs that nobody can list, before a study's search.

What it shows is a value as any other: screened, tried, rehearsed and proven in fresh processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuadvisor.collectors.script.inquiry import ScriptWitness, patient
from gpuadvisor.collectors.script.request import Limits, RunRequest
from gpuadvisor.collectors.script.specification import Schedule, Specification
from gpuadvisor.collectors.script.templates import Template
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.inquiry import Ended, Found
from gpuadvisor.domain.knobs import Value
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import Objective, Trial
from gpuadvisor.errors import ScriptError
from gpuadvisor.tuners.base import Knob
from gpuadvisor.tuners.knob_space import KnobSpace, knob_parameter
from gpuadvisor.tuning.budgeting.budget import Budget
from gpuadvisor.tuning.options import TuneOptions
from gpuadvisor.tuning.trials.trial_runner import Progress, Silent, limits_for

LEAST_S = 15.0
"""Time, beside the script's start, below which it is not asked: a few dozen configurations of one
Triton kernel take as long."""


@dataclass(frozen=True)
class InOneScript:
    """What a study needs that asks one running script, on its first device."""

    options: TuneOptions
    device: Device
    knobs: Mapping[str, Knob]
    baseline: Measurement
    cores: tuple[int, ...] = ()
    """CPU cores to keep to; empty for all."""
    cancelled: Callable[[], bool] = lambda: False
    progress: Progress = field(default_factory=Silent)
    template: Template | None = None
    """What the script is forked from, where its start allows that; None for a fresh process."""

    def unable(self, needed_s: float, allowed_s: float) -> str | None:
        """Return why nothing that takes so long is timed in one running script within so many
        seconds, as a clause, or None.
        """
        if self.options.objective is not Objective.THROUGHPUT:
            return f"the objective is {self.options.objective}"
        if self.options.budget.seconds is None:
            return "the budget is in trials"
        if needed_s <= allowed_s:
            return None
        room = f"room for {allowed_s:.0f} s of it" if allowed_s >= 1 else "no room for it"
        return f"that would take {needed_s:.0f} s, and the budget has {room}"

    def request(self, specification: Specification, limits: Limits) -> RunRequest:
        """Return the request of a run of the unchanged script, whose seed and cores are those of
        the study's other runs."""
        options = self.options
        return RunRequest(
            options.command,
            replace(specification, seed=options.seed, cores=self.cores),
            self.device,
            limits,
            scratch=options.scratch,
            template=self.template,
            cancelled=self.cancelled,
        )


class ValueFinder(InOneScript):
    """Finds values of one study's knobs."""

    def found(
        self,
        chosen: KnobSpace,
        known: Sequence[Trial],
        budget: Budget,
        enter: Callable[[str, str], None],
        note: Callable[[str], None],
    ) -> KnobSpace:
        """Return the knobs with the values that the script showed.

        Of a study that goes on, `known` trials have them already. `enter` begins a phase, of which
        it gets the name and a few words, `note` keeps a sentence for the study's result. Raises
        Interrupted where the study was cancelled.
        """
        for name in chosen.unfound:
            value = _known_value(name, known)
            if value is not None:
                chosen = self._with(chosen, name, Found(value))
                continue
            alone = not chosen.space.parameters and chosen.unfound == (name,)
            needed_s = budget.expected_s({}) + LEAST_S
            seconds = budget.finding_s(alone, needed_s + LEAST_S)
            if seconds < needed_s:
                enough = budget.enough_to_find(needed_s, alone)
                why = f"finding a value takes {needed_s:.0f} s, and the budget has no room for it"
                why += f": `--budget {enough}` would have, and for its proof"
                chosen = chosen.with_found(name, None, why, enough.seconds)
                continue
            enter("finding", f"a value of {name} in one running script")
            found = self._ask(name, seconds)
            for sentence in found.sentences:
                note(sentence)
            chosen = self._with(chosen, name, found)
        return chosen

    def _ask(self, name: str, seconds: float) -> Found:
        knob = self.knobs[name]
        place = f"{type(knob).__module__}:KNOB"
        try:
            with ScriptWitness(self._request(name, seconds), place, seconds) as script:
                return knob.find(script)
        except (Ended, ScriptError) as error:
            return Found(why=f"the script could not be asked: {error}")

    def _with(self, chosen: KnobSpace, name: str, found: Found) -> KnobSpace:
        parameter = None
        if found.value is not None:
            parameter = knob_parameter(
                self.knobs[name], [found.value], self.device, self.baseline.facts
            )
        return chosen.with_found(name, parameter, found.why)

    def _request(self, name: str, seconds: float) -> RunRequest:
        options = self.options
        limits = limits_for({}, self.knobs, self.baseline, options.timeout_s)
        schedule = Schedule()
        specification = Specification(samples_per_step=options.samples_per_step, schedule=schedule)
        return self.request(specification, patient(limits, seconds))


def _known_value(name: str, trials: Sequence[Trial]) -> Value | None:
    return next((trial.settings[name] for trial in trials if name in trial.settings), None)
