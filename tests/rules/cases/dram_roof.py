"""Kernels at the roof of memory, and below it."""

from tests.rules.counted import ELAPSED, QUIET, kernel

FIRES = {
    "a copy": kernel,
    "just there": lambda: kernel({f"gpu__dram_throughput{ELAPSED}": 80.5}),
}
SILENT = {
    "just not there": lambda: kernel({f"gpu__dram_throughput{ELAPSED}": 79.5}),
    "far below": lambda: kernel(QUIET),
    "not counted": lambda: kernel(without="dram_throughput"),
}
