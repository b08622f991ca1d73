"""A row of the table "By hand": fresh runs on one machine that chose nothing.

    python benchmarks/hand_compared.py FOLDER [--call-seconds 500] -- train.py --epochs 3

FOLDER holds `runs.json` of `by_hand.py`, and `BUDGET/study.json` with the result of `tune --json`
for each budget. The unchanged script, the best by hand and what each study proposed follow one
another in random order, four times, in fresh processes: all ratios and shares are from those, so
that the search and the studies may have been on other machines of that kind. What was measured
stands in FOLDER/compared.json after each round; a round that was begun on another machine is not
gone on with. Status 0 where there is a row, 1 where there was no time for two rounds.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, median
from typing import Any

from hand_runs import (
    UNCHANGED,
    Run,
    Runs,
    TimeIsUpError,
    asked,
    cost,
    key,
    measuring,
    shown,
    written,
)

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Settings
from gpuadvisor.domain.study import Speedup, TrialState
from gpuadvisor.errors import AdvisorError, UsageError
from gpuadvisor.tuners.statistics import paired_ratio
from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit

ROUNDS = 4
"""Runs of each side, as the table wants them."""
LEAST_ROUNDS = 2
"""Below which there is no interval."""
BASELINES = 3
"""Runs of the unchanged script before the rounds, at most."""
BY_HAND = "by hand"
SHORT_S = 360.0
"""Longest budget of a study that stands in the column of those of five minutes."""
HEAD = """| script | unchanged | by hand | 5 minutes, share | 8-10 minutes, share | machine | date |
| --- | --- | --- | --- | --- | --- | --- |"""


def document(path: Path) -> Any:
    """Return what a file of JSON holds; None where there is none."""
    return json.loads(path.read_text("utf-8")) if path.exists() else None


def studies(folder: Path) -> dict[str, Mapping[str, Any]]:
    """Return what each study of a script said, by its budget, the shortest first."""
    found = {each.parent: document(each) for each in folder.glob("*/study.json")}
    budgets = {each: document(each / "about.json")["budget"] for each in found}
    ordered = sorted(found, key=lambda each: BudgetLimit.parse(budgets[each]).seconds or 0.0)
    return {budgets[each]: found[each] for each in ordered}


def proposed(study: Mapping[str, Any]) -> Settings:
    """Return what a study's result tells its user to set; empty where there is no gain."""
    is_gain = str(study["verdict"]).startswith("faster")
    return dict(study["best"]["knobs"]) if is_gain and study["best"] else {}


def sides(folder: Path) -> dict[str, Settings]:
    """Return what is compared with the unchanged script; UsageError where a part lacks."""
    search, found = document(folder / "runs.json"), studies(folder)
    if search is None or not found:
        what = "search by hand" if search is None else "study"
        raise UsageError(f"{folder} holds no {what} yet: make it before the comparison")
    return {BY_HAND: search["settings"], **{name: proposed(each) for name, each in found.items()}}


def points(compared: Mapping[str, Settings]) -> list[Settings]:
    """Return the settings of a round: those that several sides have are run once."""
    return list({key(settings): settings for settings in ({}, *compared.values())}.values())


def needed_s(folder: Path) -> float:
    """Return how long a comparison will take, by the runs of the search."""
    lines = (folder / "runs.jsonl").read_text("utf-8").splitlines()[1:]
    walls = [json.loads(line)["trial"]["wall_s"] for line in lines if line.endswith("}")]
    return (BASELINES + ROUNDS * len(points(sides(folder)))) * median(walls or [0.0])


def is_done(folder: Path) -> bool:
    """Say whether there is a row with all rounds, of what is proposed now."""
    known, wanted = document(folder / "compared.json"), sides(folder)
    return (
        known is not None
        and known["rounds"] >= ROUNDS
        and {name: each["settings"] for name, each in known["last"].items()} == wanted
    )


def check_alike(folder: Path, device: Device) -> None:
    """Raise UsageError where the parts of a row are of other devices than this one."""
    search = document(folder / "runs.json")
    kinds = {BY_HAND: (search["device"], search["cores"])}
    for name, study in studies(folder).items():
        kinds[name] = (study["device"]["name"], study["environment"]["cpu_cores"])
    for name, (kind, cores) in kinds.items():
        if (kind, cores) != (device.name, device.cores):
            raise UsageError(
                f"{folder}: {name} was on {kind} with {cores} cores, and here is {device.name} "
                f"with {device.cores}: compare it on a machine of that kind"
            )


def rounds(runs: Runs, compared: Mapping[str, Settings]) -> Iterator[list[Run]]:
    """Yield the runs of each round, in the order of `points`, as long as this call has time."""
    stage = f"last {json.dumps(compared)}"
    every, orders = points(compared), random.Random(stage)
    for _ in range(ROUNDS):
        order = orders.sample(range(len(every)), len(every))
        done: dict[int, Run] = {}
        try:
            for place in order:
                done[place] = runs.run(stage, every[place])
        except TimeIsUpError:
            return
        yield [done[place] for place in range(len(every))]


