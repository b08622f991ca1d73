"""Multiprocessors as the busiest unit, between idle and full."""

from tests.rules.counted import ELAPSED, QUIET, kernel


def compute(percent, *changes):
    return kernel(QUIET, {f"sm__throughput{ELAPSED}": percent}, *changes)


FIRES = {
    "half": lambda: compute(50.0),
    "just enough": lambda: compute(31.0),
}
SILENT = {
    "full": lambda: compute(90.0),
    "busy enough": lambda: compute(61.0),
    "hardly used": lambda: compute(29.0),
    "memory is nearly as busy": lambda: compute(
        50.0, {f"gpu__compute_memory_throughput{ELAPSED}": 45.0}
    ),
    "memory is busier": lambda: compute(50.0, {f"gpu__compute_memory_throughput{ELAPSED}": 55.0}),
    "not counted": lambda: compute(50.0, {f"sm__throughput{ELAPSED}": None}),
}
