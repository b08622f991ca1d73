"""The driver must know the CUDA that torch was built for.

Source: docs.nvidia.com/deploy/cuda-compatibility, "Minor Version Compatibility". Forward
compatibility packages bend the rule, so torch's own word that CUDA works outweighs it.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.doctor.check import Check, CheckState, MachineState

ORDER = 30
NAME = "driver"
OLDEST_DRIVERS = {11: 450, 12: 525, 13: 580}
"""First driver on Linux for each major version of CUDA."""


def check(machine: MachineState) -> Iterator[Check]:
    """Compare the driver with torch, and what NVML sees with what torch sees."""
    seen, torch = machine.inventory, machine.torch
    if seen.driver is None:
        return  # the check of the GPUs says why
    known = ".".join(map(str, seen.driver_cuda)) if seen.driver_cuda else "unknown"
    found = f"{seen.driver}, knows CUDA up to {known}"
    if torch is None or torch.cuda is None or not machine.gpus:
        yield Check(NAME, CheckState.OK, found)
    elif torch.cuda_available:
        yield _count(found, len(machine.gpus), len(torch.gpus))
    else:
        yield _unusable(found, torch.cuda, seen.driver_cuda, torch.cuda_problem)


def _count(found: str, present: int, usable: int) -> Check:
    if usable >= present:
        return Check(NAME, CheckState.OK, found)
    detail = f"{found}; torch can use {usable} of {present} GPUs"
    fix = "compare `nvidia-smi -L` with CUDA_VISIBLE_DEVICES, and look for failed GPUs"
    return Check(NAME, CheckState.WARNING, detail, fix)


def _unusable(found: str, cuda: str, known: tuple[int, int] | None, problem: str | None) -> Check:
    needed = int(cuda.split(".")[0])
    if known and needed > known[0]:
        oldest = OLDEST_DRIVERS.get(needed)
        upgrade = f"upgrade the driver to {oldest} or newer" if oldest else "upgrade the driver"
        detail = f"{found}, but torch is built for CUDA {cuda}"
        fix = f"{upgrade}, or install a torch built for CUDA {known[0]}"
        return Check(NAME, CheckState.PROBLEM, detail, fix)
    detail = f"{found}, but torch cannot use a GPU: {problem or 'it does not say why'}"
    fix = "run `nvidia-smi`; if it works, reinstall torch, else the driver"
    return Check(NAME, CheckState.PROBLEM, detail, fix)
