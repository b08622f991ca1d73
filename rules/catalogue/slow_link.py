"""Large messages pass far slower than the link between the GPUs allows.

A machine's own telemetry tells how many links of NVLink are up, and its PCIe. Without it, names
tell two kinds of machines: boards of eight GPUs with NVSwitch, on which any GPUs reach each other
at the full speed, and GPUs that have no NVLink. On all others (four A100 that are wired to each
other, cards with bridges, DGX-1) the speed depends on which GPUs talk, and is not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.profile import Header
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.requirements import COMMUNICATION, KERNELS, Requirement
from gpuadvisor.rules.rule import Estimate, Rule, RuleResult

if TYPE_CHECKING:
    from gpuadvisor.domain.telemetry_window import TelemetryWindow

LEAST_BYTES = 8_000_000
"""Least bytes of a message: smaller ones are bound by latency. [own]"""
LEAST_SHARE = 0.5
"""Least share of the link. NCCL's tests reach 75 to 80 % of it on boards with NVSwitch. [own]"""
REACHED = 0.75


def _lacks_link(evidence: Evidence) -> str | None:
    facts = evidence.known_facts
    if not facts.communication or link(facts.profile.header, evidence.telemetry) is not None:
        return None
    names = {device.name for device in facts.profile.header.devices if device.name}
    between = f" between {' and '.join(sorted(names))}" if 0 < len(names) < 3 else ""
    return f"the speed of the links{between} is not known"


RULE = Rule(
    Category.COMMUNICATION,
    needs=(
        KERNELS,
        COMMUNICATION,
        Requirement(
            _lacks_link, "gpuadvisor daemon start (then record some seconds, on one machine)"
        ),
    ),
)


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find large collectives within one machine, whose fastest one is below half of its link."""
    facts = evidence.known_facts
    known = link(facts.profile.header, evidence.telemetry)
    for device in facts.communication:
        for each in device.collectives if known is not None else ():
            speed, moved = each.best_bus_bandwidth_bytes_per_s, each.bytes
            if known is None or speed is None or moved is None or (each.group_size or 0) < 2:
                continue
            is_large = moved >= LEAST_BYTES * each.count
            if not is_large or speed >= LEAST_SHARE * known.bytes_per_s:
                continue
            most = known.bytes_per_s
            yield RuleResult(
                f"{each.name} passes at most {speed / 1e9:.0f} GB/s over {known.name} of"
                f" {most / 1e9:.0f} GB/s, with messages of {moved / each.count / 1e6:.0f} MB",
                (
                    Figure(
                        "bus_bandwidth", round(speed / 1e9, 1), "GB/s", LEAST_SHARE * most / 1e9
                    ),
                    Figure("message", round(moved / each.count / 1e6, 1), "MB", LEAST_BYTES / 1e6),
                ),
                "See how NCCL connects the GPUs (`NCCL_DEBUG=INFO`, `nvidia-smi topo -m`,"
                " `nvidia-smi nvlink -s`) and whether NCCL_* variables or a container without"
                " shared memory or peer access keep it from the link.",
                Estimate(
                    0.0,
                    each.exposed_ns * (1 - speed / (REACHED * most)),
                    {"communication/exposed": each.exposed_ns},
                ),
                "At most the exposed time that these messages would take less at 75 % of the link.",
                severity=Severity.NOTICE,
            )
            return


GPUS_OF_A_BOARD = 8
"""GPUs of an HGX board with NVSwitch."""
SWITCHED = {
    "A100-SXM": 300e9, "A800-SXM": 200e9, "H100 80GB HBM3": 450e9, "H800": 200e9, "H200": 450e9,
    "H20": 450e9, "B200": 900e9, "B300": 900e9,
}  # fmt: skip
"""Part of a GPU's name to its NVLink in bytes a second and direction (NVIDIA's data sheets)."""
PCIE_ONLY = {
    "Tesla T4": (3, 16), "NVIDIA L4": (4, 16), "NVIDIA L40": (4, 16), "NVIDIA A10": (4, 16),
    "NVIDIA A2": (4, 8), "RTX 4090": (4, 16), "RTX 4080": (4, 16), "RTX 5090": (5, 16),
    "RTX 6000 Ada": (4, 16), "RTX PRO 6000": (5, 16),
}  # fmt: skip
"""Part of the name of a GPU without NVLink to the generation and lanes of its PCIe (data
sheets)."""
LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""Bytes a second and direction of a lane, by PCIe generation (PCI-SIG)."""
NVLINK, NVLINK_5 = 25e9, 50e9
"""Bytes a second and direction of one link, of NVLink 2 to 4 and 5 (NVIDIA)."""


@dataclass(frozen=True)
class Link:
    """The fastest way from one GPU of a machine to another."""

    name: str
    bytes_per_s: float
    """In one direction."""


def link(header: Header, telemetry: TelemetryWindow | None = None) -> Link | None:
    """Return the link between the GPUs of a run that has all its ranks on one machine; None where
    it is not known, as for a run whose ranks may be on several ones."""
    names = {device.name for device in header.devices}
    here, world = len(header.devices), header.world_size
    if len(names) != 1 or here < 2 or world is None or world > here:
        return None
    name = names.pop()
    capability = header.devices[0].compute_capability or (0, 0)
    told = _told(telemetry, NVLINK_5 if capability[0] >= 10 else NVLINK)
    if told is not None:
        return told
    if here == GPUS_OF_A_BOARD:
        for part, speed in SWITCHED.items():
            if part in name:
                return Link("NVLink", speed)
    for part, (generation, lanes) in PCIE_ONLY.items():
        if part in name and "A100" not in name:
            return Link(f"PCIe {generation} x{lanes}", LANE[generation] * lanes)
    return None


def _told(telemetry: TelemetryWindow | None, of_one: float) -> Link | None:
    """Return what the telemetry of the machine tells of its slowest GPU."""
    gpus = () if telemetry is None else telemetry.gpus
    links = [gpu.series["nvlink_links"].low for gpu in gpus if "nvlink_links" in gpu.series]
    if links and len(links) == len(gpus) and min(links) > 0:
        return Link(f"NVLink ({min(links):.0f} links)", min(links) * of_one)
    if not links or max(links) > 0:
        return None  # some have links: which of them talk is not known
    known = [
        (int(gpu.series[MOST_PCIE[0]].high), int(gpu.series[MOST_PCIE[1]].high))
        for gpu in gpus
        if set(MOST_PCIE) <= gpu.series.keys()
    ]
    if len(known) < len(gpus) or not all(generation in LANE for generation, _ in known):
        return None
    generation, lanes = min(known, key=lambda each: LANE[each[0]] * each[1])
    return Link(f"PCIe {generation} x{lanes}", LANE[generation] * lanes)


MOST_PCIE = ("pcie_generation_max", "pcie_width_max")
"""What the slot allows: an idle GPU's link has less for the moment."""
