"""What the ways of asking are given: a GPU's handle, and what they keep between two readings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuadvisor.collectors.nvml.gpm import Gpm
from gpuadvisor.collectors.nvml.pcie_throughput import PcieThroughput


@dataclass(slots=True)
class Device:
    """A GPU, or a MIG instance, as long as its handle is good."""

    handle: Any
    """An `nvmlDevice_t`."""
    uuid: str
    gpm: Gpm
    pcie: PcieThroughput
    """Of all GPUs together."""
