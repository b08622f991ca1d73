"""What a run uses besides time: memory and energy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gpuadvisor.domain.gate import Difference, MetricRole
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.tuners.gate.metric import Evidence, Read, Statistical


class PeakMemory(Statistical):
    """Most memory that torch's allocator had in use on the GPU; the resident set on a CPU.

    More than a few workspaces of libraries is a regression, whatever share it is.
    """

    name = "peak_memory"
    title = "Peak memory"
    unit = "bytes"
    role = MetricRole.DECIDES
    floor = 64 * 2**20  # two cuBLAS workspaces of a Hopper GPU

    def compare(self, evidence: Evidence, share: float) -> Difference:
        # The resident set of a forked process lacks what of libraries nobody has used since.
        forked = {run.trial.is_forked for base, head, _ in evidence.pairs for run in (base, head)}
        known = [run for run in evidence.known if run.trial.is_forked in forked]
        return super().compare(replace(evidence, known=known), share)

    def reader(self, runs: Sequence[Measurement]) -> Read:
        return lambda run: float(run.peak_memory_bytes)


class Energy(Statistical):
    """Energy that the GPU used for a step, compared where the counter of its driver tells it."""

    name = "energy"
    title = "Energy of a step"
    unit = "J"
    tolerances = 2.0  # a GPU that gets warmer draws more power for the same work
    why_not = "there is no counter of energy that can be read: a CPU, or an older GPU"

    def reader(self, runs: Sequence[Measurement]) -> Read:
        return lambda run: run.energy_j_per_step


METRICS = (PeakMemory(), Energy())
