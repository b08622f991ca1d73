"""Blocks that leave places empty, and kernels that do not care."""

from tests.rules.counted import ELAPSED, QUIET, few_warps, kernel

FIRES = {
    "one block where one and a half would fit": lambda: few_warps("warps", 1, 66.0, block=1024),
    "half a warp a block": lambda: kernel(QUIET, {f"sm__throughput{ELAPSED}": 80.0}, block=16),
    "a warp and a thread": lambda: kernel(QUIET, {f"sm__throughput{ELAPSED}": 80.0}, block=33),
}
SILENT = {
    "enough warps": lambda: few_warps("warps", 1, 75.0, block=1024),
    "registers are the limit": lambda: few_warps("registers", 2, 25.0),
    "half a warp, but memory limits": lambda: kernel(block=16),
    "nearly whole warps": lambda: kernel(QUIET, {f"sm__throughput{ELAPSED}": 80.0}, block=120),
}
