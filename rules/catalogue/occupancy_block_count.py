"""So many small blocks as would fill an SM do not fit on it."""

from __future__ import annotations

from gpuadvisor.domain.finding import Category
from gpuadvisor.rules.kernels import knows
from gpuadvisor.rules.occupancy import HIDES, ON_WARPS, limited
from gpuadvisor.rules.rule import Rule

ADVICE = "Choose larger blocks, of 128 or 256 threads."

RULE = Rule(Category.OCCUPANCY, needs=(knows(*ON_WARPS, "threads"),), hides=HIDES)

check = limited(
    "block_count",
    lambda kernel: (
        f"blocks of only {kernel.threads:,} threads, of which an SM holds {kernel.resident}"
    ),
    ADVICE,
    "threads",
)
"""Find kernels that wait, and of which too few fit on an SM."""
