"""Work of others on a GPU makes every figure wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuadvisor.collectors.energy import ComputeProcess
from gpuadvisor.doctor.check import Check, CheckState, GpuUse, MachineState

ORDER = 50
SHOWN = 3
"""Processes that are named; the rest is counted."""


def check(machine: MachineState) -> Iterator[Check]:
    """Look for compute processes on each GPU."""
    yield from (_check(use) for use in machine.gpus)


def _check(use: GpuUse) -> Check:
    name = f"gpu {use.gpu.index} processes"
    if use.others is None:
        detail = "not known: the driver does not say who uses the GPU"
        return Check(name, CheckState.WARNING, detail, "make sure that nothing else runs on it")
    if not use.others:
        return Check(name, CheckState.OK, "nothing else computes on it")
    detail = f"in use by {_named(use.others)}: figures will be noisy and too slow"
    return Check(
        name, CheckState.WARNING, detail, "stop them, or set CUDA_VISIBLE_DEVICES to a free GPU"
    )


def _named(processes: Sequence[ComputeProcess]) -> str:
    named = [f"{p.name or 'process'} {p.pid}" for p in processes[:SHOWN]]
    more = len(processes) - SHOWN
    return ", ".join([*named, f"{more} more"] if more > 0 else named)
