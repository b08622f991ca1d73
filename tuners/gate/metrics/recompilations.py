"""Compilations of frames that Dynamo had compiled before, with the frames' names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.tuners.gate.metric import Counted


class Recompilations(Counted):
    """Compared where both versions compile: to begin to compile is no regression."""

    name = "recompilations"
    title = "Recompilations"

    def lacks(self, runs: Sequence[Measurement]) -> str:
        return "" if all(run.compiles for run in runs) else "a version compiles nothing"

    def counts(self, run: Measurement) -> Mapping[str, float]:
        return run.recompilations


METRIC = Recompilations()
