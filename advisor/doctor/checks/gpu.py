"""Each visible GPU: what it can do, and whether torch has kernels for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpuadvisor.collectors.interpreter import TargetPython
from gpuadvisor.doctor.check import Check, CheckState, MachineState, from_sentence
from gpuadvisor.domain.device import Device

ORDER = 40
WITHOUT_GPU = "scripts are tuned and profiled on the CPU; nothing about a GPU is measured"
FEATURES = {
    "fp16 tensor cores": (7, 0),
    "TF32": (8, 0),
    "bf16": (8, 0),
    "flash attention": (8, 0),
    "FP8": (8, 9),
    "FP4": (10, 0),
}
"""First compute capability of each (CUDA C++ Programming Guide, "Compute Capabilities"; flash
attention: torch's `sdp_utils.cpp`)."""


def check(machine: MachineState) -> Iterator[Check]:
    """Describe every GPU, or say why there is none."""
    yield from (_gpu(use.gpu, machine.torch) for use in machine.gpus)
    if not machine.gpus:
        yield _none(machine)
    elif machine.inventory.notes:
        yield from (
            from_sentence("gpus", CheckState.WARNING, note) for note in machine.inventory.notes
        )


def _gpu(gpu: Device, torch: TargetPython | None) -> Check:
    name = f"gpu {gpu.index}"
    capability = gpu.compute_capability
    if capability is None:
        detail = f"{gpu.name}: its compute capability is not known"
        return Check(name, CheckState.WARNING, detail, "upgrade the NVIDIA driver")
    dotted = ".".join(map(str, capability))
    memory = f", {gpu.memory_bytes / 2**30:.1f} GiB" if gpu.memory_bytes else ""
    able = [feature for feature, since in FEATURES.items() if capability >= since]
    detail = f"{gpu.name}, compute capability {dotted}{memory}; {', '.join(able) or 'FP32 only'}"
    if torch and torch.architectures and not _has_kernels(torch.architectures, capability):
        detail = f"{gpu.name}: torch {torch.torch} has no kernels for compute capability {dotted}"
        return Check(name, CheckState.PROBLEM, detail, "install a torch that supports this GPU")
    return Check(name, CheckState.OK, detail)


def _has_kernels(architectures: Sequence[str], capability: tuple[int, int]) -> bool:
    """Say whether one of them runs here: machine code of the same generation, or older PTX."""
    for architecture in architectures:
        found = re.match(r"(sm|compute)_(\d+)(\d)", architecture)
        if found is None:
            continue
        built_for = (int(found[2]), int(found[3]))
        same_generation = found[1] == "compute" or built_for[0] == capability[0]
        if same_generation and built_for <= capability:
            return True
    return False


def _none(machine: MachineState) -> Check:
    told = from_sentence("gpu", CheckState.WARNING, machine.inventory.reason or "no GPU was found")
    if machine.torch and machine.torch.gpus:
        name = machine.torch.gpus[0].name
        detail = f"torch sees {name}, but {told.detail}; energy and clocks are not measured"
    else:
        detail = f"{told.detail}; {WITHOUT_GPU}"
    return Check(told.name, told.state, detail, told.fix)
