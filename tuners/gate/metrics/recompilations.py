"""Compilations of frames that Dynamo had compiled before, with the frames' names."""

from __future__ import annotations

from gpuadvisor.tuners.gate.metric import Counted, Evidence


class Recompilations(Counted):
    """Compared where both versions compile: to begin to compile is no regression."""

    name = "recompilations"
    title = "Recompilations"
    kind = "recompilations"

    def lacks(self, evidence: Evidence) -> str:
        base, head = self.runs(evidence)
        compile_all = all(run.compiles for run in (*base, *head))
        return "" if compile_all else "a version compiles nothing"


METRIC = Recompilations()
