"""What tuning kernels came to, as text and as JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gpuadvisor.domain.kernel_records import WITHIN, KernelResult, Replay, Replayed
from gpuadvisor.domain.kernel_rules import shown
from gpuadvisor.domain.study import Speedup, TrialState, Verdict
from gpuadvisor.reports import figures
from gpuadvisor.tuners.kernels.point_search import BRUTE_FORCE

SCHEMA_VERSION = 1
_FAILURES = {
    TrialState.UNSUPPORTED: "did not compile or fit",
    TrialState.CRASHED: "crashed",
    TrialState.HUNG: "hung",
    TrialState.WRONG: "gave wrong results",
    TrialState.OUT_OF_MEMORY: "ran out of memory",
}
_SHOWN_REASONS = 3
"""Reasons of failures that the text shows, the most frequent first."""


def lines(result: KernelResult) -> Iterator[str]:
    """Yield the text of a kernel's result."""
    problem = f" ({shown(result.problem)})" if result.problem else ""
    yield f"{result.kernel}{problem} on {result.device}: {_verdict(result)}"
    if result.speedup is not None:
        yield f"  default  {shown(result.default)}: {_time(result, result.default_ms)}"
    if result.best is not None:
        yield f"  best     {shown(result.best)}: {_time(result, result.best_ms)}"
    of = f"{len(result.evaluations):,} of {result.points:,} points evaluated"
    yield f"  {of} in {figures.duration(result.wall_s)}"
    yield from (f"  {each}" for each in failures(result))
    if not result.has_reference:
        yield "  results were compared with the default's: the kernel has no reference"
    if not result.repeats:
        yield "  the default does not give the same bits twice"
    for remark in result.remarks:
        yield f"  {remark}"
    yield f"  every evaluation: {result.record}"
    if result.interrupted:
        yield "  go on with --resume"


def document(results: Sequence[KernelResult]) -> dict[str, Any]:
    """Return the JSON of all results."""
    return {"schema_version": SCHEMA_VERSION, "kernels": [_result(each) for each in results]}


def replay_lines(replay: Replay) -> Iterator[str]:
    """Yield the text of a replay: a table with a line a strategy."""
    yield (
        f"{replay.kernel} on {replay.device or 'a device that the file does not name'}: "
        f"{figures.count(replay.points, 'point')}, {replay.points - replay.valid_points:,} of them "
        f"fail; best {figures.milliseconds(replay.best_ms)}, "
        f"median {figures.milliseconds(replay.median_ms)}"
    )
    shares = "".join(f"{f'within {share:.0%}':>18}" for share in WITHIN)
    yield f"{'strategy':<16}{'score':>8}{shares}{'overhead':>14}"
    for each in replay.replayed:
        yield f"{each.strategy:<16}{each.score:>8.2f}{_cells(each)}{each.overhead_ms:>11.1f} ms"
    exact = "".join(f"{f'{count:,}':>18}" for count in replay.random)
    yield f"{'random, exactly':<16}{'':>8}{exact}"
    searches = figures.count(replay.searches, "search", "searches")
    yield (
        f"median evaluations of {searches} of at most {replay.budget:,}, and how many came that "
        "near; score: 0 is what a random search is expected to reach, 1 the best at once "
        "(Willemsen et al. 2024)"
    )
    if replay.points <= BRUTE_FORCE:
        yield (
            f"of a space of up to {BRUTE_FORCE} points `gpuadvisor tune-kernel` tries all; in so "
            "small a one the score says little, as a search's first few points decide it"
        )
    for each in replay.replayed:
        found = f"{shown(each.best.point)}: {figures.milliseconds(each.best.time_ms)}"
        yield f"best of {each.strategy}: {found}"


