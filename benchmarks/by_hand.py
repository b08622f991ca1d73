"""The best settings that a person finds by hand, without what `tune` found.

    python benchmarks/by_hand.py RUNS.jsonl [--seconds 1500] [--call-seconds 500] -- train.py ARGS

By hand means: each value of each knob alone, all together that paid, and greedy, in the order of
gain; four runs each, in random order with the unchanged script, each in a process of its own, which
is forked where nothing depends on that. Only settings of the default level count, and only where
the product's own comparison of losses and outputs finds nothing wrong; it leaves losses that part
as chaos makes them to a rehearsal, which is not made here.
What fails is not run again. Without `--thorough` neither is what is clearly slower after one run or
no faster after two, and loaders are left alone while nobody waits for them. Where time is short
each value has its turn before any has its second.

Runs are kept in RUNS.jsonl as they end, and what was found in RUNS.json: the same command goes on
where it was cut off, also on another machine of that kind. There the unchanged script is run anew,
and each run counts by its ratio to the unchanged script's of its own machine. Status 0 where the
search is over or goes on in the next call, 3 where the script cannot be measured.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

from hand_runs import (
    Run,
    Runs,
    TimeIsUpError,
    asked,
    cost,
    key,
    machines_of,
    measuring,
    shown,
    written,
)

from gpuadvisor.domain.knobs import Settings, Value
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import TrialState
from gpuadvisor.errors import AdvisorError
from gpuadvisor.tuners.knob_space import KnobSpace, Selection, select_knobs
from gpuadvisor.tuners.space import Parameter, Space

RUNS = 4
"""Runs of each setting, as the table by hand wants them."""
HOPELESS: Mapping[int, float] = {1: 0.7, 2: 1.0}
"""Ratio to what a setting is compared with up to which it is given up, by its number of runs:
unchanged runs of an input-bound script differ by up to 40 %, so one run shows only what is worse
than that."""
ALONE_SHARE = 0.5
"""Most of the search's time that knobs alone may take; combinations are where most is found."""
PAYS = 1.01
"""Ratio from which a knob alone is one of those that are then set together."""
PLAUSIBLE = 0.97
"""Ratio alone from which a knob counts as harmless and gets its turn in the greedy search: faster
kernels bring nothing to a script that waits for its data, and much once that is cured."""


