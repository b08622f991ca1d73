"""Kernels that wait, with small blocks to blame or not."""

from tests.rules.counted import limited_warps

FIRES, SILENT = limited_warps("blocks", "registers", "registers")
