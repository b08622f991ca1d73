"""Graph breaks of Dynamo, until the end of the measurement; what broke is named."""

from __future__ import annotations

from gpuadvisor.tuners.gate.metric import OfCompiler


class GraphBreaks(OfCompiler):
    """The number of graph breaks that a run has."""

    name = "graph_breaks"
    title = "Graph breaks"
    kind = "graph_breaks"


METRIC = GraphBreaks()
