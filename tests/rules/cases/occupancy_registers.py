"""Kernels that wait, with registers to blame or not."""

from tests.rules.counted import few_warps, limited_warps

FIRES, SILENT = limited_warps("registers", "blocks", "blocks")
FIRES["one block, and some of its warps are away"] = lambda: few_warps(
    "registers", 1, 12.5, achieved=0.6
)
SILENT["one block, and most of its warps are away"] = lambda: few_warps(
    "registers", 1, 12.5, achieved=0.37
)
