"""Graph breaks of Dynamo, until the end of the measurement; what broke is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.tuners.gate.metric import Counted


class GraphBreaks(Counted):
    """Compared where both versions compile: to begin to compile is no regression."""

    name = "graph_breaks"
    title = "Graph breaks"

    def lacks(self, runs: Sequence[Measurement]) -> str:
        return "" if all(run.compiles for run in runs) else "a version compiles nothing"

    def counts(self, run: Measurement) -> Mapping[str, float]:
        return run.graph_breaks


METRIC = GraphBreaks()
