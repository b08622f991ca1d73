"""Memory as the busiest unit, between its floor and its roof."""

from tests.rules.counted import ELAPSED, kernel


def dram(percent, *changes, **shape):
    return kernel(
        {
            f"gpu__dram_throughput{ELAPSED}": percent,
            f"gpu__compute_memory_throughput{ELAPSED}": percent,
            f"lts__throughput{ELAPSED}": 0.7 * percent,
            "dram__bytes_read.sum": 0.5 * percent / 100 * 3.352e9,
            "dram__bytes_write.sum": 0.5 * percent / 100 * 3.352e9,
        },
        *changes,
        **shape,
    )


FIRES = {
    "half of the bandwidth": lambda: dram(50.0),
    "just enough to be the limit": lambda: dram(31.0),
    "near the roof": lambda: dram(75.0),
}
SILENT = {
    "at the roof": lambda: dram(81.0),
    "hardly used": lambda: dram(29.0),
    "all units have as much to do": lambda: dram(40.0, {f"lts__throughput{ELAPSED}": 38.0}),
    "the L2 cache is busier": lambda: dram(50.0, {f"lts__throughput{ELAPSED}": 55.0}),
    "the L2 cache is not known": lambda: dram(50.0, {f"lts__throughput{ELAPSED}": None}),
}
