"""How often a gate fails for an unchanged version, and how often it finds a slower one.

    python benchmarks/gate_decision.py [--studies 1000] [--jobs 1] [--tables noise,neighbours]

The real decision and loop of `gpuadvisor gate` run on simulated noise, and beside simulated
neighbours: second jobs that come and go. Beside them, on the same noise, rules as other tools have
them. Nothing is measured here; a gate takes 5 ms, and all tables with 1000 gates each some seven
minutes of two cores anywhere.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.false_claims import PERIODS_S
from benchmarks.gate_noise import (
    IN_TURNS,
    NOISES,
    STEPS,
    STILL,
    TWO_SPEEDS,
    WINDOWS,
    AnySession,
    BesideInTurns,
    SessionInTurns,
    beside,
    beside_in_turns,
    beside_turned,
    runs,
    session,
    session_in_turns,
    session_turned,
)
from benchmarks.rates import interval
from gpuadvisor.domain.gate import GateRun, GateVerdict
from gpuadvisor.tuners.gate.comparing import Comparing
from gpuadvisor.tuners.gate.decision import LOOKS

SLOWER = (0.0, 0.01, 0.02, 0.03, 0.05, 1.5)


@dataclass(frozen=True)
class Rates:
    """What came of some gates."""

    gates: int
    failed_after: tuple[int, ...]
    """Pairs after which each of the failed ones failed."""
    passed: int
    pairs: float
    """Mean number of pairs."""
    starts: float
    """Mean number of runs, those before the pairs too."""
    early: int
    """Gates that ended without an answer, as more pairs would hardly have told."""
    by_metric: Mapping[str, int]
    """Gates that failed for a metric."""

    def failed(self, within: int = LOOKS[-1]) -> float:
        return sum(pairs <= within for pairs in self.failed_after) / self.gates

    @property
    def inconclusive(self) -> float:
        return 1 - (self.passed + len(self.failed_after)) / self.gates

    @property
    def fails(self) -> str:
        """Rate of failures with the upper end of its 95 % interval."""
        most = interval(len(self.failed_after), self.gates)[1]
        return f"{self.failed():.2%} (at most {most:.2%})"


def _same(value: Any) -> Any:
    return value


def gated(make: Callable[[int], AnySession], gates: int) -> Rates:
    """Run so many gates."""
    failed, passed, pairs, starts, early = [], 0, 0, 0, 0
    by_metric: Counter[str] = Counter()
    for number in range(gates):
        session = make(number)

        def run(side: str, place: str, session: AnySession = session) -> GateRun:
            nonlocal starts
            starts += 1
            return session.run(side, place)

        def both(
            sides: Sequence[str], place: str, session: AnySession = session
        ) -> dict[str, GateRun]:
            nonlocal starts
            starts += 2
            return session.both(sides, place)

        first = [run(side, "first") for side in ("base", "head")]
        pairs_run = both if isinstance(session, (SessionInTurns, BesideInTurns)) else None
        in_turns = partial(_same, pairs_run)
        found = Comparing(run, first, seed=str(number), in_turns=in_turns).go()
        pairs += found.pairs
        early += found.hopeless
        passed += found.verdict is GateVerdict.PASS
        if found.verdict is GateVerdict.FAIL:
            failed.append(found.pairs)
            by_metric.update(d.metric for d in found.differences if d.verdict is GateVerdict.FAIL)
    return Rates(
        gates, tuple(failed), passed, pairs / gates, starts / gates, early, dict(by_metric)
    )


# Rules of other tools, of the steps (runs x steps) of eight runs of each version. -----------------


def fixed(base: np.ndarray, head: np.ndarray) -> bool:
    """Fail where the mean of all steps is longer by 5 %."""
    return bool(head.mean() > 1.05 * base.mean())


def welch(base: np.ndarray, head: np.ndarray) -> bool:
    """Fail where Welch's test of all steps says so at 1 %."""
    from scipy import stats

    found = stats.ttest_ind(head, base, axis=None, equal_var=False, alternative="greater")
    return bool(found.pvalue < 0.01)


def compare_fail(base: np.ndarray, head: np.ndarray) -> bool:
    """Fail as pytest-benchmark's `--benchmark-compare-fail=min:5%`: one process of each version."""
    return bool(head[0].min() > 1.05 * base[0].min())


def asv_factor(base: np.ndarray, head: np.ndarray) -> bool:
    """Fail as `asv continuous`: two rounds each, Mann-Whitney at 0.002, and a factor of 1.1."""
    from scipy import stats

    base, head = base[:2].ravel(), head[:2].ravel()
    if np.median(head) <= 1.1 * np.median(base):
        return False
    return bool(stats.mannwhitneyu(head, base, alternative="two-sided").pvalue < 0.002)


OTHERS = (fixed, welch, compare_fail, asv_factor)
EIGHT = 8
"""Runs of each version that they have; one version's after the other's."""


def steps_of(name: str, number: int) -> np.ndarray:
    """Return the steps of a session of a named noise."""
    return runs(NOISES[name], np.random.default_rng(number), 2 * EIGHT)[0]


