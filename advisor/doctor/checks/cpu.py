"""Cores and memory that this process may use bound what data loading can do."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.doctor.check import Check, CheckState, MachineState

ORDER = 110
NAME = "cpu"


def check(machine: MachineState) -> Iterator[Check]:
    """Describe the CPU; a single core leaves none for DataLoader workers."""
    cpu = machine.cpu
    memory = f", {cpu.memory_bytes / 2**30:.1f} GiB" if cpu.memory_bytes else ""
    cores = "1 core" if cpu.cores == 1 else f"{cpu.cores} cores"
    found = f"{cpu.name}, {cores}{memory}"
    if cpu.cores > 1:
        yield Check(NAME, CheckState.OK, found)
    else:
        detail = f"{found}: DataLoader workers cannot help"
        yield Check(NAME, CheckState.WARNING, detail, "give the job or container more cores")
