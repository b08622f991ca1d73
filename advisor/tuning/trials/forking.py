"""Runs that begin in a process which has imported already, where nothing depends on that.

The first run of the unchanged script notes what it imports. A process that imports the same beside
the second one is then forked for one more such run, which is compared with the fresh ones: only
where nothing differs are further runs forked. Of each proof at least the first pair is of fresh
processes. Where an earlier study says what fresh runs compute, the first forked one of a proof is
the one that is compared.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from gpuadvisor.collectors.script.request import RunOutcome
from gpuadvisor.collectors.script.run_folder import run_folder
from gpuadvisor.collectors.script.runner import KEPT_BYTES, begin_template, start_template
from gpuadvisor.collectors.script.templates import NoTemplateError, Template, noted
from gpuadvisor.domain.knobs import Level
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import Forking, Objective, Trial, TrialState
from gpuadvisor.tuners.equivalence import (
    SPREAD_FACTOR,
    TOLERANCES,
    is_broken,
    relative_difference,
)
from gpuadvisor.tuners.equivalence import difference as results_apart
from gpuadvisor.tuners.statistics import mean_with_interval, spread_of
from gpuadvisor.tuning.options import TuneOptions
from gpuadvisor.tuning.trials.baselines import Baselines
from gpuadvisor.tuning.trials.first_run import NOTES
from gpuadvisor.tuning.trials.trial_runner import Side, TrialRunner

LEAST_APART = 0.05
"""Relative difference of costs below which two runs are alike: as much as two fresh processes
differ on a quiet machine, at most. Wider where the study's own baselines differ by more."""
TIMED = ("data_wait_share", "idle_while_waiting")
"""Facts of a script that are times, and so never the same."""
ASKED = 2
"""Forked runs of the unchanged script that are compared where the first one's cost alone is another
one: of runs that differ by themselves one says little."""
LEAST_ROUNDING = TOLERANCES[Level.CONSERVATIVE]
"""Relative difference of results within which a forked run may be of a script whose fresh runs
differ by themselves, such as by sums in any order: as much as rounding makes in some steps."""
_NUMBER = re.compile(r"[\d.]+")


class TemplateKeeper:
    """Keeps the process from which a runner's runs are forked."""

    def __init__(self, runner: TrialRunner) -> None:
        self._runner = runner
        self._held = ExitStack()
        self._template: Template | None = None
        self._begun: Template | None = None
        """One that imports, before it is known whether it will do."""

    def close(self) -> None:
        """End it; further runs are fresh, and note nothing of their imports."""
        self._end()
        self._runner.notes = None
        self._held.close()

    def _end(self) -> None:
        self._runner.template = None
        for template in filter(None, (self._template, self._begun)):
            template.close()
        self._template = self._begun = None

    def _tell(self, of: str, fresh_s: float, forked_s: float) -> None:
        """Tell what runs are forked of, and how long either kind takes to its first step, in s."""
        self._runner.start_saved_s = fresh_s - forked_s
        self._runner.progress.on_message(
            f"runs are forked from a process that has imported {of}: the first step comes after "
            f"{forked_s:.1f} s, not {fresh_s:.1f} s"
        )


