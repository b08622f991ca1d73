"""What keeps pairs of runs from deciding a gate: seen early, with what would help."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from gpuadvisor.domain.gate import Difference, GateVerdict, MetricRole
from gpuadvisor.tuners.gate.decision import LOOK_ERRORS, LOOKS, PASS_ERRORS, ratio_within
from gpuadvisor.tuners.gate.metric import Counted, Evidence, Read
from gpuadvisor.tuners.gate.metrics import load_metrics
from gpuadvisor.tuners.gate.metrics.times import STEP_TIME, WAITS

LEAST_PAIRS = 2
"""Pairs from which it can be seen, with two runs of the base before them."""
DOUBT = 0.05
"""Chance that runs which differ by just too much to be told apart are called so."""
LIKELY = 1.28
"""Standard errors that an interval has to be clear by, so that nine of ten gates are decided."""
OF_MEDIAN = 1.25
"""Standard error of a median of normal values over that of their mean."""
LONGEST_S = 300.0
"""Longest measurement of a run that is proposed: 24 pairs of such runs take four hours."""
LEAST_TOLERANCE_PERCENT = 0.3
"""What is proposed beside a limit of 1 %, a third of it as beside others: it has to be smaller."""
HALF = 0.5
"""Part of what runs differ by, from which something is called a cause of it."""

ANY = (
    "a quieter machine, locked clocks or a larger --limit decide it; nothing was shown to be worse"
)
"""What helps where a figure that is timed stayed open, and nobody knows why."""
OTHER_COUNTS = (
    "runs of one version do not count the same, by random shapes or an autotuner's choice: fix its "
    "seeds, or compare without {}"
)
"""What helps where a count stayed open; it is called so."""


def left_open(differences: Iterable[Difference]) -> str:
    """Return what would help to decide figures that a verdict rests on; empty where all are."""
    left = [
        each
        for each in differences
        if each.verdict is GateVerdict.INCONCLUSIVE and each.role is MetricRole.DECIDES
    ]
    if counts := [each.metric for each in left if isinstance(load_metrics()[each.metric], Counted)]:
        return OTHER_COUNTS.format(", ".join(counts))
    return ANY if left else ""


def obstacle(evidence: Evidence) -> str:
    """Return why all pairs of a gate will hardly tell of the step time, and what would help.

    Empty where they may: where runs surely differ by less than what lets half of the unchanged
    versions pass, or the new version is slower by so much that it will be seen all the same.
    """
    read = STEP_TIME.reader(evidence.all)
    base, head = ([read(run) or 1.0 for run in side] for side in (evidence.base, evidence.head))
    ratios = [r for old, new, _ in evidence.pairs if (r := STEP_TIME.ratio(old, new))]
    ratios += [
        ratio_within(*w) for old, new, _ in evidence.pairs if (w := STEP_TIME.within(old, new))
    ]
    if len(ratios) == len(evidence.pairs) > 0:
        base, head = [1.0] * len(ratios), ratios
    found = scattered(base, head, evidence.tolerance, evidence.limit)
    if found is None:
        return ""
    helps = [*_causes(evidence, found.spread, read), _bounds(found.spread)]
    return f"{found.sentence}. What would help: {'; '.join(helps)}"


@dataclass(frozen=True)
class Scattered:
    """Runs of one version that differ so much that all pairs of a gate will hardly tell."""

    spread: float
    """How much runs of one version differ: standard deviation of the logarithms of their costs,
    so as a share; 0.02 is 2 %."""
    sentence: str
    """What that keeps from being shown, without a full stop."""


def scattered(
    base: Sequence[float], head: Sequence[float], tolerance: float, limit: float
) -> Scattered | None:
    """Return by how much runs differ, where that keeps a gate from being decided; else None.

    The last figures of the base are of pairs with the head's; those before of runs of its own.
    """
    if len(head) < LEAST_PAIRS:
        return None
    old, new = (list(map(math.log, side)) for side in (base, head))
    differences = [two - one for one, two in zip(old[-len(new) :], new, strict=True)]
    apart = _squares(old) + _squares(new), len(old) + len(new) - 2
    in_pairs = _squares(differences) / 2, len(differences) - 1
    least = min(_least(*apart), _least(*in_pairs))
    if _passes(least) <= math.log1p(limit):
        return None
    spread = min(math.sqrt(squares / freedom) for squares, freedom in (apart, in_pairs))
    last = LOOKS[-1]
    fails = math.log1p(tolerance) + _half(last, LOOK_ERRORS[last], spread)
    if math.fsum(differences) / len(differences) > fails:
        return None
    return Scattered(
        spread,
        f"runs of one version differ by {_percent(spread)}: even {last} pairs would show only "
        f"slowdowns of {_percent(math.expm1(fails))} and more, and hardly rule out one of "
        f"{_percent(limit)}",
    )


def _causes(evidence: Evidence, spread: float, read: Read) -> Iterator[str]:
    """Yield what was seen that runs may differ by, each with what would help, in words."""
    runs = evidence.all
    made = [*evidence.known, *(run for base, head, _ in evidence.pairs for run in (base, head))]
    if disturbed := [run.trial.disturbance for run in made if run.trial.disturbance]:
        yield f"beside {len(disturbed)} of {len(made)} runs {disturbed[-1]}, which has to end"
    waits = median(run.data_wait_share for run in runs)
    if waits > WAITS:
        yield (
            f"it waits for its data for {waits:.0%} of the time, so that the disk and the CPU are "
            "measured: let it read a few batches that are kept in memory"
        )
    clocks = [math.log(run.sm_clock_mhz) for run in made if run.sm_clock_mhz]
    if len(clocks) == len(made) and _deviation(clocks) > HALF * spread:
        yield (
            f"the SM clock moves by {_deviation(clocks):.0%} from run to run: lock it "
            "(nvidia-smi --lock-gpu-clocks)"
        )
    within = median(run.noise for run in runs)
    windows = median(len(run.window_step_ms) for run in runs)
    if OF_MEDIAN * within / math.sqrt(windows) > HALF * spread:
        longer_s = median(run.seconds for run in runs) * (spread / _decidable(evidence)) ** 2
        far = f", for {longer_s:.0f} s" if longer_s <= LONGEST_S else ""
        yield f"steps differ as much within each run: measure longer (--measure){far}"
    else:
        yield (
            f"steps within a run differ by {within:.0%} only, so it is each process that is "
            "different: give it cores of its own (taskset), and fix what it chooses anew each time"
        )


def _bounds(spread: float) -> str:
    """Return what could be told, as a clause."""
    last = LOOKS[-1]
    limit = math.expm1(_passes(spread) + LIKELY * spread * math.sqrt(2 / last))
    percent = max(1, math.ceil(100 * limit))
    tolerance = math.ceil(percent / 3) if percent > 1 else LEAST_TOLERANCE_PERCENT
    return f"what can be told is --tolerance {tolerance} --limit {percent}"


def _percent(share: float) -> str:
    """Return a share in percent, whole from one on: a limit below that is no 0 %."""
    return f"{share:.0%}" if share >= 0.01 else f"{100 * share:.1g}%"


def _decidable(evidence: Evidence) -> float:
    """Return by how much runs may differ for half of unchanged versions to pass in 12 pairs."""
    return math.log1p(evidence.limit) / _half(12, PASS_ERRORS[12], 1.0)


def _passes(spread: float) -> float:
    """Return half the interval by which a version passes after all pairs, as a log ratio."""
    return _half(LOOKS[-1], PASS_ERRORS[LOOKS[-1]], spread)


def _half(pairs: int, error: float, spread: float) -> float:
    """Return half an interval of so many pairs, of runs with this spread, as a log ratio."""
    from scipy.special import stdtrit

    return float(stdtrit(pairs - 1, 1 - error / 2)) * spread * math.sqrt(2 / pairs)


def _least(squares: float, freedom: int) -> float:
    """Return the standard deviation that is surely reached, from a sum of squares."""
    from scipy.special import chdtri

    return math.sqrt(squares / float(chdtri(freedom, DOUBT)))


def _deviation(values: Sequence[float]) -> float:
    return math.sqrt(_squares(values) / (len(values) - 1))


def _squares(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values)
