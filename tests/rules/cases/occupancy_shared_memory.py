"""Kernels that wait, with shared memory to blame or not."""

from tests.rules.counted import limited_warps

FIRES, SILENT = limited_warps("shared_mem", "registers", "registers")
