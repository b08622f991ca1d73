"""Compilations of frames that Dynamo had compiled before, with the frames' names."""

from __future__ import annotations

from gpuadvisor.tuners.gate.metric import OfCompiler


class Recompilations(OfCompiler):
    """The number of recompilations that a run has."""

    name = "recompilations"
    title = "Recompilations"
    kind = "recompilations"


METRIC = Recompilations()
