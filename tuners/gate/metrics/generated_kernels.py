"""Kernels that Inductor generated, until the end of the measurement: more are less fused."""

from __future__ import annotations

from gpuadvisor.tuners.gate.metric import Counted, Evidence


class GeneratedKernels(Counted):
    """Compared where Inductor generated any in both versions, for a GPU or a CPU."""

    name = kind = "generated_kernels"
    title = "Generated kernels"

    def lacks(self, evidence: Evidence) -> str:
        base, head = self.runs(evidence)
        has_some = all(self.kind in run.counts for run in (*base, *head))
        return "" if has_some else "a version has none of Inductor"


METRIC = GeneratedKernels()
