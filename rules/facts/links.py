"""How fast the links between the GPUs of one machine are, where it is known.

A machine's own telemetry tells how many links of NVLink are up, and its PCIe. Without it, names
tell two kinds of machines: boards of eight GPUs with NVSwitch, on which any GPUs reach each other
at the full speed, and GPUs that have no NVLink. On all others (four A100 that are wired to each
other, cards with bridges, DGX-1) the speed depends on which GPUs talk, and is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuadvisor.domain.profile import Header

if TYPE_CHECKING:
    from gpuadvisor.domain.telemetry_window import TelemetryWindow

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
