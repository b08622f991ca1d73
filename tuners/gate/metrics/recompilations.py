"""Compilations of frames that Dynamo had compiled before, with the frames' names."""

from __future__ import annotations

from gpuadvisor.tuners.gate.metric import Counted, Evidence


class Recompilations(Counted):
    """Compared where both versions compile: to begin to compile is no regression."""

    name = "recompilations"
    title = "Recompilations"
    kind = "recompilations"

    def lacks(self, evidence: Evidence) -> str:
        return "" if all(run.compiles for run in evidence.all) else "a version compiles nothing"


METRIC = Recompilations()
