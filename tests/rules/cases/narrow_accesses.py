"""Kernels that move little at a time."""

from tests.rules.counted import QUIET, REQUESTS, SECTORS, STALLED, USED, kernel

THREADS = "smsp__thread_inst_executed_per_inst_executed.ratio"


def moving(sectors, *changes, **shape):
    counts = {
        each.format(f"global_op_{operation}"): value
        for each, value in ((SECTORS, 1e6 * sectors), (REQUESTS, 1e6))
        for operation in ("ld", "st")
    }
    waiting = {STALLED.format("long_scoreboard"): 80.0}
    return kernel(QUIET, counts, waiting, *changes, **shape)


FIRES = {
    "bytes": lambda: moving(1),
    "halves": lambda: moving(2),
    "nothing is stored": lambda: moving(
        1,
        {SECTORS.format("global_op_st"): 0.0, REQUESTS.format("global_op_st"): 0.0},
        without=USED.format("st"),
    ),
}
SILENT = {
    "floats": lambda: moving(4),
    "one value for all threads": lambda: moving(1, {USED.format("ld"): 4.0}),
    "few threads of a warp": lambda: moving(1, {THREADS: 8.0}),
    "warps do not wait": lambda: moving(1, {STALLED.format("long_scoreboard"): 20.0}),
    "memory is busy": lambda: moving(1, {"dram__bytes_read.sum": 2e9}),
    "a kernel too short to get shorter": lambda: moving(1, ms=0.005),
    "nothing of it is counted": lambda: moving(1, without="global_op_ld"),
}
