"""Work of others on a GPU makes every figure wrong."""

from __future__ import annotations

from collections.abc import Iterator

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
    named = [f"{p.name or 'process'} {p.pid}" for p in use.others[:SHOWN]]
    if len(use.others) > SHOWN:
        named.append(f"{len(use.others) - SHOWN} more")
    detail = f"in use by {', '.join(named)}: figures will be noisy and too slow"
    return Check(
        name, CheckState.WARNING, detail, "stop them, or set CUDA_VISIBLE_DEVICES to a free GPU"
    )