def steps_beside(period_s: float, number: int) -> np.ndarray:
    """Return the steps of a session beside a neighbour; those of a window take equally long."""
    noise = beside(period_s, 0.0, number).noise
    made = [noise.run({"version": "head"} if n >= EIGHT else {}) for n in range(2 * EIGHT)]
    return np.repeat(np.array(made), STEPS // WINDOWS, axis=1)


def others(make: Callable[[int], np.ndarray], slower: float, gates: int) -> list[str]:
    """Return how often each of the other rules fails."""
    failed = [0] * len(OTHERS)
    for number in range(gates):
        steps = make(number)
        for place, rule in enumerate(OTHERS):
            failed[place] += rule(steps[:EIGHT], steps[EIGHT:] * (1 + slower))
    return [f"{count / gates:.1%}" for count in failed]


# Tables. ------------------------------------------------------------------------------------------


def _noise_row(gates: int, of: tuple[str, bool, float]) -> list[str]:
    name, has_clocks, slower = of
    found = gated(partial(session, name, slower, has_clocks), gates)
    return [
        name,
        "sampled" if has_clocks else "unknown",
        f"{slower:.0%}",
        f"{found.failed():.1%}" if slower else found.fails,
        f"{found.failed(12):.1%}",
        f"{found.failed(15):.1%}",
        f"{found.passed / gates:.1%}",
        f"{found.inconclusive:.1%}",
        f"{found.early / gates:.1%}",
        f"{found.pairs:.1f}",
        f"{found.starts:.1f}",
    ]


def _neighbour_row(gates: int, period_s: float) -> list[str]:
    none, slow = (
        gated(partial(beside, period_s, slower), of)
        for slower, of in ((0.0, gates), (0.05, gates // 10))
    )
    return [
        f"{period_s} s",
        none.fails,
        f"{none.passed / gates:.0%}",
        f"{none.inconclusive:.0%}",
        f"{none.pairs:.1f}",
        f"{slow.failed():.0%}",
        f"{slow.passed / slow.gates:.1%}",
    ]


def _turns_row(gates: int, of: str | float) -> list[str]:
    return _of_small(gates, of, session_in_turns if isinstance(of, str) else beside_in_turns)


def _plans_row(gates: int, of: str | float) -> list[str]:
    return _of_small(gates, of, session_turned if isinstance(of, str) else beside_turned)


def _of_small(gates: int, of: str | float, made: Callable[..., AnySession]) -> list[str]:
    """Return what comes of gates of small differences."""
    make = partial(made, of)
    none, one, three, five = (
        gated(partial(make, slower), count)
        for slower, count in ((0.0, gates), (0.01, gates), (0.03, gates // 5), (0.05, gates // 5))
    )
    return [
        of if isinstance(of, str) else f"beside a neighbour of {of} s",
        none.fails,
        f"{none.passed / gates:.1%}",
        f"{none.pairs:.1f}",
        f"{none.starts:.1f}",
        one.fails,
        f"{three.failed():.0%}",
        f"{five.failed():.0%}",
        f"{five.passed / five.gates:.1%}",
        f"{five.pairs:.1f}",
    ]


def _guards_row(gates: int, of: str | float) -> list[str]:
    if isinstance(of, str):
        found = gated(lambda number: session(of, 0.0, True, number, guarded=True), gates)
    else:
        found = gated(lambda number: beside(of, 0.0, number, guarded=True), gates)
    named = "; ".join(f"{name} {count}" for name, count in sorted(found.by_metric.items()))
    beside_what = of if isinstance(of, str) else f"beside a neighbour of {of} s"
    return [beside_what, found.fails, named or "none", f"{found.inconclusive:.1%}"]


def _other_row(gates: int, of: tuple[str | float, float]) -> list[str]:
    where, slower = of
    if isinstance(where, str):
        make, named = partial(steps_of, where), where
    else:
        make, named = partial(steps_beside, where), f"beside a neighbour of {where} s"
    return [named, f"{slower:.0%}", *others(make, slower, gates)]


GUARDED = (*NOISES, 30, 60)
Row = Callable[[int, Any], list[str]]
TABLES: Mapping[str, tuple[str, Row, Iterable[Any]]] = {
    "noise": (
        "noise | clocks | slower by | fails | within 12 pairs | within 15 | passes "
        "| inconclusive | of these early | pairs | starts",
        _noise_row,
        [
            (name, has_clocks, slower)
            for name in (*NOISES, *STILL, *TWO_SPEEDS)
            for has_clocks in ((True, False) if name in ("typical", "hard") else (True,))
            for slower in SLOWER
        ],
    ),
    "guards": (
        "energy and 95th percentile, too | unchanged: fails | gates by metric | inconclusive",
        _guards_row,
        GUARDED,
    ),
    "neighbours": (
        "neighbour's period | unchanged: fails | passes | inconclusive | pairs "
        "| 5 % slower: fails | passes",
        _neighbour_row,
        PERIODS_S,
    ),
    "turns": (
        "pairs in turns of 0.1 s | unchanged: fails | passes | pairs | starts | 1 % slower: fails "
        "| 3 %: fails | 5 %: fails | passes | pairs",
        _turns_row,
        (*IN_TURNS, *PERIODS_S),
    ),
    "plans": (
        "both timed within each process | unchanged: fails | passes | pairs | starts "
        "| 1 % slower: fails | 3 %: fails | 5 %: fails | passes | pairs",
        _plans_row,
        (*NOISES, *PERIODS_S),
    ),
    "others": (
        "noise | slower by | fixed 5 % | Welch, 1 % | pytest-benchmark, min:5% | asv, 1.1",
        _other_row,
        [(where, slower) for where in GUARDED for slower in (0.0, 0.03, 0.05)],
    ),
}


def main() -> None:
    """Print tables of rates."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=1, help="processes that work side by side")
    parser.add_argument("--tables", default=",".join(TABLES), help=f"some of {', '.join(TABLES)}")
    chosen = parser.parse_args()
    print(f"{chosen.studies} gates each, with the default tolerance (1 %) and limit (3 %);")
    print("in brackets the upper end of the 95 % interval.")
    with ProcessPoolExecutor(chosen.jobs) as pool:
        for name in chosen.tables.split(","):
            head, row, of = TABLES[name]
            print(f"\n| {head} |\n|---|{'--:|' * head.count('|')}")
            for cells in pool.map(partial(row, chosen.studies), of):
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
