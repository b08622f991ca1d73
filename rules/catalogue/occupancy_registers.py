"""Registers keep warps out of the SMs."""

from __future__ import annotations

from gpuadvisor.domain.finding import Category
from gpuadvisor.rules.kernels import knows
from gpuadvisor.rules.occupancy import HIDES, ON_WARPS, limited
from gpuadvisor.rules.rule import Rule

ADVICE = (
    "Let the compiler use fewer registers (`__launch_bounds__`, `-maxrregcount`), or give a thread"
    " less work; check that nothing spills into local memory."
)

RULE = Rule(Category.OCCUPANCY, needs=(knows(*ON_WARPS, "registers"),), hides=HIDES)

check = limited(
    "registers", lambda kernel: f"its {kernel.registers} registers a thread", ADVICE, "registers"
)
"""Find kernels that wait, and of which too few fit on an SM."""
