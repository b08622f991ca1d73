"""Stored results of kernels beside what their GPUs can do, as it was measured where it was."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from gpuadvisor.domain.kernel_records import KernelResult
from gpuadvisor.domain.profile import DeviceLimits
from gpuadvisor.errors import UsageError
from gpuadvisor.profiling.evidence import ceilings_of_device
from gpuadvisor.reports.kernel.outcome import KernelOutcome, outcome
from gpuadvisor.storage.kernel_studies import with_evaluations


def outcomes(results: Iterable[KernelResult]) -> list[KernelOutcome]:
    """Return each result with its evaluations, where they can be read, and its place on the
    roofline of its GPU."""
    found = []
    for result in results:
        if not result.evaluations:
            with suppress(UsageError):  # what was proven stands without them
                result = with_evaluations(result)
        device = DeviceLimits(
            0,
            result.device,
            compute_capability=result.compute_capability,
            uuid=result.uuid or None,
        )
        found.append(outcome(result, ceilings_of_device(device)))
    return found
