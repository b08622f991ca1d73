"""Multiprocessors that wait for others."""

from tests.rules.counted import QUIET, kernel


def idle(share, **shape):
    return kernel(QUIET, {"sm__cycles_active.avg": (1 - share) * 1_980_000}, **shape)


FIRES = {
    "half of the time": lambda: idle(0.5),
    "just enough": lambda: idle(0.17),
    "all multiprocessors alike": lambda: kernel(
        QUIET, {"sm__cycles_active.avg": 0.8 * 1_980_000, "sm__cycles_active.max": 0.82 * 1_980_000}
    ),
}
SILENT = {
    "starting and ending": lambda: idle(0.10),
    "a short kernel, that mostly starts and ends": lambda: idle(0.4, ms=0.012),
    "fewer blocks than multiprocessors": lambda: idle(0.5, grid=66),
    "not counted": lambda: idle(0.5, without="cycles_active"),
}
