"""Pairs of runs of two versions, looked at in groups, until it is clear which is worse."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from gpuadvisor.domain.gate import Difference, GateRun, GateVerdict, Metric
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import TrialState
from gpuadvisor.tuners.gate.decision import LIMIT, LOOKS, TOLERANCE, Bounds, Run, RunPair, compare
from gpuadvisor.tuners.proof import MAX_REPEATED, orders

MEMORY_FLOOR_BYTES = 64 * 2**20
"""Memory that is no regression, however small a script: two cuBLAS workspaces of a Hopper GPU."""
SHARES: Mapping[Metric, float] = {Metric.STEP_TIME: 0.9, Metric.PEAK_MEMORY: 0.1}
"""Parts of the error that each metric may use up. Memory hardly differs from run to run."""
WAITS = 0.02
"""Share of a run's time in which it waits for its loaders, from which the mean of all steps counts:
a loader with n workers delivers in bursts of n batches, and only the mean counts the wait for the
next burst. Else it is the median of windows of half a second, which a stall does not move."""
MAX_FAILURES = 1
"""Pairs with a run that failed that are run again: a second one is no accident."""


@dataclass
class Compared:
    """What the pairs of a gate showed."""

    differences: tuple[Difference, ...] = ()
    pairs: int = 0
    failed: GateRun | None = None
    """The run of a version that failed twice, which ended the comparison."""

    @property
    def verdict(self) -> GateVerdict:
        """What holds of all metrics together."""
        verdicts = {difference.verdict for difference in self.differences}
        if GateVerdict.FAIL in verdicts:
            return GateVerdict.FAIL
        return GateVerdict.PASS if verdicts == {GateVerdict.PASS} else GateVerdict.INCONCLUSIVE


@dataclass
class Comparing:
    """Runs pairs of both versions in random order until every metric is decided, or one is worse.

    `run` runs a version (`base` or `head`) in a fresh process, on the same device for both. Pairs
    beside which something else used the machine are run again, a few times. `known` are earlier
    runs of the base. The same `seed` gives the same order.
    """

    run: Callable[[str, str], GateRun]
    """Called with the version and what the run is for."""
    known: Sequence[GateRun] = ()
    tolerance: float = TOLERANCE
    limit: float = LIMIT
    seed: str = ""
    on_disturbed: Callable[[str, bool], None] = lambda disturbance, repeated: None
    """Told what disturbed a pair, and whether it is run again."""
    _pairs: list[tuple[GateRun, GateRun, bool]] = field(default_factory=list, init=False)
    """Base, head, and whether the base came first."""

    def go(self) -> Compared:
        found, repeated, failures = Compared(), 0, 0
        order = orders(self.seed)
        again: bool | None = None
        # Where most runs are disturbed, to run a pair again would change nothing.
        always = 2 * sum(bool(run.trial.disturbance) for run in self.known) > len(self.known)
        most = 0 if always else MAX_REPEATED
        while len(self._pairs) < LOOKS[-1]:
            base_first = next(order) if again is None else again
            again = None
            place = f"pair {len(self._pairs) + 1}"
            sides = ("base", "head") if base_first else ("head", "base")
            runs = {side: self.run(side, place) for side in sides}
            failed = next((run for run in runs.values() if _measured(run) is None), None)
            if failed is not None:
                failures += 1
                if failures > MAX_FAILURES:
                    return replace(found, failed=failed)
                again = base_first
                continue
            disturbance = next(
                (r.trial.disturbance for r in runs.values() if r.trial.disturbance), ""
            )
            if disturbance:
                may = repeated < most
                repeated += may
                self.on_disturbed(disturbance, may)
                if may:
                    again = base_first
                    continue
            self._pairs.append((runs["base"], runs["head"], base_first))
            if len(self._pairs) in LOOKS:
                found = Compared(self._look(), len(self._pairs))
                if found.verdict is not GateVerdict.INCONCLUSIVE:
                    break
        return found

    def _look(self) -> tuple[Difference, ...]:
        runs = [*self.known, *(run for base, head, _ in self._pairs for run in (base, head))]
        measured = [m for m in map(_measured, runs) if m is not None]
        by_mean = median(m.data_wait_share for m in measured) > WAITS
        by_step = len({m.samples_source for m in measured}) > 1
        times = Bounds(self.tolerance, self.limit, SHARES[Metric.STEP_TIME])
        found = [self._difference(Metric.STEP_TIME, lambda m: time_of(m, by_mean, by_step), times)]
        memories = [m.peak_memory_bytes for m in measured]
        if all(memories):
            bounds = memory_bounds(median(memories), self.tolerance, self.limit)
            found.append(
                self._difference(Metric.PEAK_MEMORY, lambda m: float(m.peak_memory_bytes), bounds)
            )
        return tuple(found)

    def _difference(
        self, metric: Metric, cost: Callable[[Measurement], float], bounds: Bounds
    ) -> Difference:
        def run_of(run: GateRun) -> Run:
            measured = _measured(run)
            assert measured is not None  # a pair that failed was run again
            return Run(cost(measured), run.sm_clock_mhz if metric is Metric.STEP_TIME else None)

        pairs = [RunPair(run_of(base), run_of(head), first) for base, head, first in self._pairs]
        return compare(metric, pairs, [run_of(run) for run in self.known], bounds)


def time_of(measurement: Measurement, by_mean: bool, by_step: bool) -> float:
    """Return a run's time of a sample in ms, or of a step (`by_step`, or if not known).

    It is that of the median window, or the mean of all where `by_mean`.
    """
    windows = measurement.window_step_ms
    step_ms = measurement.mean_step_ms if by_mean or not windows else median(windows)
    return step_ms / (1.0 if by_step else measurement.samples_per_step or 1.0)


def _measured(run: GateRun) -> Measurement | None:
    """Return what was measured of a run; None where it failed."""
    return run.trial.measurement if run.trial.state is TrialState.COMPLETE else None


def memory_bounds(base_bytes: float, tolerance: float, limit: float) -> Bounds:
    """Return the bounds of peak memory for a version that needs so much."""
    floor = MEMORY_FLOOR_BYTES / base_bytes
    allowed = max(tolerance, floor)
    return Bounds(allowed, max(limit, allowed * limit / tolerance), SHARES[Metric.PEAK_MEMORY])
