"""What the baseline's runs tell the user before anything is tuned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuadvisor.collectors.script.request import RunOutcome
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.measurement import Measurement

RESTLESS = 0.2
"""Relative difference between runs of the unchanged script above which intervals get so wide that
only large gains can be proven. Two runs on a quiet GPU differ by less than 1 %."""


def remarks(
    first: RunOutcome, runs: Sequence[Measurement], devices: Sequence[Device]
) -> Iterator[str]:
    """Yield a sentence for everything that makes the study's figures less than they could be."""
    baseline, device = runs[0], devices[0]
    steps_ms = [run.mean_step_ms for run in runs]
    apart = max(steps_ms) / min(steps_ms) - 1
    if apart > RESTLESS:
        yield (
            f"runs of the unchanged script differ by {apart:.0%}, so only large gains can be "
            "proven: its loader is uneven, or others use this machine"
        )
    if device.is_gpu and baseline.facts.device != "cuda":
        yield (
            f"the script computes on the CPU, though torch can use {device.name}: see whether one "
            "of its arguments chooses the device"
        )
    if first.short:
        yield (
            f"the script ends after {first.steps} steps, so the figures rest on {baseline.steps} "
            "of them: give it more work for narrower intervals"
        )
    if len(devices) > 1:
        yield f"each of the parallel trials had {device.cores} CPU cores"
