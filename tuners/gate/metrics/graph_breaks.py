"""Graph breaks of Dynamo, until the end of the measurement; what broke is named."""

from __future__ import annotations

from gpuadvisor.tuners.gate.metric import Counted, Evidence


class GraphBreaks(Counted):
    """Compared where both versions compile: to begin to compile is no regression."""

    name = "graph_breaks"
    title = "Graph breaks"
    kind = "graph_breaks"

    def lacks(self, evidence: Evidence) -> str:
        base, head = self.runs(evidence)
        compile_all = all(run.compiles for run in (*base, *head))
        return "" if compile_all else "a version compiles nothing"


METRIC = GraphBreaks()