class Forker(TemplateKeeper):
    """Decides whether a study's runs are forked, and keeps the process of which they are."""

    def __init__(
        self,
        runner: TrialRunner,
        options: TuneOptions,
        notes: Path | None = None,
        proofs_fork: bool = False,
    ) -> None:
        """`notes` is where the first run notes what it imports, if it has begun already."""
        super().__init__(runner)
        self._objective = options.objective
        self._jobs = options.jobs
        self.proofs_fork = proofs_fork
        """Whether runs of a proof may be forked."""
        self._notes = notes or self._held.enter_context(run_folder()) / NOTES
        self._taken_s = 0.0
        """What the comparison took; what is imported beside a run takes nothing."""
        self._why = "that was not compared"
        self._in_proof: _InProof | None = None
        """What the first forked run of a proof is compared with; None where there is no such."""
        self.refusal = ""
        """Why a proof's runs are not forked any more, to be told in the report."""
        runner.notes = str(self._notes)

    def __enter__(self) -> Forker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def has_begun(self) -> bool:
        """Whether a process imports of which nobody knows yet whether it will do."""
        return self._begun is not None

    def begin_ahead(self, side: Side, *others: Side) -> None:
        """Start the process while the script runs once more, which imports the same and then does
        more before its first step; unless runs of `others` could not be forked from it.

        `side` is the unchanged script's.
        """
        if self._jobs > 1:  # for each GPU another would be needed
            return
        with suppress(NoTemplateError):
            request = self._runner.request(side, "baseline")
            self._begun = begin_template(request, noted(self._notes))
            if not all(self._runner.forks(each, self._begun) for each in others):
                self._why = "what is set has to be there before anything is imported"
                self._end()

    def begin(self, side: Side, baselines: Baselines, runs: float) -> str:
        """Fork runs from here on if the unchanged script does not depend on that.

        `runs` is how many the search will make, about. Returns what to tell in the report; empty
        where the script was not found to depend on it.
        """
        if self._jobs > 1:
            self._why = "trials run side by side"
            return ""
        import_s = self._start(side)
        if import_s is None:
            return ""
        if runs * import_s < baselines.again.wall_s - import_s:
            self._why = f"it would not pay: all is imported within {import_s:.1f} s"
            self._runner.progress.on_message(f"each trial imports anew: {self._why}")
            self._end()
            return ""
        fresh = [baselines.first, baselines.again]
        forked: list[RunOutcome] = []
        for _ in range(ASKED):
            forked.append(self._runner.run(side, "baseline")[1])
            self._why = difference(fresh, baselines.runs, forked, self._objective)
            if self._why and (run := forked[-1].measurement) is not None:
                self._runner.validator.forget(run)
            if not self._why or difference(fresh, (), forked, self._objective):
                break
        self._taken_s = sum(run.wall_s for run in forked)
        return self._concluded(fresh, forked[-1])

    def begin_in_proof(
        self,
        side: Side,
        head: Side,
        earlier: Measurement,
        others: Sequence[Sequence[Measurement]],
        ended: Mapping[int, RunOutcome],
    ) -> None:
        """Fork the runs of one proof after its first pair, as long as nothing depends on it.

        The process imports beside the next run. The unchanged script's run that is forked first is
        compared with that of the first pair, and with an `earlier` one with the same seed; `others`
        are those of `difference`, and `ended` says how runs of it ended that were made already, by
        the numbers of their trials. `counts` has to be asked of each pair.
        """
        self.begin_ahead(side, head)
        if self._begun is not None:
            self._in_proof = _InProof(side, earlier, others, dict(ended))
            self._runner.ended = self._in_proof.keep

    def counts(self, pair: Sequence[Trial]) -> bool:
        """Say whether a pair of that proof counts: not if it was the first to be forked, and did
        something else than fresh ones did."""
        within = self._in_proof
        if within is None:
            return True
        plain, tuned = sorted(pair, key=lambda trial: len(trial.settings))
        if self._begun is not None:
            if not any(t.disturbance or t.state is not TrialState.COMPLETE for t in pair):
                within.compare_with(plain, tuned)
                self._start(within.side)
            return True
        if not plain.is_forked:
            return True
        self._in_proof = None
        self._why = within.difference(plain, tuned, self._objective)
        if self._why:
            self._taken_s += sum(trial.wall_s for trial in pair)
        self.refusal = self._concluded(within.fresh, within.ended[plain.number])
        return not self._why

    def _start(self, side: Side) -> float | None:
        """Fork runs from here on; return the time in which their process has imported, in s, None
        where there is none."""
        request = self._runner.request(side, "baseline")
        begun, self._begun = self._begun, None
        try:
            template = start_template(request, self._notes, begun)
        except NoTemplateError as error:
            self._why = str(error)
            self._runner.progress.on_message(f"each trial imports anew: {self._why}")
            return None
        self._template = self._runner.template = template
        self._runner.notes, self._runner.start_saved_s = None, template.import_s
        return template.import_s

    def _concluded(self, fresh: Sequence[RunOutcome], forked: RunOutcome) -> str:
        """Go on to fork, and tell what that saves; or end that, and return what to tell."""
        if self._why:
            self._end()
            return f"each trial imports anew: in a process that had imported before, {self._why}"
        starts_s = [run.measurement.startup_s for run in (*fresh, forked) if run.measurement]
        # Of the fresh starts the quickest: the first one may have read files from the disk.
        fresh_s, forked_s = min(starts_s[:-1]), starts_s[-1]
        which = "the first pair of each proof" if self.proofs_fork else "those of proofs"
        self._tell(f"already, but {which}", fresh_s, forked_s)
        return ""

    def result(self, trials: Sequence[Trial]) -> Forking:
        """Return what that was worth."""
        saved = [trial.start_saved_s for trial in trials if trial.start_saved_s is not None]
        return Forking(len(saved), sum(saved) - self._taken_s, self._why)


