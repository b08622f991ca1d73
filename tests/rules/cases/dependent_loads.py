"""Warps that wait for loads while nothing is busy."""

from tests.rules.counted import ELAPSED, QUIET, STALLED, kernel


def waiting(share, *changes, **shape):
    return kernel(QUIET, {STALLED.format("long_scoreboard"): 100 * share}, *changes, **shape)


FIRES = {
    "nearly all of the time": lambda: waiting(0.9),
    "just enough": lambda: waiting(0.51),
    "by the older names": lambda: waiting(
        0.9,
        {
            STALLED.format("long_scoreboard"): None,
            "smsp__average_warp_latency_issue_stalled_long_scoreboard.ratio": 90.0,
        },
    ),
}
SILENT = {
    "less than half": lambda: waiting(0.49),
    "memory is busy": kernel,
    "the multiprocessors are busy": lambda: waiting(0.9, {f"sm__throughput{ELAPSED}": 61.0}),
    "a kernel too short to get shorter": lambda: waiting(0.9, ms=0.006),
    "not counted": lambda: waiting(0.9, without="long_scoreboard"),
}
