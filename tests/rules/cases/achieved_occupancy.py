"""Warps that would fit and are not there."""

from tests.rules.counted import ACTIVE, ELAPSED, QUIET, kernel


def achieved(percent, *changes, **shape):
    return kernel(
        QUIET, {f"sm__warps_active{ACTIVE}": percent}, *changes, **{"grid": 10 * 8 * 132, **shape}
    )


FIRES = {
    "a third": lambda: achieved(33.0),
    "just few enough": lambda: achieved(74.0),
}
SILENT = {
    "just enough": lambda: achieved(76.0),
    "less than a wave of blocks": lambda: achieved(33.0, grid=400),
    "busy anyway": lambda: achieved(33.0, {f"sm__throughput{ELAPSED}": 65.0}),
    "not counted": lambda: achieved(33.0, without="warps_active"),
}