@dataclass
class _InProof:
    """What the first forked run of a proof's unchanged script is compared with."""

    side: Side
    earlier: Measurement
    """A run of another time with the same seed."""
    others: Sequence[Sequence[Measurement]]
    """Runs of that time, each kind for itself."""
    ended: dict[int, RunOutcome]
    """How processes ended, by the numbers of their trials."""
    fresh: list[RunOutcome] = field(default_factory=list)
    """The unchanged script's run of the first pair, and that which stands for a second one."""

    def keep(self, trial: Trial, outcome: RunOutcome) -> None:
        self.ended[trial.number] = outcome

    def compare_with(self, plain: Trial, tuned: Trial) -> None:
        """Compare with a fresh pair: the plan may compute other numbers, but prints what the script
        prints; what that computes, the earlier run says."""
        second = replace(self.ended[tuned.number], measurement=self.earlier)
        self.fresh = [self.ended[plain.number], second]

    def difference(self, plain: Trial, tuned: Trial, objective: Objective) -> str:
        """Return what the runs of the first forked pair did otherwise; empty for nothing."""
        for trial in (plain, tuned):
            if trial.state is not TrialState.COMPLETE:
                return f"a run failed ({trial.reason or trial.state})"
        first, forked = self.fresh[0].measurement, self.ended[plain.number]
        assert first is not None  # the fresh pair was complete
        return difference(self.fresh, [first], [forked], objective, self.others)


def difference(
    fresh: Sequence[RunOutcome],
    baselines: Sequence[Measurement],
    forked: Sequence[RunOutcome],
    objective: Objective,
    others: Sequence[Sequence[Measurement]] = (),
) -> str:
    """Return what the last forked run of the unchanged script did otherwise than the fresh ones.

    A clause; empty where nothing is. `fresh` are two runs with the same seed, `baselines` all of
    which costs are known; without any, costs are not compared. `others` are runs of another time,
    which say how far those of one kind differ, each a kind of its own.
    """
    run = forked[-1]
    if not run.forked or run.measurement is None:
        return f"it could not be measured ({run.reason or 'no process could be forked'})"
    known = [each.measurement for each in fresh if each.measurement is not None]
    return (
        computed(known, run.measurement)
        or _seen(known, run.measurement)
        or _printed([_output(each) for each in fresh], _output(run), _apart(known))
        or (_cost(baselines, forked, objective, others) if baselines else "")
    )


def _seen(fresh: Sequence[Measurement], run: Measurement) -> str:
    """Return what the harness saw otherwise in a script than in fresh runs that it saw alike.

    A run that got further may have seen more, such as the loader of an evaluation.
    """
    lengths = [one.warmup_steps + one.steps for one in (*fresh, run)]
    for each in fields(run.facts):
        *values, now = (getattr(one.facts, each.name) for one in (*fresh, run))
        if each.name in TIMED or any(value != values[0] for value in values):
            continue
        if lengths[-1] > max(lengths[:-1]):
            is_same = _may_become(values[0], now)
        elif lengths[-1] < min(lengths[:-1]):
            is_same = _may_become(now, values[0])
        else:
            is_same = now == values[0]
        if not is_same:
            return f"the harness saw other {each.name.replace('_', ' ')} in the script"
    return ""


def _may_become(fact: Any, later: Any) -> bool:
    """Say whether a fact of a script may be another one later on in the same run."""
    if isinstance(fact, bool):
        return later or not fact
    if isinstance(fact, tuple):
        return not Counter(fact) - Counter(later)
    return bool(fact == later)


def _cost(
    fresh: Sequence[Measurement],
    forked: Sequence[RunOutcome],
    objective: Objective,
    others: Sequence[Sequence[Measurement]],
) -> str:
    """Return how far the cost of the last forked run is from those of fresh ones.

    Where more is known of how far runs of one kind differ, only if their cost surely is another.
    """
    kinds = fresh, [run.measurement for run in forked if run.measurement is not None], *others
    costs = [list(filter(None, map(objective.cost, kind))) for kind in kinds]
    one, other, *_ = costs
    if not (one and other):
        return "its cost was not known"
    apart = max(1 + LEAST_APART, max(one) / min(one))
    if min(one) / apart <= other[-1] <= max(one) * apart:
        return ""
    if len(other) > 1 or others:
        spread, freedom = spread_of(*costs), sum(len(each) - 1 for each in costs if each)
        ends = (mean_with_interval(each, spread, freedom) for each in (one, other))
        (_, *first), (_, *second) = ends
        if max(first[0], second[0]) <= min(first[1], second[1]):
            return ""
    return f"a step cost {other[-1] / math.sqrt(min(one) * max(one)):.2f} times as much"


