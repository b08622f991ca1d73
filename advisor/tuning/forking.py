"""Runs that begin in a process which has imported already, where nothing depends on that.

The first run of the unchanged script notes what it imports. A process that imports the same beside
the second one is then forked for one more such run, which is compared with the fresh ones: only
where nothing differs are further runs forked. Of each proof at least the first pair is of fresh
processes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import fields
from pathlib import Path

from gpuadvisor.collectors.script.request import RunOutcome
from gpuadvisor.collectors.script.run_folder import run_folder
from gpuadvisor.collectors.script.runner import KEPT_BYTES, begin_template, start_template
from gpuadvisor.collectors.script.templates import NoTemplateError, Template, noted
from gpuadvisor.domain.knobs import Level
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import Forking, Objective, Trial
from gpuadvisor.tuners.equivalence import SPREAD_FACTOR, TOLERANCES
from gpuadvisor.tuners.equivalence import difference as results_apart
from gpuadvisor.tuners.statistics import mean_with_interval, spread_of
from gpuadvisor.tuning.baselines import Baselines
from gpuadvisor.tuning.first_run import NOTES
from gpuadvisor.tuning.options import TuneOptions
from gpuadvisor.tuning.trial_runner import Side, TrialRunner

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


class Forker:
    """Decides whether a study's runs are forked, and keeps the process of which they are."""

    def __init__(
        self,
        runner: TrialRunner,
        options: TuneOptions,
        notes: Path | None = None,
        proofs_fork: bool = False,
    ) -> None:
        """`notes` is where the first run notes what it imports, if it has begun already, and
        `proofs_fork` says whether runs of a proof may be forked."""
        self._runner = runner
        self._objective = options.objective
        self._jobs = options.jobs
        self._proofs_fork = proofs_fork
        self._held = ExitStack()
        self._notes = notes or self._held.enter_context(run_folder()) / NOTES
        self._template: Template | None = None
        self._begun: Template | None = None
        """One that imports, before it is known whether it pays."""
        self._taken_s = 0.0
        """What the comparison took; what is imported beside a run takes nothing."""
        self._why = "that was not compared"
        runner.notes = str(self._notes)

    def __enter__(self) -> Forker:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._held.close()

    def begin_ahead(self, side: Side) -> None:
        """Start the process while the unchanged script runs once more, which imports the same and
        then does more before its first step."""
        if self._jobs > 1:  # for each GPU another would be needed
            return
        with suppress(NoTemplateError):
            request = self._runner.request(side, "baseline")
            self._begun = begin_template(request, noted(self._notes))

    def begin(self, side: Side, baselines: Baselines, runs: float) -> str:
        """Fork runs from here on if the unchanged script does not depend on that.

        `runs` is how many the search will make, about. Returns what to tell in the report; empty
        where the script was not found to depend on it.
        """
        if self._jobs > 1:
            self._why = "trials run side by side"
            return ""
        tell = self._runner.progress.on_message
        request = self._runner.request(side, "baseline")
        begun, self._begun = self._begun, None
        try:
            self._template = start_template(request, self._notes, begun)
        except NoTemplateError as error:
            self._why = str(error)
            tell(f"each trial imports anew: {self._why}")
            return ""
        self._runner.notes = None
        import_s = self._template.import_s
        if runs * import_s < baselines.again.wall_s - import_s:
            self._why = f"it would not pay: all is imported within {import_s:.1f} s"
            self._end()
            return ""
        fresh = [baselines.first, baselines.again]
        self._runner.template, self._runner.start_saved_s = self._template, import_s
        forked: list[RunOutcome] = []
        for _ in range(ASKED):
            forked.append(self._runner.run(side, "baseline")[1])
            self._why = difference(fresh, baselines.runs, forked, self._objective)
            if self._why and (run := forked[-1].measurement) is not None:
                self._runner.validator.forget(run)
            if not self._why or difference(fresh, (), forked, self._objective):
                break
        self._taken_s = sum(run.wall_s for run in forked)
        if self._why:
            self._end()
            return f"each trial imports anew: in a process that had imported before, {self._why}"
        starts_s = [run.measurement.startup_s for run in (*fresh, forked[-1]) if run.measurement]
        # Of the fresh starts the quickest: the first one may have read files from the disk.
        fresh_s, forked_s = min(starts_s[:-1]), starts_s[-1]
        self._runner.start_saved_s = fresh_s - forked_s
        which = "but the first pair of each proof" if self._proofs_fork else "but those of proofs"
        tell(
            f"runs are forked from a process that has imported already, {which}: the first step "
            f"comes after {forked_s:.1f} s, not {fresh_s:.1f} s"
        )
        return ""

    def result(self, trials: Sequence[Trial]) -> Forking:
        """Return what that was worth."""
        saved = [trial.start_saved_s for trial in trials if trial.start_saved_s is not None]
        return Forking(len(saved), sum(saved) - self._taken_s, self._why)

    def _end(self) -> None:
        self._runner.template = None
        for template in filter(None, (self._template, self._begun)):
            template.close()
        self._template = self._begun = None


