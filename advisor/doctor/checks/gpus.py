"""The GPUs and their driver: what they can do, who uses them, and what they tell of themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpuadvisor.collectors.interpreter import TargetPython
from gpuadvisor.doctor.check import Check, CheckState, GpuUse, MachineState, from_sentence
from gpuadvisor.domain.device import Device

OLDEST_DRIVERS = {11: 450, 12: 525, 13: 580}
"""First driver on Linux for each major version of CUDA."""
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
SHOWN = 3
"""Processes that are named; the rest is counted."""
COUNTERS = "performance counters"
CAP_SYS_ADMIN, CAP_PERFMON = 21, 38
"""Bits of `CapEff` in /proc/self/status (linux/capability.h)."""
PERFMON_SINCE = 565
"""First driver that takes CAP_PERFMON for enough."""
_FIX = (
    "put `options nvidia NVreg_RestrictProfilingToAdminUsers=0` into "
    "/etc/modprobe.d/nvidia-profiling.conf and reboot, or start the container with "
    "`--cap-add=SYS_ADMIN`"
)


def check_driver(machine: MachineState) -> Iterator[Check]:
    """The driver must know the CUDA that torch was built for.

    Source: docs.nvidia.com/deploy/cuda-compatibility, "Minor Version Compatibility". Forward
    compatibility packages bend the rule, so torch's own word that CUDA works outweighs it.
    """
    seen, torch = machine.inventory, machine.torch
    if seen.driver is None:
        return  # the check of the GPUs says why
    known = ".".join(map(str, seen.driver_cuda)) if seen.driver_cuda else "unknown"
    found = f"{seen.driver}, knows CUDA up to {known}"
    if torch is None or torch.cuda is None or not machine.gpus:
        yield Check("driver", CheckState.OK, found)
    elif torch.cuda_available:
        yield _torch_sees(found, len(machine.gpus), len(torch.gpus))
    else:
        yield _unusable(found, torch.cuda, seen.driver_cuda, torch.cuda_problem)


def _torch_sees(found: str, present: int, usable: int) -> Check:
    if usable >= present:
        return Check("driver", CheckState.OK, found)
    detail = f"{found}; torch can use {usable} of {present} GPUs"
    fix = "compare `nvidia-smi -L` with CUDA_VISIBLE_DEVICES, and look for failed GPUs"
    return Check("driver", CheckState.WARNING, detail, fix)


def _unusable(found: str, cuda: str, known: tuple[int, int] | None, problem: str | None) -> Check:
    needed = int(cuda.split(".")[0])
    if known and needed > known[0]:
        oldest = OLDEST_DRIVERS.get(needed)
        upgrade = f"upgrade the driver to {oldest} or newer" if oldest else "upgrade the driver"
        detail = f"{found}, but torch is built for CUDA {cuda}"
        fix = f"{upgrade}, or install a torch built for CUDA {known[0]}"
        return Check("driver", CheckState.PROBLEM, detail, fix)
    detail = f"{found}, but torch cannot use a GPU: {problem or 'it does not say why'}"
    fix = "run `nvidia-smi`; if it works, reinstall torch, else the driver"
    return Check("driver", CheckState.PROBLEM, detail, fix)


def check_gpu(machine: MachineState) -> Iterator[Check]:
    """Each visible GPU: what it can do, and whether torch has kernels for it."""
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


def check_gpu_processes(machine: MachineState) -> Iterator[Check]:
    """Work of others on a GPU makes every figure wrong."""
    yield from (_others(use) for use in machine.gpus)


def _others(use: GpuUse) -> Check:
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


def check_energy(machine: MachineState) -> Iterator[Check]:
    """The energy of a step needs the GPU's own counter."""
    for use in machine.gpus:
        name = f"gpu {use.gpu.index} energy"
        if use.energy_problem is None:
            yield Check(name, CheckState.OK, "measured by the GPU's own counter")
        else:
            yield Check(name, CheckState.WARNING, use.energy_problem)


def check_performance_counters(machine: MachineState) -> Iterator[Check]:
    """Hardware counters (Nsight Compute) are often open to administrators only.

    Source: developer.nvidia.com/ERR_NVGPUCTRPERM. Timelines need no counters.
    """
    if machine.inventory.driver is None:
        return
    admin_only = _field(machine, "proc/driver/nvidia/params", "RmProfilingAdminOnly")
    if admin_only is None:
        detail = "not known: the driver does not show its settings here"
        yield Check(COUNTERS, CheckState.WARNING, detail, "run `ncu --query-metrics` to find out")
    elif admin_only == "0":
        yield Check(COUNTERS, CheckState.OK, "open to every user")
    elif _is_admin(machine, machine.inventory.driver):
        yield Check(COUNTERS, CheckState.OK, "open to administrators, which this process is")
    else:
        detail = "open to administrators only: kernels are timed, but their counters are not read"
        yield Check(COUNTERS, CheckState.WARNING, detail, _FIX)


def _is_admin(machine: MachineState, driver: str) -> bool:
    """Say so by capabilities: root in a container mostly lacks them."""
    capabilities = int(_field(machine, "proc/self/status", "CapEff") or "0", 16)
    enough = [CAP_SYS_ADMIN]
    if int(driver.split(".")[0]) >= PERFMON_SINCE:
        enough.append(CAP_PERFMON)
    return any(capabilities >> bit & 1 for bit in enough)


def _field(machine: MachineState, path: str, name: str) -> str | None:
    """Return the value in a file of `name: value` lines."""
    try:
        lines = (machine.root / path).read_text("utf-8").splitlines()
    except OSError:
        return None
    values = [line.partition(":")[2].strip() for line in lines if line.startswith(f"{name}:")]
    return values[0] if values else None


CHECKS = {
    30: check_driver,
    40: check_gpu,
    50: check_gpu_processes,
    60: check_energy,
    70: check_performance_counters,
}