def replay_document(replay: Replay) -> dict[str, Any]:
    """Return the JSON of a replay."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kernel": replay.kernel,
        "device": replay.device,
        "points": replay.points,
        "valid_points": replay.valid_points,
        "best_ms": replay.best_ms,
        "median_ms": replay.median_ms,
        "budget": replay.budget,
        "within_pct": [100 * share for share in WITHIN],
        "random_evaluations": list(replay.random),
        "strategies": [
            {
                "strategy": each.strategy,
                "score": each.score,
                "evaluations": list(each.evaluations),
                "reached": list(each.reached),
                "overhead_ms": each.overhead_ms,
                "best": dict(each.best.point),
                "best_ms": each.best.time_ms,
                "times_ms": [list(search) for search in each.searches],
            }
            for each in replay.replayed
        ],
    }


def _verdict(result: KernelResult) -> str:
    speedup = result.speedup
    if result.verdict is Verdict.FASTER and speedup is not None:
        return f"{_ratio(speedup)} faster"
    if speedup is None and result.interrupted:
        return "interrupted before anything was proven"
    if speedup is None:
        timed = (e.point for e in result.evaluations if e.state is TrialState.COMPLETE)
        if any(dict(point) != dict(result.default) for point in timed):
            return "nothing is proven: the best points could not be timed beside the default"
        return "nothing but the default could be timed"
    if result.verdict is Verdict.NO_GAIN:
        return f"the default is as good as the best found ({_ratio(speedup)})"
    return f"inconclusive: the best found is {_ratio(speedup)}"


def _ratio(speedup: Speedup) -> str:
    interval = figures.interval(speedup.ci99_low, speedup.ci99_high)
    return f"{figures.ratio(speedup.ratio)} [99 % interval {interval}]"


def _time(result: KernelResult, time_ms: float | None) -> str:
    said = figures.milliseconds(time_ms)
    if time_ms:
        for amount, unit in ((result.useful_bytes, "B/s"), (result.useful_flops, "FLOP/s")):
            if amount is not None:
                said += f", {figures.rate(1e3 * amount / time_ms, unit)}"
    return said


def failures(result: KernelResult) -> Iterator[str]:
    """Yield how many points failed in each way and why, and how many processes they took along."""
    for state, said in _FAILURES.items():
        reasons = _alike(e.reason for e in result.evaluations if e.state is state)
        if not reasons:
            continue
        shown = [f"{reason} ({n:,}x)" for reason, n in reasons.most_common(_SHOWN_REASONS)]
        more = "" if len(reasons) <= _SHOWN_REASONS else f"; {len(reasons) - _SHOWN_REASONS:,} more"
        yield f"{sum(reasons.values()):,} {said}: {'; '.join(shown)}{more}"
    if result.restarts:
        processes = figures.count(result.restarts, "process", "processes")
        yield f"{processes} went down with a kernel, and began anew"


def _alike(reasons: Iterable[str]) -> Counter[str]:
    """Count reasons, of which those that differ in their numbers alone are one, the first."""
    counted: Counter[str] = Counter()
    first: dict[str, str] = {}
    for reason in reasons:
        counted[first.setdefault(re.sub(r"-?\d[\d.,e+-]*", "#", reason), reason)] += 1
    return counted


def _result(result: KernelResult) -> dict[str, Any]:
    speedup = result.speedup
    return {
        "kernel": result.kernel,
        "problem": dict(result.problem),
        "device": result.device,
        "verdict": str(result.verdict),
        "default": dict(result.default),
        "best": None if result.best is None else dict(result.best),
        "default_ms": result.default_ms,
        "best_ms": result.best_ms,
        "speedup": None
        if speedup is None
        else {
            "ratio": speedup.ratio,
            "ci99_low": speedup.ci99_low,
            "ci99_high": speedup.ci99_high,
            "blocks": speedup.pairs,
        },
        "points": result.points,
        "evaluations": len(result.evaluations),
        "states": result.counts,
        "has_reference": result.has_reference,
        "repeats": result.repeats,
        "record": result.record,
        "wall_s": result.wall_s,
        "search_s": result.search_s,
        "restarts": result.restarts,
        "interrupted": result.interrupted,
        "remarks": list(result.remarks),
    }


def _cells(each: Replayed) -> str:
    pairs = zip(each.evaluations, each.reached, strict=True)
    said = [f"{'-' if count is None else f'{count:,.0f}'} ({share:.0%})" for count, share in pairs]
    return "".join(f"{text:>18}" for text in said)
