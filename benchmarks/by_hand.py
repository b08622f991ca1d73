"""The best settings that a person finds by hand, and how much of their gain `tune` reaches.

    python benchmarks/by_hand.py STATE.jsonl [--seconds 900] -- train.py --epochs 3
    python benchmarks/by_hand.py STATE.jsonl --compare 5m=FIVE.json 10m=TEN.json [-- train.py ...]

By hand means: each value of each knob alone, all together that paid, and greedy, in the order of
gain; four fresh processes each, in random order with the unchanged script. Only settings of the
default level count, and only where the product's own comparison of losses and outputs finds nothing
wrong; it leaves losses that part as chaos makes them to a rehearsal, which is not made here.
What fails is not run again. Without `--thorough` neither is what is clearly slower after one run or
no faster after two, and loaders are left alone while nobody waits for them. Where time is short
each value has its turn before any has its second.

Runs are kept in STATE.jsonl as they end: the same command goes on where it was cut off. Results of
`tune --json` are read when the search is over. Then fresh runs of the unchanged script, of the best
by hand and of what each study proposed follow one another in random order: all ratios are from
those runs, which chose nothing. They stand in STATE.json beside the state.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

from gpuadvisor.collectors.script.request import Command
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Level, Settings, Value
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import Objective, Speedup, Trial, TrialState
from gpuadvisor.errors import AdvisorError
from gpuadvisor.storage.codec import dumps, loads
from gpuadvisor.tuners.knob_space import Selection, select_knobs
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuners.space import Parameter, Space
from gpuadvisor.tuners.statistics import paired_ratio
from gpuadvisor.tuning.baselines import measured_baseline
from gpuadvisor.tuning.budget import BudgetLimit, schedule_for
from gpuadvisor.tuning.preparation import check_script, devices_for, reserved, target_python
from gpuadvisor.tuning.trial_runner import Side, TrialRunner
from gpuadvisor.tuning.validator import TrialValidator

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
USUAL = "10m"
"""Budget of the study whose length of measurement each run has."""
UNCHANGED, BY_HAND = "unchanged", "by hand"


def key(settings: Settings) -> frozenset[tuple[str, Value]]:
    """Return settings in any order as one key."""
    return frozenset(settings.items())


def cost(trial: Trial) -> float:
    """Return what is to be small: the time of a sample, or of a step without samples."""
    assert trial.measurement is not None
    return Objective.THROUGHPUT.cost(trial.measurement) or math.inf


# The search. --------------------------------------------------------------------------------------


@dataclass
class HandSearch:
    """Tries knobs as a person with patience does."""

    space: Space
    run: Callable[[str, Settings], Trial]
    """Runs settings once in a fresh process, for a stage of the search."""
    affordable: Callable[[float], bool] = lambda share: True
    """Says whether there is time for one more run within a share of the search's."""
    thorough: bool = False
    """Whether each setting that works has all its runs, and each knob that has nothing to cure."""
    unchanged: Measurement | None = None
    """First run of the unchanged script: what it does not wait for needs no cure. None to try all
    knobs alone."""
    runs: int = RUNS
    trials: dict[frozenset[tuple[str, Value]], list[Trial]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """All runs of each setting, those of the unchanged script under the empty key."""
    steps: list[tuple[Settings, float, bool]] = field(default_factory=list)
    """What the greedy search tried: settings, the ratio to what it stood on, and if it was kept."""
    cut: str = ""
    """Stage in which the time was over; empty where it sufficed."""

    def __post_init__(self) -> None:
        self._orders = random.Random("order of runs by hand")

    def search(self) -> Settings:
        """Return the settings with the best mean ratio to the unchanged script."""
        self._alone()
        self._together()
        self._greedy()
        counts = {known: len(runs) for known, runs in self.trials.items()}
        enough = min(2, max(counts.values(), default=0))
        tried = [dict(known) for known, count in counts.items() if count >= enough]
        return max(tried, key=lambda settings: self.ratio(settings) or 0.0, default={})

    def ratio(self, settings: Settings, reference: Settings | None = None) -> float | None:
        """Return the mean gain over a reference, the unchanged script by default.

        None where any run failed, or there was none.
        """
        own, other = self._logs(settings), self._logs(reference or {})
        return math.exp(fmean(other) - fmean(own)) if own and other else None

    def best_values(self) -> dict[str, tuple[Value, float]]:
        """Return each knob's best value alone with its ratio, the best knob first."""
        best: dict[str, tuple[Value, float]] = {}
        for known in self.trials:
            ratio = self.ratio(dict(known)) if len(known) == 1 else None
            for name, value in known if ratio is not None else ():
                if name not in best or ratio > best[name][1]:
                    best[name] = (value, ratio)
        return dict(sorted(best.items(), key=lambda item: -item[1][1]))

    def _logs(self, settings: Settings) -> list[float]:
        runs = self.trials.get(key(settings), [])
        if any(trial.state is not TrialState.COMPLETE for trial in runs):
            return []
        return [math.log(cost(trial)) for trial in runs]

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
            best = runs[-1].measurement if runs else None
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


# Runs. --------------------------------------------------------------------------------------------


@dataclass
class Runs:
    """Runs of one script on one device, kept in a file."""

    state: Path
    command: Command
    device: Device
    seconds: float
    """Time for all runs together, those of earlier calls included."""
    kept_s: float = 0.0
    """Part of it that the last comparison needs."""

    def __post_init__(self) -> None:
        self.knobs = load_knobs()
        self.validator = TrialValidator(Objective.THROUGHPUT, Level.BALANCED, None, self.knobs)
        schedule = schedule_for(BudgetLimit.parse(USUAL))
        self._runner = TrialRunner(self.knobs, self.validator, schedule)
        self._walls: list[float] = []
        """Time of each run; replayed ones included."""
        self._recorded: dict[tuple[str, frozenset[tuple[str, Value]]], deque[Trial]] = defaultdict(
            deque
        )
        for line in self.state.read_text("utf-8").splitlines()[1:] if self.state.exists() else []:
            try:
                known = json.loads(line)
            except ValueError:  # the call was cut off while it wrote this
                continue
            trial = loads(Trial, json.dumps(known["trial"]))
            self._recorded[known["stage"], key(trial.settings)].append(trial)

    def __len__(self) -> int:
        return len(self._walls)

    @property
    def spent_s(self) -> float:
        """Time that the runs took, of all calls together."""
        return math.fsum(self._walls)

    def affordable(self, share: float = 1.0) -> bool:
        """Say whether a run keeps within a share of the time before the last comparison."""
        usual = median(self._walls) if self._walls else 0.0
        return self.spent_s + usual <= share * (self.seconds - self.kept_s)

    def expect(self, last_runs: int) -> None:
        """Keep back time for so many runs in the end."""
        self.kept_s = last_runs * (median(self._walls) if self._walls else 0.0)

    def baseline(self) -> Measurement:
        """Run the unchanged script until it is known how much two of its runs differ."""
        first, second = self._unchanged(None), self._unchanged(None)
        facts, other = first.facts, None
        if facts.training and (facts.loaders or facts.draws_random):
            other = self._unchanged(1)
        self.validator.comparison.calibrate(
            [first.trace, second.trace], other.trace if other else None
        )
        return first

    def _unchanged(self, seed: int | None) -> Measurement:
        trial = self.run("baseline" if seed is None else "another seed", {}, seed)
        assert trial.measurement is not None
        self.validator.baseline = self.validator.baseline or trial.measurement
        return trial.measurement

    def run(self, stage: str, settings: Settings, seed: int | None = None) -> Trial:
        """Return the next run of settings in a stage: a recorded one, or else a fresh process.

        ScriptError where the unchanged script cannot be measured for the first time.
        """
        recorded = self._recorded[stage, key(settings)]
        if recorded:
            trial = recorded.popleft()
        else:
            side = Side(self.command, self.device, settings)
            phase = "search" if settings else "baseline"
            trial, outcome = self._runner.run(side, phase, seed=seed)
            if not settings and stage in ("baseline", "another seed"):
                measured_baseline(outcome, self.command)
            self._keep(stage, trial)
        self._walls.append(trial.wall_s)
        ms = f"{trial.measurement.mean_step_ms:.2f} ms" if trial.measurement else trial.reason
        print(f"  {len(self)}. {stage}: {shown(settings)}: {trial.state} {ms}", file=sys.stderr)
        return trial

    def _keep(self, stage: str, trial: Trial) -> None:
        is_new = not self.state.exists()
        with self.state.open("a", encoding="utf-8") as file:
            if is_new:
                print(json.dumps(self._header()), file=file)
            print(f'{{"stage":{json.dumps(stage)},"trial":{dumps(trial)}}}', file=file)

    def _header(self) -> dict[str, Any]:
        command = self.command
        return {
            "python": command.python,
            "script": command.script,
            "args": command.args,
            "is_module": command.is_module,
            "folder": str(Path.cwd()),
            "device": self.device.name,
            "cores": self.device.cores,
        }


def shown(settings: Settings) -> str:
    """Return settings in words."""
    return ", ".join(f"{name}={value}" for name, value in settings.items()) or UNCHANGED


# The comparison. ----------------------------------------------------------------------------------


def proposed(study: Mapping[str, Any]) -> Settings:
    """Return what a study's result tells its user to set; empty where there is no gain."""
    is_gain = str(study["verdict"]).startswith("faster")
    return dict(study["best"]["knobs"]) if is_gain and study["best"] else {}


def compared(
    run: Callable[[str, Settings], Trial], sides: Mapping[str, Settings], runs: int = RUNS
) -> dict[str, Speedup | None]:
    """Return each side's ratio to the unchanged script, from fresh runs in random order.

    Settings that several sides have are run once a round. None where a run failed.
    """
    stage = f"last: {', '.join(sides)}"
    points = list({key(settings): settings for settings in ({}, *sides.values())}.values())
    orders, rounds = random.Random(stage), []
    for _ in range(runs):
        orders.shuffle(points)
        rounds.append({key(point): run(stage, point) for point in points})
    return {label: _paired(rounds, key(settings)) for label, settings in sides.items()}


def _paired(
    rounds: Sequence[Mapping[frozenset[tuple[str, Value]], Trial]],
    side: frozenset[tuple[str, Value]],
) -> Speedup | None:
    pairs = [(each[frozenset()], each[side]) for each in rounds]
    if any(trial.state is not TrialState.COMPLETE for pair in pairs for trial in pair):
        return None
    return paired_ratio([(cost(base), cost(head)) for base, head in pairs])


def row(result: Mapping[str, Any]) -> str:
    """Return a result as a row of the table: by hand, each study, and the share it reached."""
    last, studies = result["last"], result["studies"]
    cells = [result["title"], f"{result['unchanged_ms']:.1f} ms", _cell(last[BY_HAND])]
    hand = last[BY_HAND]["ratio"]
    for label, found in last.items():
        if label != BY_HAND:
            share = f"; {found['ratio'] / hand:.0%}" if found["ratio"] and hand else ""
            cells.append(f"{label}: {studies[label]['verdict']}, {_cell(found)}{share}")
    return f"| {' | '.join(cells)} |"


def _cell(found: Mapping[str, Any]) -> str:
    if found["ratio"] is None:
        return f"failed: {shown(found['settings'])}"
    between = f"{found['low']:.2f}-{found['high']:.2f}"
    return f"{found['ratio']:.2f}x ({between}): {shown(found['settings'])}"


# Both. --------------------------------------------------------------------------------------------


def by_hand(runs: Runs, studies: Mapping[str, Path], thorough: bool = False) -> dict[str, Any]:
    """Search by hand, then compare with the studies, and return all that was found."""
    baseline = runs.baseline()
    runs.expect(RUNS * (2 + len(studies)))
    chosen = select_knobs(runs.knobs, Selection(), runs.device, baseline.facts)
    search = HandSearch(chosen.space, runs.run, runs.affordable, thorough, baseline)
    best = search.search()
    found = {label: json.loads(path.read_text("utf-8")) for label, path in studies.items()}
    sides = {BY_HAND: best, **{label: proposed(study) for label, study in found.items()}}
    last = compared(runs.run, sides)
    return {
        "title": " ".join([runs.command.script, *runs.command.args]),
        "device": runs.device.name,
        "cores": runs.device.cores,
        "unchanged_ms": baseline.mean_step_ms,
        "settings": best,
        "last": {label: _ratio(sides[label], ratio) for label, ratio in last.items()},
        "studies": {
            label: {"verdict": study["verdict"], "speedup": study["speedup"],
                    "wall_s": study["wall_s"]}
            for label, study in found.items()
        },
        "alone": [_row(search, known) for known in search.trials if len(known) == 1],
        "combined": [_row(search, known) for known in search.trials if len(known) > 1],
        "greedy": [
            {"settings": settings, "ratio": ratio, "kept": kept}
            for settings, ratio, kept in search.steps
        ],
        "unavailable": dict(chosen.unavailable),
        "cut": search.cut,
        "runs": len(runs),
        "seconds": runs.spent_s,
    }  # fmt: skip


def _ratio(settings: Settings, found: Speedup | None) -> dict[str, Any]:
    known = (found.ratio, found.ci99_low, found.ci99_high) if found else (None, None, None)
    return {"settings": dict(settings), **dict(zip(("ratio", "low", "high"), known, strict=True))}


def _row(search: HandSearch, known: frozenset[tuple[str, Value]]) -> dict[str, Any]:
    trials = search.trials[known]
    failed = next((t for t in trials if t.state is not TrialState.COMPLETE), None)
    return {
        "settings": dict(known),
        "ratio": search.ratio(dict(known)),
        "runs": len(trials),
        "failed": f"{failed.state}: {failed.reason}" if failed else "",
    }


def sentence(result: Mapping[str, Any]) -> str:
    """Return what was found in one line."""
    cut = f", cut off: {result['cut']}" if result["cut"] else ""
    spent = f"{result['runs']} runs, {result['seconds']:.0f} s{cut}"
    return f"{result['title']}: by hand {_cell(result['last'][BY_HAND])}; {spent}"


def _command(state: Path, python: str, line: Sequence[str]) -> Command:
    """Return the command of the line, or that of the state where the line is empty."""
    known = json.loads(state.read_text("utf-8").splitlines()[0]) if state.exists() else None
    if not line and known is not None:
        os.chdir(known["folder"])
        args = tuple(known["args"])
        return Command(known["python"], known["script"], args, known["is_module"])
    is_module = line[:1] == ["-m"]
    script, *args = line[is_module:]
    command = Command(python, script, tuple(args), is_module)
    if known is not None and [known["script"], known["args"]] != [script, args]:
        raise SystemExit(f"{state} holds runs of {known['script']} {' '.join(known['args'])}")
    return command


def _study(text: str) -> tuple[str, Path]:
    label, equals, path = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text}: write LABEL=FILE")
    return label, Path(path).absolute()


def main() -> int:
    """Search, compare, and print what was found; 3 where the script cannot be measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("state", type=Path, help="file of runs, which may be there already")
    parser.add_argument("--seconds", type=float, default=900.0, help="for all runs (default: 900)")
    parser.add_argument("--python", default=sys.executable, help="interpreter of the script")
    parser.add_argument("--compare", metavar="LABEL=STUDY.json", nargs="+", type=_study, default=[])
    parser.add_argument(
        "--thorough", action="store_true", help="four runs of all, whatever it does"
    )
    line = sys.argv[1:]
    own = line.index("--") if "--" in line else len(line)
    options = parser.parse_args(line[:own])
    state = options.state.absolute()
    if own >= len(line) - 1 and not state.exists():
        parser.error("name the script after --")
    try:
        command = _command(state, options.python, line[own + 1 :])
        check_script(command)
        python = target_python(command)
        device = devices_for(python, 1)[0]
        with reserved([device]):
            runs = Runs(state, command, device, options.seconds)
            result = by_hand(runs, dict(options.compare), options.thorough)
    except AdvisorError as error:
        print(f"by_hand: {error}", file=sys.stderr)
        return 3
    state.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(sentence(result))
    if options.compare:
        print(row(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