def difference(
    fresh: Sequence[RunOutcome],
    baselines: Sequence[Measurement],
    forked: Sequence[RunOutcome],
    objective: Objective,
) -> str:
    """Return what the last forked run of the unchanged script did otherwise than the fresh ones.

    A clause; empty where nothing is. `fresh` are two runs with the same seed, `baselines` all of
    which costs are known; without any, costs are not compared.
    """
    run = forked[-1]
    if not run.forked or run.measurement is None:
        return f"it could not be measured ({run.reason or 'no process could be forked'})"
    known = [each.measurement for each in fresh if each.measurement is not None]
    return (
        computed(known, run.measurement)
        or _seen(known, run.measurement)
        or _printed([_output(each) for each in fresh], _output(run), _apart(known))
        or (_cost(baselines, forked, objective) if baselines else "")
    )


def _seen(fresh: Sequence[Measurement], run: Measurement) -> str:
    """Return what the harness saw otherwise in a script than in fresh runs that it saw alike."""
    for each in fields(run.facts):
        values = [getattr(one.facts, each.name) for one in fresh]
        same = all(value == values[0] for value in values)
        if each.name not in TIMED and same and getattr(run.facts, each.name) != values[0]:
            return f"the harness saw other {each.name.replace('_', ' ')} in the script"
    return ""


def _cost(fresh: Sequence[Measurement], forked: Sequence[RunOutcome], objective: Objective) -> str:
    """Return how far the cost of the last forked run is from those of fresh ones.

    Where several were forked, only if their cost surely is another one, as far as runs of either
    kind differ.
    """
    kinds = fresh, [run.measurement for run in forked if run.measurement is not None]
    one, other = costs = [list(filter(None, map(objective.cost, kind))) for kind in kinds]
    if not all(costs):
        return "its cost was not known"
    apart = max(1 + LEAST_APART, max(one) / min(one))
    if min(one) / apart <= other[-1] <= max(one) * apart:
        return ""
    if len(other) > 1:
        spread, freedom = spread_of(*costs), sum(map(len, costs)) - len(costs)
        (_, *first), (_, *second) = (mean_with_interval(each, spread, freedom) for each in costs)
        if max(first[0], second[0]) <= min(first[1], second[1]):
            return ""
    return f"a step cost {other[-1] / math.sqrt(min(one) * max(one)):.2f} times as much"


def computed(fresh: Sequence[Measurement], run: Measurement) -> str:
    """Return what a run computed otherwise than two fresh ones, as a clause; empty for nothing.

    Losses and outputs are compared exactly, where both fresh runs have exactly the same. Where they
    have not, a run may differ from one of them as far as the other does, or as rounding may.
    """
    traces = [one.trace for one in fresh]
    for what in ("losses", "outputs"):
        one, two = (getattr(trace, what) for trace in traces)
        for place, (first, again, now) in enumerate(
            zip(one, two, getattr(run.trace, what), strict=False)
        ):
            if repr(first) == repr(again) != repr(now):  # NaN is equal to NaN here
                return f"{'loss' if what == 'losses' else 'output'} {place + 1} was another"
    now_apart = results_apart(traces[0], run.trace)
    if (apart := _apart(fresh)) and now_apart and not now_apart[0] <= apart:
        return f"{now_apart[1]} was {now_apart[0]:.2%}, and of fresh ones at most {apart:.2%}"
    return ""


def _apart(fresh: Sequence[Measurement]) -> float:
    """Return the relative difference of results that a run of the unchanged script may have from a
    fresh one; 0 where two of them computed the same."""
    one, two = (each.trace for each in fresh)
    found = results_apart(one, two)
    if found is None or not found[0] > 0:  # the same, or NaN
        return 0.0
    return max(LEAST_ROUNDING, SPREAD_FACTOR * found[0])


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
