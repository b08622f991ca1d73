"""Threads of a warp store to places far apart."""

from __future__ import annotations

from gpuadvisor.domain.finding import Category
from gpuadvisor.rules.coalescing import HIDES, uncoalesced
from gpuadvisor.rules.kernels import knows
from gpuadvisor.rules.rule import Rule

ADVICE = (
    "Let neighbouring threads write neighbouring addresses: swap the indices, or collect a tile in"
    " shared memory and write it row by row."
)

RULE = Rule(
    Category.COALESCING, needs=(knows("sectors", "ideal_sectors", "local_sectors"),), hides=HIDES
)

check = uncoalesced("st", "stores", ADVICE)
"""Find kernels whose stores move more than their threads write."""