def computed(fresh: Sequence[Measurement], run: Measurement) -> str:
    """Return what a run computed otherwise than two fresh ones, as a clause; empty for nothing.

    Losses and outputs are compared exactly until the fresh runs part: what they have the same after
    that, they have by chance. So may they have the last ones before it, where sums in any order
    have changed few bits: a loss may be apart by as much as those of fresh runs are. From there on
    a run may differ from one of them as far as the other does, or as rounding may.
    """
    traces = [one.trace for one in fresh]
    rounding = _rounding(*(trace.losses for trace in traces))
    for what in ("losses", "outputs"):
        one, two = (getattr(trace, what) for trace in traces)
        for place, (first, again, now) in enumerate(
            zip(one, two, getattr(run.trace, what), strict=False)
        ):
            if repr(first) != repr(again):  # NaN is equal to NaN here
                break
            is_same = repr(first) == repr(now)
            if what == "losses" and rounding:
                is_same |= relative_difference([first], [now]) <= rounding
            if not is_same:
                return f"{'loss' if what == 'losses' else 'output'} {place + 1} was another"
    if any(is_broken(trace, run.trace) for trace in traces):
        return "a result was no finite number"
    now_apart = results_apart(traces[0], run.trace)
    if (apart := _apart(fresh)) and now_apart and not now_apart[0] <= apart:
        return f"{now_apart[1]} was {now_apart[0]:.2%}, and of fresh ones at most {apart:.2%}"
    return ""


def _rounding(one: Sequence[float], two: Sequence[float]) -> float:
    """Return how far a loss may be apart that two fresh runs have alike before others part.

    As much as rounding makes in some steps, at most; 0 where none parts.
    """
    pairs = zip(one, two, strict=False)
    most = max((relative_difference([first], [again]) for first, again in pairs), default=0.0)
    return min(SPREAD_FACTOR * most, LEAST_ROUNDING)


def _apart(fresh: Sequence[Measurement]) -> float:
    """Return the relative difference of results that a run of the unchanged script may have from a
    fresh one; 0 where two of them computed the same."""
    one, two = (each.trace for each in fresh)
    pairs = [
        *zip(one.losses, two.losses, strict=False),
        *zip(one.outputs, two.outputs, strict=False),
    ]
    if all(repr(first) == repr(again) for first, again in pairs):
        return 0.0
    found = results_apart(one, two)
    apart = SPREAD_FACTOR * found[0] if found is not None else 0.0
    return apart if apart > LEAST_ROUNDING else LEAST_ROUNDING  # also where that is NaN


def _output(run: RunOutcome) -> str:
    """Return what a run printed while nothing had ended it."""
    return run.output if run.printed is None else run.printed


def _printed(fresh: Sequence[str], now: str, apart: float) -> str:
    """Compare what was printed, as far as all three have got; times and rates may differ, and
    results by as much as they may be `apart`."""
    if any(len(text) >= KEPT_BYTES // 2 for text in (*fresh, now)):
        return "it prints more than can be compared"
    # The last line may have been cut where the run was ended.
    one, two, three = (text.splitlines()[:-1] for text in (*fresh, now))
    for first, again, line in zip(one, two, three, strict=False):
        if first == again:
            differs = line != first and not (apart and _rounded_alike(first, line, apart))
        else:
            shapes = [_NUMBER.sub("#", each) for each in (first, again)]
            differs = shapes[0] == shapes[1] != _NUMBER.sub("#", line)
        if differs:
            return f"it printed {line[:60]!r} instead of {first[:60]!r}"
    return ""


def _rounded_alike(first: str, line: str, apart: float) -> bool:
    """Say whether two lines differ in fractions only, each by no more than `apart` of it and one in
    its last place."""
    if _NUMBER.sub("#", first) != _NUMBER.sub("#", line):
        return False
    for one, two in zip(_NUMBER.findall(first), _NUMBER.findall(line), strict=True):
        if one == two:
            continue
        _, point, places = one.partition(".")
        try:
            numbers = float(one), float(two)
        except ValueError:  # such as a version
            return False
        last = 10.0 ** -len(places)
        if not point or abs(numbers[0] - numbers[1]) > apart * max(numbers) + 1.5 * last:
            return False
    return True
