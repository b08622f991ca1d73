"""Xid errors that are met in practice: what each means, how much it matters, what to do.

Source: NVIDIA's Xid catalogue, https://docs.nvidia.com/deploy/xid-errors/, in our words.
"""

from __future__ import annotations

from typing import NamedTuple

from gpuadvisor.domain.telemetry import Severity

CATALOGUE_URL = "https://docs.nvidia.com/deploy/xid-errors/"

_SCRIPT = "look for a bug in what ran on it (`compute-sanitizer`)"
_RESTART = "start what ran on it again, and call NVIDIA if it comes back"
_RESET = "stop what runs on it and reset the GPU"
_SERVICE = "reset the GPU or reboot, and have it replaced if it comes back"


class Xid(NamedTuple):
    """One kind of error."""

    severity: Severity
    meaning: str
    remedy: str


CATALOGUE: dict[int, Xid] = {
    8: Xid(Severity.ERROR, "the GPU stopped processing", _RESTART),
    11: Xid(Severity.ERROR, "an invalid or corrupted command stream", _RESTART),
    13: Xid(Severity.ERROR, "a kernel failed, such as by an access out of bounds", _SCRIPT),
    31: Xid(Severity.ERROR, "a kernel or a copy used an illegal address", _SCRIPT),
    32: Xid(Severity.ERROR, "an invalid or corrupted command stream", _RESTART),
    38: Xid(Severity.ERROR, "the driver's firmware failed", "upgrade the driver"),
    43: Xid(Severity.ERROR, "a process's work was stopped after an error of its own", _SCRIPT),
    45: Xid(
        Severity.INFO,
        "the work of a process that ended or was killed was removed",
        "nothing, unless another error came before it",
    ),
    48: Xid(Severity.ERROR, "a memory error that could not be corrected", _RESET),
    61: Xid(Severity.ERROR, "an internal controller halted", _RESET),
    62: Xid(Severity.ERROR, "an internal controller halted", _RESET),
    63: Xid(
        Severity.WARNING,
        "a failing row of memory will be replaced",
        "reset the GPU when it can be spared",
    ),
    64: Xid(Severity.ERROR, "replacing a failing row of memory failed", _SERVICE),
    69: Xid(Severity.ERROR, "a kernel or command was invalid", _SCRIPT),
    74: Xid(Severity.ERROR, "an NVLink link failed", f"check the links, then {_SERVICE}"),
    79: Xid(
        Severity.ERROR,
        "the GPU fell off the bus",
        "reboot, then check its power, cooling and seat if it comes back",
    ),
    92: Xid(
        Severity.WARNING,
        "many memory errors were corrected",
        "watch it, and have it replaced if they go on",
    ),
    94: Xid(
        Severity.ERROR,
        "a memory error that could not be corrected, and ended one process only",
        "start that process again, and reset the GPU when it can be spared",
    ),
    95: Xid(
        Severity.ERROR,
        "a memory error that could not be corrected, and may have touched all processes",
        _RESET,
    ),
    109: Xid(Severity.ERROR, "switching between processes took too long", _RESET),
    119: Xid(Severity.ERROR, "the GPU's system processor (GSP) does not answer", _RESET),
    120: Xid(Severity.ERROR, "the GPU's system processor (GSP) failed", _RESET),
    121: Xid(Severity.WARNING, "an error on the chip-to-chip link was corrected", _RESET),
    123: Xid(Severity.ERROR, "an internal request to power management failed", _RESET),
    140: Xid(Severity.ERROR, "a memory error that was not recovered from", _RESET),
    143: Xid(Severity.ERROR, "the GPU's start failed", _SERVICE),
    145: Xid(Severity.ERROR, "an NVLink link failed", _SERVICE),
    149: Xid(Severity.ERROR, "an NVLink link failed", _SERVICE),
    154: Xid(
        Severity.WARNING,
        "what the GPU needs to recover has changed",
        "see `nvidia-smi -q` under GPU Recovery Action",
    ),
}


def explain(number: int, gpu: str) -> tuple[Severity, str]:
    """Return how much a Xid error matters, and a sentence about it; `gpu` is as in `GPU 0`."""
    known = CATALOGUE.get(number)
    if known is None:
        where = f"look it up at {CATALOGUE_URL}, with its line in the kernel log (`dmesg`)"
        return Severity.WARNING, f"{gpu} reported Xid {number}: {where}."
    return known.severity, f"{gpu} reported Xid {number}, {known.meaning}: {known.remedy}."
