"""Warps that take many paths, and such that look so."""

from tests.rules.building import T4
from tests.rules.counted import ELAPSED, QUIET, kernel


def active(threads, compute=90.0, working=None, *, l2=15.0, **shape):
    return kernel(
        QUIET,
        {
            "smsp__thread_inst_executed_per_inst_executed.ratio": threads,
            "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio": working or threads,
            f"sm__throughput{ELAPSED}": compute,
            f"lts__throughput{ELAPSED}": l2,
        },
        **shape,
    )


FIRES = {
    "one thread at a time": lambda: active(1.0),
    "every second thread": lambda: active(17.0),
    "by conditions": lambda: active(32.0, working=16.0),
    "on a small chip": lambda: active(8.0, device=T4, ms=10.5),
    "beside memory that is busier": lambda: active(8.0, 29.0, None, l2=52.0),
}
SILENT = {
    "whole warps": lambda: active(32.0),
    "the ends of loops": lambda: active(25.0),
    "checks of bounds": lambda: active(32.0, working=20.0),
    "blocks of half a warp": lambda: active(16.0, block=16),
    "memory limits": lambda: kernel({"smsp__thread_inst_executed_per_inst_executed.ratio": 8.0}),
    "the multiprocessors hardly work": lambda: active(8.0, compute=0.5),
}