@dataclass
class HandSearch:
    """Tries knobs as a person with patience does."""

    space: Space
    run: Callable[[str, Settings], Run]
    """Runs settings once in a fresh process, for a stage of the search."""
    affordable: Callable[[float], bool] = lambda share: True
    """Says whether there is time for one more run within a share of the search's."""
    thorough: bool = False
    """Whether each setting that works has all its runs, and each knob that has nothing to cure."""
    unchanged: Measurement | None = None
    """First run of the unchanged script: what it does not wait for needs no cure. None to try all
    knobs alone."""
    runs: int = RUNS
    trials: dict[frozenset[tuple[str, Value]], list[Run]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """All runs of each setting, those of the unchanged script under the empty key, whose first ones
    on each machine may be given."""
    steps: list[tuple[Settings, float, bool]] = field(default_factory=list)
    """What the greedy search tried: settings, the ratio to what it stood on, and if it was kept."""
    cut: str = ""
    """Stage in which the time was over; empty where it sufficed."""

    def __post_init__(self) -> None:
        self._orders = random.Random("order of runs by hand")

    def search(self) -> None:
        """Try all, in its stages."""
        self._alone()
        self._together()
        self._greedy()

    @property
    def best(self) -> Settings:
        """The settings with the best mean ratio to the unchanged script so far."""
        counts = {known: len(runs) for known, runs in self.trials.items()}
        enough = min(2, max(counts.values(), default=0))
        tried = [dict(known) for known, count in counts.items() if count >= enough]
        return max(tried, key=lambda settings: self.ratio(settings) or 0.0, default={})

    def ratio(self, settings: Settings, reference: Settings | None = None) -> float | None:
        """Return the mean gain over a reference, the unchanged script by default.

        Each run counts by its ratio to the unchanged script's on its machine, so that what two
        machines ran is not compared directly. None where any run failed, or there was none.
        """
        own, other = self._logs(settings), self._logs(reference or {})
        return math.exp(fmean(other) - fmean(own)) if own and other else None

    def best_values(self) -> dict[str, tuple[Value, float]]:
        """Return each knob's best value alone with its ratio, the best knob first."""
        best: dict[str, tuple[Value, float]] = {}
        for known in self.trials:
            ratio = self.ratio(dict(known)) if len(known) == 1 else None
            for name, value in known:
                if ratio is not None and (name not in best or ratio > best[name][1]):
                    best[name] = (value, ratio)
        return dict(sorted(best.items(), key=lambda item: -item[1][1]))

    def _logs(self, settings: Settings) -> list[float]:
        """Return the logarithm of each run's cost over that of the unchanged script beside it."""
        runs = self.trials.get(key(settings), [])
        if any(run.trial.state is not TrialState.COMPLETE for run in runs):
            return []
        levels = {machine: self._level(machine) for machine in machines_of(runs)}
        return [
            math.log(cost(run.trial)) - level
            for run in runs
            if (level := levels[run.machine]) is not None
        ]

    def _level(self, machine: str) -> float | None:
        """Return the mean logarithm of the unchanged script's cost on a machine; None where it has
        not run there."""
        runs = [run.trial for run in self.trials[frozenset()] if run.machine == machine]
        costs = [cost(trial) for trial in runs if trial.state is TrialState.COMPLETE]
        return fmean(map(math.log, costs)) if costs else None

    def _alone(self) -> None:
        waves: list[list[Settings]] = [[], []]
        for parameter in self.space.parameters:
            if self._is_pointless(parameter, self.unchanged):
                continue
            values = parameter.values[:1] if parameter.progressive else parameter.values
            wave = waves[1 if parameter.refines else 0]
            points = [{parameter.name: value} for value in values]
            wave += [point for point in points if self.space.allows(point)]
        self._rounds("alone", waves[0], {})
        known = self.best_values()
        self._rounds("alone", [p for p in waves[1] if self._is_refinable(p, known)], {})
        for parameter in self.space.parameters:
            if parameter.progressive:
                self._climb(parameter.name, parameter.values)

    def _is_pointless(self, parameter: Parameter, best: Measurement | None) -> bool:
        """Say whether a knob has nothing to cure, as loaders have not where nobody waits."""
        return not self.thorough and best is not None and parameter.pointless(best) is not None

    def _is_refinable(self, point: Settings, known: Mapping[str, tuple[Value, float]]) -> bool:
        """Say whether the cheaper form of a costly knob worked and did no harm."""
        cheaper = self.space[next(iter(point))].refines
        return cheaper not in self.space or known.get(cheaper or "", (None, 0.0))[1] >= PLAUSIBLE

    def _climb(self, name: str, values: Sequence[Value]) -> None:
        """Try one value after another as long as each is better than the last."""
        for last, value in pairwise(values):
            if self._gain({name: last}, {}) <= 1:
                return
            self._rounds("alone", [{name: value}], {name: last}, every=2)
            if self._gain({name: value}, {name: last}) <= 1:
                return

    def _together(self) -> None:
        """Set all that paid, and all that did no harm: of two brakes, curing one alone is vain."""
        points: list[Settings] = []
        for least in (PAYS, PLAUSIBLE):
            point: dict[str, Value] = {}
            for name, (value, ratio) in self.best_values().items():
                if ratio >= least and self.space.allows({**point, name: value}):
                    point[name] = value
            if len(point) > 1 and point not in points:
                points.append(point)
        self._rounds("together", points, {}, every=2)

    def _greedy(self) -> None:
        standing: dict[str, Value] = {}
        for name, value in self._candidates():
            point = {**standing, name: value}
            runs = self.trials.get(key(standing))
            best = runs[-1].trial.measurement if runs else None
            if not self.space.allows(point) or self._is_pointless(self.space[name], best):
                continue
            self._rounds("greedy", [point], standing, every=2)
            gain = self._gain(point, standing)
            self.steps.append((point, gain, gain > 1))
            if gain > 1:
                standing = point

    def _candidates(self) -> Iterator[tuple[str, Value]]:
        """Yield values in the order of gain, then those of knobs that were not tried alone."""
        known = self.best_values()
        for name, (value, ratio) in known.items():
            if ratio >= PLAUSIBLE:
                yield name, value
        for parameter in self.space.parameters:
            if not any(key({parameter.name: value}) in self.trials for value in parameter.values):
                for value in parameter.values:
                    yield parameter.name, value

    def _gain(self, settings: Settings, reference: Settings) -> float:
        return self.ratio(settings, reference) or 0.0

    def _rounds(
        self, stage: str, points: Sequence[Settings], reference: Settings, every: int = 1
    ) -> None:
        """Run points in rounds of random order; every so many rounds have the reference, too."""
        for number in range(self.runs):
            live = [point for point in points if self._wants_run(point, reference)]
            if not live:
                return
            sides = [*live, reference] if number % every == 0 else live
            self._orders.shuffle(sides)
            for side in sides:
                if not self.affordable(ALONE_SHARE if stage == "alone" else 1.0):
                    self.cut = self.cut or stage
                    return
                self.trials[key(side)].append(self.run(stage, side))

    def _wants_run(self, point: Settings, reference: Settings) -> bool:
        """Say whether a point has runs to come, and neither failed nor is hopeless."""
        count = len(self.trials.get(key(point), ()))
        if not 0 < count < self.runs:
            return count == 0
        least = 0.0 if self.thorough else HOPELESS.get(count, 0.0)
        return self._gain(point, reference) > least


def affordable(runs: Runs, seconds: float) -> Callable[[float], bool]:
    """Return what says whether one more run keeps within a share of the search's seconds.

    Baselines do not count: how many there are depends on how many machines the search was on.
    """

    def says(share: float) -> bool:
        usual_s = median(runs.spent) if runs.spent else 0.0
        return math.fsum(runs.spent) + usual_s <= share * seconds

    return says


def by_hand(runs: Runs, seconds: float, thorough: bool = False) -> dict[str, Any]:
    """Search by hand, as far as this call has time, and return all that was found.

    It is written beside the runs, also where somebody ends the call: then it raises Interrupted.
    """
    baseline = runs.baseline()
    chosen = select_knobs(runs.knobs, Selection(), runs.device, baseline.facts)
    first: dict[frozenset[tuple[str, Value]], list[Run]] = defaultdict(list)
    first[frozenset()] = runs.unchanged
    search = HandSearch(
        chosen.space, runs.run, affordable(runs, seconds), thorough, baseline, trials=first
    )
    is_finished = False
    try:
        search.search()
        is_finished = True
    except TimeIsUpError:
        pass
    finally:
        result = {**found(runs, search, chosen, is_finished), "allowed_s": seconds}
        written(runs.state.with_suffix(".json"), result)
    return result


def found(runs: Runs, search: HandSearch, chosen: KnobSpace, is_finished: bool) -> dict[str, Any]:
    """Return what a search found as a document."""
    every = [run for known in search.trials.values() for run in known]
    return {
        "finished": is_finished,
        "cut": search.cut,
        "device": runs.device.name,
        "cores": runs.device.cores,
        "machines": machines_of(every),
        "unchanged_ms": {
            machine: _ms(run for run in search.trials[frozenset()] if run.machine == machine)
            for machine in machines_of(every)
        },
        "settings": dict(search.best),
        "ratio": search.ratio(search.best),
        "alone": [_row(search, known) for known in search.trials if len(known) == 1],
        "combined": [_row(search, known) for known in search.trials if len(known) > 1],
        "greedy": [
            {"settings": settings, "ratio": ratio, "kept": kept}
            for settings, ratio, kept in search.steps
        ],
        "unavailable": dict(chosen.unavailable),
        "runs": len(every),
        "seconds": math.fsum(runs.spent),
    }


def _ms(runs: Iterable[Run]) -> float:
    return fmean(run.trial.measurement.mean_step_ms for run in runs if run.trial.measurement)


def _row(search: HandSearch, known: frozenset[tuple[str, Value]]) -> dict[str, Any]:
    trials = [run.trial for run in search.trials[known]]
    failed = next((t for t in trials if t.state is not TrialState.COMPLETE), None)
    return {
        "settings": dict(known),
        "ratio": search.ratio(dict(known)),
        "runs": len(trials),
        "failed": f"{failed.state}: {failed.reason}" if failed else "",
    }


def sentence(title: str, result: Mapping[str, Any]) -> str:
    """Return what was found in one line."""
    ratio = f"{result['ratio']:.2f}x" if result["ratio"] else "no ratio yet"
    spent = f"{result['runs']} runs, {result['seconds']:.0f} s, machines: {len(result['machines'])}"
    if result["cut"]:
        spent += f", cut off: {result['cut']}"
    goes_on = "" if result["finished"] else "; the same command goes on"
    return f"{title}: by hand {ratio}: {shown(result['settings'])}; {spent}{goes_on}"


def main() -> int:
    """Search as far as there is time, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("state", type=Path, help="file of runs, which may be there already")
    parser.add_argument(
        "--seconds", type=float, default=1500.0, help="for the runs of all calls (default: 1500)"
    )
    parser.add_argument(
        "--thorough", action="store_true", help="four runs of all, whatever it does"
    )
    line = asked(parser)
    try:
        with measuring(line, line.options.state) as (runs, _):
            result = by_hand(runs, line.options.seconds, line.options.thorough)
    except AdvisorError as error:
        print(f"by_hand: {error}", file=sys.stderr)
        return error.exit_code
    print(sentence(line.title, result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
