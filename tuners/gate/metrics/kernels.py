"""Kernels that a step launches on GPUs; new ones are named, with what launched them."""

from __future__ import annotations

from gpuadvisor.tuners.gate.metric import Traced


class Kernels(Traced):
    """Counted where the script has any."""

    name = kind = "kernels"
    title = "Kernels a step"
    needs_gpu = True
    why_not = "torch's profiler saw no kernel of a GPU"


METRIC = Kernels()