def ratios(
    done: Sequence[Sequence[Run]], compared: Mapping[str, Settings]
) -> dict[str, Speedup | None]:
    """Return each side's ratio to the unchanged script; None where a run failed."""
    places = {key(settings): place for place, settings in enumerate(points(compared))}
    return {
        name: _paired([(each[0], each[places[key(settings)]]) for each in done])
        for name, settings in compared.items()
    }


def _paired(pairs: Sequence[tuple[Run, Run]]) -> Speedup | None:
    trials = [(base.trial, head.trial) for base, head in pairs]
    if any(trial.state is not TrialState.COMPLETE for pair in trials for trial in pair):
        return None
    return paired_ratio([(cost(base), cost(head)) for base, head in trials])


def result(
    folder: Path, runs: Runs, torch: str, compared: Mapping[str, Settings], done: list[list[Run]]
) -> dict[str, Any]:
    """Return a row as a document."""
    search, found = document(folder / "runs.json"), studies(folder)
    unchanged = [each[0].trial.measurement for each in done]
    return {
        "script": folder.name,
        "device": runs.device.name,
        "cores": runs.device.cores,
        "torch": torch,
        "machine": runs.machine,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "rounds": len(done),
        "unchanged_ms": fmean(each.mean_step_ms for each in unchanged if each),
        "last": {
            name: {"settings": dict(compared[name]), **_interval(ratio)}
            for name, ratio in ratios(done, compared).items()
        },
        "search": {
            name: search[name] for name in ("finished", "cut", "runs", "seconds", "machines")
        },
        "studies": {
            name: {"verdict": each["verdict"], "speedup": each["speedup"],
                   "wall_s": each["wall_s"], "gpu": each["device"]["uuid"]}
            for name, each in found.items()
        },
    }  # fmt: skip


def _interval(found: Speedup | None) -> dict[str, float | None]:
    known = (found.ratio, found.ci99_low, found.ci99_high) if found else (None, None, None)
    return dict(zip(("ratio", "low", "high"), known, strict=True))


def row(known: Mapping[str, Any]) -> str:
    """Return a result as a row of the table: by hand, each study, and the share it reached."""
    last, hand = known["last"], known["last"][BY_HAND]["ratio"]
    search = known["search"]
    spent = f"{search['runs']} runs in {search['seconds']:.0f} s"
    if not search["finished"] or search["cut"]:
        spent = f"**cut off** after {spent}"
    cells = [known["script"], f"{known['unchanged_ms']:.1f} ms", f"{_cell(last[BY_HAND])}; {spent}"]
    columns: dict[bool, list[str]] = {True: [], False: []}
    for name, found in last.items():
        if name != BY_HAND:
            share = f", {found['ratio'] / hand:.0%}" if found["ratio"] and hand else ""
            said = f"{name}: `{known['studies'][name]['verdict']}`{share}: {_cell(found)}"
            columns[(BudgetLimit.parse(name).seconds or 0.0) <= SHORT_S].append(said)
    cells += ["; ".join(said) or "not run" for said in columns.values()]
    torch = ".".join(known["torch"].split(".")[:2])
    cells.append(
        f"{known['device']}, {known['cores']} cores, torch {torch}: {known['rounds']} rounds; "
        f"machines of the search: {len(search['machines'])}"
    )
    cells.append(known["date"])
    return f"| {' | '.join(cells)} |"


def _cell(found: Mapping[str, Any]) -> str:
    if not found["settings"]:
        return UNCHANGED  # its ratio to itself was not measured
    if found["ratio"] is None:
        return f"failed: {shown(found['settings'])}"
    between = f"{found['low']:.2f}-{found['high']:.2f}"
    return f"{found['ratio']:.2f}x ({between}): {shown(found['settings'])}"


def main() -> int:
    """Compare as far as there is time, and print the row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="of the script's search and studies")
    line = asked(parser)
    folder, done = line.options.folder.absolute(), list[list[Run]]()
    try:
        compared = sides(folder)
        with measuring(line, folder / "compared.jsonl", for_proof=True) as (runs, torch):
            check_alike(folder, runs.device)
            runs.baseline()
            for each in rounds(runs, compared):
                done.append(each)
                if len(done) >= LEAST_ROUNDS:
                    known = result(folder, runs, torch, compared, done)
                    written(folder / "compared.json", known)
    except AdvisorError as error:
        print(f"hand_compared: {error}", file=sys.stderr)
        return error.exit_code
    if len(done) < LEAST_ROUNDS:
        print(f"{folder.name}: no time for {LEAST_ROUNDS} rounds", file=sys.stderr)
        return 1
    print(row(known))
    return 0


if __name__ == "__main__":
    sys.exit(main())
