"""Step time that one step in twenty exceeds: stalls, which the step time does not count."""

from __future__ import annotations

from collections.abc import Sequence

from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.tuners.gate.metric import Read, Statistical

LEAST_STEPS = 200
"""Steps of a run below which it says little: of a version 3 % slower, 75 % were found with 40
steps a run in typical simulated noise, and 96 % with 200."""


class P95(Statistical):
    """Compared where runs have enough steps."""

    name = "p95"
    title = "95th percentile of step times"
    unit = "ms"
    tolerances = 2.0  # ten steps of 200 make it, so runs differ twice as much by it
    why_not = f"it takes {LEAST_STEPS} steps a run: measure longer with --measure"

    def reader(self, runs: Sequence[Measurement]) -> Read:
        return lambda run: run.percentile_ms(95) if len(run.step_ms) >= LEAST_STEPS else None


METRIC = P95()
