"""How fast copies between host and device can be."""

from __future__ import annotations

import numpy as np

from gpuadvisor.domain.profile import DeviceLimits, Direction, Memory
from gpuadvisor.rules.facts import gpu_specs
from gpuadvisor.rules.facts.architectures import Capability
from gpuadvisor.rules.facts.device_work import DeviceWork

PINNED_BYTES_PER_S = (
    ((9, 0), 53e9),  # PCIe 5 x16: 53.6 GB/s with pinned memory on an H100 (268 MB a copy)
    ((8, 0), 24e9),  # PCIe 4 x16: 24.1 GB/s on an A100 (CloverLeaf's larger copies)
    ((7, 0), 12e9),  # PCIe 3 x16: 12 to 13 GB/s (bandwidthTest on V100 and T4)
)
"""From which compute capability on products have which link; what they reach, not its rate."""
LARGE_BYTES = 1 << 20
"""Smaller copies take longer to begin than to move at these rates."""


def pinned_bandwidth(work: DeviceWork, device: DeviceLimits | None) -> float | None:
    """Return the bytes a second of a copy of pinned memory: as this profile's own copies show it
    or as GPUs of this generation have it, whichever is more; None where nothing tells."""
    seen = _seen(work)
    capability = _capability(device)
    usual = next((rate for least, rate in PINNED_BYTES_PER_S if (capability or (0, 0)) >= least), 0)
    return max(seen, usual) or None


def _capability(device: DeviceLimits | None) -> Capability | None:
    if device is None:
        return None
    return device.compute_capability or gpu_specs.capability(device.name)


def _seen(work: DeviceWork) -> float:
    columns = work.copies
    pinned = (columns["source"] == Memory.PINNED) | (columns["destination"] == Memory.PINNED)
    towards = (columns["direction"] == Direction.HOST_TO_DEVICE) | (
        columns["direction"] == Direction.DEVICE_TO_HOST
    )
    duration = work.duration_ns[work.kernels :]
    rows = np.flatnonzero(pinned & towards & (columns["bytes"] >= LARGE_BYTES) & (duration > 0))
    return float((columns["bytes"][rows] / duration[rows]).max(initial=0.0) * 1e9)
