"""The environment of a study as labelled rows."""

from __future__ import annotations

from gpuadvisor.domain.device import Device, Environment
from gpuadvisor.reports import figures

UNKNOWN = "not known"


def compute_capability(device: Device) -> str | None:
    """Return `9.0` for Hopper; None where it is not known."""
    if device.compute_capability is None:
        return None
    return ".".join(map(str, device.compute_capability))


def environment_rows(environment: Environment) -> tuple[tuple[str, str], ...]:
    """Return (label, value) in words; what does not exist on a CPU is left out there."""
    device = environment.device
    rows = [("Device", device.name)]
    if device.is_gpu:
        rows += _gpu_rows(environment)
    else:
        rows.append(("Memory", figures.memory(device.memory_bytes)))
    return (
        *rows,
        ("CPU cores", str(device.cores)),
        ("PyTorch", environment.torch or UNKNOWN),
        ("Python", environment.python),
        ("Platform", environment.platform),
        ("Commit", _commit(environment)),
        ("gpuadvisor", environment.gpuadvisor),
    )


def _gpu_rows(environment: Environment) -> list[tuple[str, str]]:
    device = environment.device
    power = environment.power_limit_w
    return [
        ("GPU", f"number {device.index}, {device.uuid or 'UUID ' + UNKNOWN}"),
        ("GPU memory", figures.memory(device.memory_bytes)),
        ("Compute capability", compute_capability(device) or UNKNOWN),
        ("SM clock at start", _clocks(environment)),
        ("Power limit", UNKNOWN if power is None else f"{figures.number(power)} W"),
        ("Driver", environment.driver or UNKNOWN),
        ("CUDA of PyTorch", environment.cuda or UNKNOWN),
        ("cuDNN", environment.cudnn or UNKNOWN),
    ]


def _clocks(environment: Environment) -> str:
    now, most = environment.sm_clock_mhz, environment.sm_clock_max_mhz
    if now is None:
        return UNKNOWN
    return f"{now:,} MHz" if most is None else f"{now:,} of {most:,} MHz"


def _commit(environment: Environment) -> str:
    if environment.git_commit is None:
        return "not in a repository, or " + UNKNOWN
    dirty = {True: ", with uncommitted changes", False: ", clean", None: ""}
    return environment.git_commit[:12] + dirty[environment.git_dirty]
