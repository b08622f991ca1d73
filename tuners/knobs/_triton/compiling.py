"""Configurations of a launch that are compiled side by side, before each of them is measured.

A configuration takes Triton 1.5 s to compile and more, most of it outside of Python, and some
milliseconds to measure.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from gpuadvisor.tuners.knobs._triton.launched import Launched
from gpuadvisor.tuners.knobs._triton.launches import Kernel


def at_once() -> int:
    """Return how many configurations can be compiled at once: one on each core of the process where
    Triton compiles in threads itself (with `triton.AsyncCompileMode`, as 3.6 does), else 1."""
    is_known = hasattr(sys.modules.get("triton"), "AsyncCompileMode")
    return len(os.sched_getaffinity(0)) if is_known else 1


def compile_all(kernel: Kernel, launched: Launched, points: Iterable[Mapping[str, int]]) -> None:
    """Compile a launch with each of these values, and keep what came of it where Triton does.

    What cannot be compiled is left to its measurement, which says why.
    """
    import torch

    device = torch.cuda.current_device() if torch.cuda.is_initialized() else None

    def compiled(values: Mapping[str, int]) -> None:
        if device is not None:
            torch.cuda.set_device(device)  # it is each thread's own
        launched.changed(kernel, values, warmup=True)

    with ThreadPoolExecutor(at_once()) as threads:
        for begun in [threads.submit(compiled, values) for values in points]:
            begun.exception()
