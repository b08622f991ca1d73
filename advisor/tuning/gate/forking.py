"""Runs of both versions that begin in one process which has imported libraries already.

The first run of each version notes what it imports. One process imports what both do alike, until
the first difference and nothing of their own code, and runs of both are forked from it: what the
memory of libraries looks like is then the same for both, too. Forked runs are compared with fresh
ones, and where anything differs all are fresh.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

from gpuadvisor.collectors.script.request import RunOutcome
from gpuadvisor.collectors.script.run_folder import run_folder
from gpuadvisor.collectors.script.runner import begin_template, start_common_template
from gpuadvisor.collectors.script.templates import NoTemplateError, in_common, noted
from gpuadvisor.domain.measurement import Measurement, Trace
from gpuadvisor.domain.study import Objective
from gpuadvisor.tuners.gate.comparing import SHORT
from gpuadvisor.tuning.trials.forking import TemplateKeeper, computed, difference
from gpuadvisor.tuning.trials.trial_runner import Side, TrialRunner

RETRIES = 1
"""Forked runs of the base whose cost may differ from a fresh one's: a machine that does something
else for a moment makes one run slow."""


class DependsError(Exception):
    """What a forked run did otherwise than fresh ones, as a clause."""


class FailedError(DependsError):
    """A forked run that failed, as a clause: whether fresh ones do, too, is not known yet."""


class Forks(TemplateKeeper):
    """Has a gate's runs forked from one process, and looks whether that is no matter."""

    def __init__(self, runner: TrialRunner) -> None:
        super().__init__(runner)
        self._folder = self._held.enter_context(run_folder())
        self._fresh: dict[str, list[RunOutcome]] = {}
        self._alike: set[str] = set()
        """Sides of which a forked run was compared already."""
        self._disturbed = ""
        """What used the machine beside the base's runs, so that costs were not compared."""
        self._retries = 0
        self._firsts_serve = False
        """Whether the first runs of both versions are the two fresh ones that forked runs are
        compared with."""
        self.retried = ""
        """Why the last run does not count, as a sentence."""
        runner.proofs_fork = True

    @property
    def told(self) -> str:
        """What the user should know of forked runs; empty where there are none."""
        if self._template is None:
            return ""
        how = "runs were forked from a process that had imported what both versions import alike"
        same = "; compared with fresh ones, they computed the same, and the base's cost the same"
        if self._disturbed:
            same = (
                "; compared with fresh ones, they computed the same; what a step costs was not "
                f"compared, as beside the base's runs {self._disturbed}"
            )
        return how + same * (len(self._alike) == 2)

    def begin_ahead(self, base: Side, own: Sequence[str]) -> None:
        """Start the process while the head has its first run: mostly it imports what the base does.

        Beside a run that counts only for whether it works, that is no matter; `begin` decides
        whether it will do.
        """
        if not self._runner.may_fork(base.settings):
            return
        with suppress(NoTemplateError):
            phases = in_common([noted(self._notes("base"))], own)
            self._begun = begin_template(self._runner.request(base, "proof"), phases)

    def begin(self, versions: Mapping[str, Side], own: Sequence[str]) -> None:
        """Start the process from which runs of these versions are forked.

        In the folders `own` nothing is a library. NoTemplateError where it cannot be had.
        """
        if not all(self._runner.may_fork(side.settings) for side in versions.values()):
            raise NoTemplateError("what a plan sets is set before anything is imported")
        requests = [self._runner.request(side, "proof") for side in versions.values()]
        phases = in_common([noted(self._notes(side)) for side in versions], own)
        begun, self._begun = self._begun, None
        self._template = start_common_template(requests, phases, begun)
        self._firsts_serve = self._computed_alike()

    def _computed_alike(self) -> bool:
        """Say whether the first runs of both versions computed exactly the same, as far as both
        went: then they are two fresh runs, of which the base's was measured."""
        firsts = [self._fresh.get(side, [])[:1] for side in ("base", "head")]
        if any(run.disturbance for run in firsts[0]):
            return False  # so that its cost would not be compared
        traces = [m.trace for runs in firsts for run in runs if (m := run.measurement) is not None]
        if len(traces) < 2:
            return False
        kinds = [(one, two) for one, two in zip(*map(_parts, traces), strict=True) if one and two]
        return bool(kinds) and all(_agreed(*each) == min(map(len, each)) for each in kinds)

    def before(self, side: str, place: str) -> None:
        """Decide how the next run begins."""
        is_first = place == "first"
        self._runner.notes = str(self._notes(side)) if is_first else None
        # Of the base one fresh run is measured, and two are compared.
        known = self._firsts_serve or len(self._fresh.get("base", ())) > 1
        self._runner.template = self._template if known or place != "known" else None

    def after(self, side: str, place: str, outcome: RunOutcome) -> bool:
        """Return whether a run counts; DependsError where a forked one differs from fresh ones.

        It counts for nothing where only its cost differs, for the first time.
        """
        run = outcome.measurement
        if run is None:
            if outcome.forked:
                raise FailedError(f"the {side} could not be measured ({outcome.reason})")
            return True
        if not outcome.forked:
            if self._runner.template is not None:
                raise DependsError("the process from which runs were forked has ended")
            self._fresh.setdefault(side, []).append(outcome)
            return True
        if place.endswith(SHORT) or side in self._alike:
            return True  # what a fork may do is no factor of two, which fresh runs showed
        why = self._differs(side, outcome)
        if why is None:
            return False
        if why:
            raise DependsError(why)
        self._alike.add(side)
        if side == "base":
            fresh_s = self._measured_fresh().startup_s
            self._tell("what both versions import", fresh_s, run.startup_s)
        return True

    def _differs(self, side: str, outcome: RunOutcome) -> str | None:
        """Return what a forked run did otherwise; empty for nothing, None where it is run again."""
        assert outcome.measurement is not None  # the caller has looked
        fresh = self._pair()
        if len(fresh) < 2:
            raise DependsError("there are no fresh runs to compare with, as they failed")
        if side == "head":
            return computed(self._as_base(self._fresh["head"][0]), outcome.measurement)
        of_costs = fresh[0] if self._firsts_serve else fresh[1]
        disturbances = [each.disturbance for each in (outcome, of_costs)]
        self._disturbed = next(filter(None, disturbances), "")
        why = difference(fresh, (), [outcome], Objective.THROUGHPUT)
        slower = ""
        if not (why or self._disturbed):
            slower = difference(fresh, [self._measured_fresh()], [outcome], Objective.THROUGHPUT)
        if slower and self._retries < RETRIES:
            self._retries += 1
            self.retried = "a step of a forked run cost something else: it is run again"
            return None
        if (why or slower) and self._firsts_serve:
            self._firsts_serve = False
            self.retried = (
                f"compared with the first runs, which found caches empty, {why or slower} in a "
                "forked one: the base is run afresh once more"
            )
            return None
        return why or slower

    def _pair(self) -> list[RunOutcome]:
        """Return the two fresh runs that forked ones are compared with; fewer where they failed."""
        if self._firsts_serve:
            return [self._fresh["base"][0], self._fresh["head"][0]]
        return self._fresh["base"][:2]

    def _measured_fresh(self) -> Measurement:
        """Return the fresh run of the base with whose cost those of forked ones are compared."""
        fresh = self._pair()[0 if self._firsts_serve else 1].measurement
        assert fresh is not None  # none without is kept
        return fresh

    def _as_base(self, fresh: RunOutcome) -> list[Measurement]:
        """Return the head's only fresh run twice, with what the two fresh runs agree on."""
        assert fresh.measurement is not None  # none without is kept
        traces = [each.measurement.trace for each in self._pair() if each.measurement]
        trace = replace(
            fresh.measurement.trace,
            losses=fresh.measurement.trace.losses[: _agreed(*(t.losses for t in traces))],
            outputs=fresh.measurement.trace.outputs[: _agreed(*(t.outputs for t in traces))],
        )
        return 2 * [replace(fresh.measurement, trace=trace)]

    def _notes(self, side: str) -> Path:
        return self._folder / f"{side}.json"


def _parts(trace: Trace) -> tuple[Sequence[object], Sequence[object]]:
    return trace.losses, trace.outputs


def _agreed(one: Sequence[object], two: Sequence[object]) -> int:
    """Return how many first values are the same; NaN is equal to NaN here."""
    pairs = zip(one, two, strict=False)
    return sum(1 for _ in takewhile(lambda pair: repr(pair[0]) == repr(pair[1]), pairs))
