"""Shared memory keeps warps out of the SMs."""

from __future__ import annotations

from gpuadvisor.domain.finding import Category
from gpuadvisor.rules.kernels import knows
from gpuadvisor.rules.occupancy import HIDES, ON_WARPS, limited
from gpuadvisor.rules.rule import Rule

ADVICE = (
    "Give a block less shared memory (a smaller tile, fewer stages), or let more threads share it."
)

RULE = Rule(Category.OCCUPANCY, needs=(knows(*ON_WARPS, "shared_bytes"),), hides=HIDES)

check = limited(
    "shared_memory",
    lambda kernel: f"the {(kernel.shared_bytes or 0) / 1024:,.0f} KiB of shared memory of a block",
    ADVICE,
    "shared_bytes",
)
"""Find kernels that wait, and of which too few fit on an SM."""
