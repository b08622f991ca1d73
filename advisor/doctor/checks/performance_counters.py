"""Hardware counters (Nsight Compute) are often open to administrators only.

Source: developer.nvidia.com/ERR_NVGPUCTRPERM. Timelines need no counters.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.doctor.check import Check, CheckState, MachineState

ORDER = 70
NAME = "performance counters"
CAP_SYS_ADMIN, CAP_PERFMON = 21, 38
"""Bits of `CapEff` in /proc/self/status (linux/capability.h)."""
PERFMON_SINCE = 565
"""First driver that takes CAP_PERFMON for enough."""
_FIX = (
    "put `options nvidia NVreg_RestrictProfilingToAdminUsers=0` into "
    "/etc/modprobe.d/nvidia-profiling.conf and reboot, or start the container with "
    "`--cap-add=SYS_ADMIN`"
)


def check(machine: MachineState) -> Iterator[Check]:
    """Compare the driver's setting with the rights of this process."""
    if machine.inventory.driver is None:
        return
    admin_only = _field(machine, "proc/driver/nvidia/params", "RmProfilingAdminOnly")
    if admin_only is None:
        detail = "not known: the driver does not show its settings here"
        yield Check(NAME, CheckState.WARNING, detail, "run `ncu --query-metrics` to find out")
    elif admin_only == "0":
        yield Check(NAME, CheckState.OK, "open to every user")
    elif _is_admin(machine, machine.inventory.driver):
        yield Check(NAME, CheckState.OK, "open to administrators, which this process is")
    else:
        detail = "open to administrators only: kernels are timed, but their counters are not read"
        yield Check(NAME, CheckState.WARNING, detail, _FIX)


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
