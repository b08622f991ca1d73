"""`--gpu-benchmark-record` and `--gpu-benchmark-check`: benchmarks beside those of other days.

Store, key and statistics are those of `gpuadvisor gate record` and `check`; a baseline is called as
its test is, by node id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import geometric_mean

import pytest

from gpuadvisor.collectors.environment import environment
from gpuadvisor.domain.baseline import RecordedRun, Recording
from gpuadvisor.domain.device import Environment
from gpuadvisor.domain.measurement import StepWindow
from gpuadvisor.errors import RefusedError
from gpuadvisor.pytest_plugin.comparing import Compared, SideRun, tell_disturbed
from gpuadvisor.pytest_plugin.fixture import wanted_of
from gpuadvisor.pytest_plugin.fresh_processes import Asked, Machine, Side, machine
from gpuadvisor.storage.gate import (
    Baselines,
    add_to_baselines,
    baselines_file,
    check_writable,
    read_baselines,
)
from gpuadvisor.tuners.gate.comparing import MAX_FAILURES
from gpuadvisor.tuners.gate.decision import Bounds
from gpuadvisor.tuners.gate.stored import LEAST, RUNS, compare_stored, figures_of, level_of
from gpuadvisor.tuners.proof import MAX_REPEATED
from gpuadvisor.tuning.gate.options import GateOptions, Own
from gpuadvisor.tuning.gate.sides import Place, ready
from gpuadvisor.tuning.gate.stored import (
    Baseline,
    days_alike,
    key_of,
    refuse_other_clocks,
    refuse_others,
    too_few,
)

HOW = "`pytest --gpu-benchmark-record`"
MS = 1e-3
"""Seconds in the unit of recorded times."""


def record(asked: Asked) -> None:
    """Run the benchmarks in fresh processes, and keep what they took.

    Raises RefusedError where something else uses the GPU, StoreError where nothing can be kept, and
    Interrupted; then nothing is. What fails is told of and not kept.
    """
    file = _file(asked)
    read_baselines(file)  # a damaged file is said before anything runs
    check_writable(file)
    with machine(nullcontext) as (here, _):
        began = datetime.now(UTC).replace(microsecond=0)
        found, failed = runs_of(_process(asked, here), asked.tests, RUNS, asked.tell)
        now = _environment(asked, here)
    recorded = {item.nodeid: _key(item, now, here) for item in asked.items if item.nodeid in found}
    for test, key in recorded.items():
        runs = tuple(found[test])
        add_to_baselines(file, Recording(test, began, key, runs, now.git_commit, now.git_dirty))
    for test, why in failed.items():
        asked.tell(f"{test} was not recorded: {why}")
    known = read_baselines(file)
    days = [len(level_of(days_alike(known, test, key))[0]) for test, key in recorded.items()]
    if days:
        least = f"; a check needs {LEAST}, 20 hours apart or more" if min(days) < LEAST else ""
        counted = f"{min(days)}" if min(days) == max(days) else f"{min(days)} to {max(days)}"
        asked.tell(
            f"recorded {len(days)} of {len(asked.tests)} benchmarks in {file}, in {RUNS} "
            f"processes: {counted} day{'s' * (max(days) != 1)} of this level{least}"
        )


def check(asked: Asked) -> Compared:
    """Run the benchmarks as often as they were recorded, and compare them with the recorded days.

    What has too few days is inconclusive and not run. Raises RefusedError where all recordings are
    of another machine, or something else uses the GPU; StoreError where the file cannot be read.
    """
    file = _file(asked)
    known = read_baselines(file)
    found = Compared(f"the recordings of {file.name}", stored=True)
    with machine(nullcontext) as (here, _):
        days = _comparable(asked, known, here, found)
        if days:
            most = max(len(day.runs) for of_test in days.values() for day in of_test)
            runs, failed = runs_of(_process(asked, here), [*days], most, asked.tell)
            found.notes.update(failed)
            compare_days(days, runs, found)
        elif found.notes and not found.undecided:
            raise RefusedError(next(iter(found.notes.values())))
    return found


def compare_days(
    days: Mapping[str, Sequence[Recording]],
    runs: Mapping[str, Sequence[RecordedRun]],
    found: Compared,
) -> None:
    """Add to `found` what new runs of benchmarks show beside recorded days, `LEAST` or more.

    All benchmarks together claim a regression that is none as often as one check of a script does:
    each has an equal share of its error. What ran at other clocks than any recorded day is noted,
    and not compared.
    """
    bounds = Bounds(error_share=1 / len(days))
    for test, new in runs.items():
        recorded = days[test]
        try:
            refuse_other_clocks(recorded, new)
        except RefusedError as other:
            found.notes[test] = str(other)
            continue
        *before, now = figures_of([*recorded, replace(recorded[-1], runs=tuple(new))], "step_time")
        difference = compare_stored("step_time", before, now, bounds)
        base = tuple(MS * geometric_mean(day) for day in before)
        figures = replace(difference, base=base, head=tuple(MS * each for each in now))
        found.differences[test] = figures, len(before)


def runs_of(
    run: Callable[[Sequence[str]], SideRun],
    tests: Sequence[str],
    count: int,
    tell: Callable[[str], object],
) -> tuple[dict[str, list[RecordedRun]], dict[str, str]]:
    """Return so many runs of each benchmark that gave a time in them, and why others did not.

    `run` runs some of them in a fresh process. A first one fills caches. Where something else used
    the machine all are run again, a few times; RefusedError where it has the GPU all the time.
    """
    first = run(tests)
    failed = {test: f"it gave no time{_why(first)}" for test in tests if test not in first.times_s}
    found: dict[str, list[RecordedRun]] = {test: [] for test in tests if test not in failed}
    what = f"{len(found)} benchmark{'s' * (len(found) != 1)}"
    tell(f"{what} in {count} processes of pytest, about {first.wall_s:.0f} s each")
    missing = dict.fromkeys(found, 0)
    repeated = 0
    while lacking := [test for test, runs in found.items() if len(runs) < count]:
        made = run(lacking)
        if made.disturbance:
            again = repeated < MAX_REPEATED
            repeated += again
            tell_disturbed(made.disturbance, again, "this run", tell)
            if again:
                continue
        for test in lacking:
            one = made.run_of(test)
            if one is not None:
                window = StepWindow(1, one.cost)
                found[test].append(RecordedRun((window,), None, 0, 0.0, one.clock))
                continue
            missing[test] += 1
            if missing[test] > MAX_FAILURES:
                failed[test] = f"it fails now and then{_why(made)}"
                del found[test]
    return found, failed


def _why(run: SideRun) -> str:
    return f" ({run.why})" if run.why else ""


def _comparable(
    asked: Asked, known: Baselines, here: Machine, found: Compared
) -> dict[str, list[Recording]]:
    """Return the days that each benchmark can be compared with; `found` gets why others cannot."""
    now = _environment(asked, here)
    comparable = {}
    for item in asked.items:
        test, key = item.nodeid, _key(item, now, here)
        days, changes = level_of(days_alike(known, test, key))
        since = ""
        if changes:
            at, ratio = changes[-1].at, changes[-1].ratio
            since = f" since {at:%Y-%m-%d}, when it changed by {ratio - 1:+.1%}"
        if len(days) >= LEAST:
            comparable[test] = days
            if since:
                asked.tell(f"{test}: only days count{since} (`gpuadvisor gate history`)")
            continue
        try:
            refuse_others(known, test, key)
        except RefusedError as other:
            found.notes[test] = str(other)
        else:
            own = replace(known, recordings=tuple(known.recordings_of(test)))
            found.undecided[test] = too_few(
                own, Baseline(test, _file(asked)), len(days), since, HOW
            )
    return comparable


def _process(asked: Asked, here: Machine) -> Callable[[Sequence[str]], SideRun]:
    """Return what runs benchmarks of the user's own folder in a fresh process."""
    top = asked.config.rootpath
    side = ready(Place(Path.cwd()), here.command, Own(), here.python, {})
    return Side(asked.config, side, top, top, here.device, here.folder / "own", here.ours).run


def _file(asked: Asked) -> Path:
    chosen = asked.config.getoption("gpu_benchmark_store")
    return baselines_file(Path(chosen) if chosen else None)


def _environment(asked: Asked, here: Machine) -> Environment:
    """Return what benchmarks run on, with the commit of their tests."""
    return environment(here.python, here.device, asked.items[0].path)


def _key(item: pytest.Item, now: Environment, here: Machine) -> Mapping[str, str]:
    """Return what must be equal for two recordings of a benchmark to be compared."""
    wanted = wanted_of(item)
    key = key_of(now, GateOptions(here.command, measure_s=wanted.max_time_s))
    return key | ({"L2 cache": "flushed"} if wanted.flush_l2 else {})
