"""The energy of a step needs the GPU's own counter."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.doctor.check import Check, CheckState, MachineState

ORDER = 60


def check(machine: MachineState) -> Iterator[Check]:
    """Report what reading each GPU's counter gave."""
    for use in machine.gpus:
        name = f"gpu {use.gpu.index} energy"
        if use.energy_problem is None:
            yield Check(name, CheckState.OK, "measured by the GPU's own counter")
        else:
            yield Check(name, CheckState.WARNING, use.energy_problem)
