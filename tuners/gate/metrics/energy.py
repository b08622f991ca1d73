"""Energy that the GPU used for a step, by the counter of its driver."""

from __future__ import annotations

from collections.abc import Sequence

from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.tuners.gate.metric import Read, Statistical


class Energy(Statistical):
    """Compared where the driver counts it."""

    name = "energy"
    title = "Energy of a step"
    unit = "J"
    tolerances = 2.0  # a GPU that gets warmer draws more power for the same work
    why_not = "there is no counter of energy that can be read: a CPU, or an older GPU"

    def reader(self, runs: Sequence[Measurement]) -> Read:
        return lambda run: run.energy_j_per_step


METRIC = Energy()
