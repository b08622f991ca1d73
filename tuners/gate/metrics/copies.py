"""Copies and memsets that a step has GPUs do, by direction."""

from __future__ import annotations

from gpuadvisor.tuners.gate.metric import Traced


class Copies(Traced):
    """Counted where the script has any."""

    name = kind = "copies"
    title = "Copies a step"
    needs_gpu = True
    why_not = "torch's profiler saw no copy of a GPU"


METRIC = Copies()
