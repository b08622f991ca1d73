"""Loads from places apart, and such that only look so."""

from tests.rules.building import T4
from tests.rules.counted import ELAPSED, HEALTHY, QUIET, REQUESTS, SECTORS, STALLED, USED, kernel


def touches(times, *changes, **shape):
    """The loads touch so many times the sectors of a copy, and memory moves them all."""
    sectors = times * 44.5e6 + 44.5e6
    return kernel(
        {
            "memory_l2_theoretical_sectors_global": sectors,
            SECTORS.format("global_op_ld"): times * 44.5e6,
            USED.format("ld"): 32.0 / times,
            "dram__bytes_read.sum": 1.425e9 * times,
            "memory_l2_theoretical_sectors_global_ideal": 89e6,
        },
        *changes,
        **{"ms": (times + 1) / 2, **shape},
    )


def by_cycles(each, **changes):
    """Without counts of sectors: the L1 cache works that many cycles for each request."""
    metrics = {
        f"l1tex__throughput{ELAPSED}": 95.0,
        f"gpu__compute_memory_throughput{ELAPSED}": 95.0,
        f"l1tex__data_pipe_lsu_wavefronts{ELAPSED}": 95.0,
        f"l1tex__lsuin_requests{ELAPSED}": 95.0 / each,
        f"l1tex__lsu_writeback_active{ELAPSED}": 95.0 / each,
        **changes,
    }
    return kernel(QUIET, metrics, without="theoretical_sectors")


def few_counters(loads, stores):
    """Warps wait for so many percent of their time, and sectors are counted together only."""
    apart = (each.format(f"global_op_{op}") for each in (SECTORS, REQUESTS) for op in ("ld", "st"))
    waits = {STALLED.format("long_scoreboard"): loads, STALLED.format("drain"): stores}
    return touches(8.0, dict.fromkeys(apart), dict.fromkeys(map(USED.format, ("ld", "st"))), waits)


def requested(sectors):
    """Nothing but the sectors and the requests of loads."""
    only = {SECTORS.format("global_op_ld"): sectors * 1e6, REQUESTS.format("global_op_ld"): 1e6}
    return kernel(dict.fromkeys(HEALTHY), only)


FIRES = {
    "by requests alone": lambda: requested(32.0),
    "warps wait for loads, and nothing else tells": lambda: few_counters(50.0, 30.0),
    "eight times as many sectors": lambda: touches(8.0),
    "a quarter more": lambda: touches(1.5),
    "on a small chip": lambda: touches(8.0, device=T4, ms=45.0),
    "without the share that is used": lambda: touches(8.0, {USED.format("ld"): None}),
    "sixteen cycles a request": lambda: by_cycles(16.0),
}
SILENT = {
    "requests of 16 bytes a thread": lambda: requested(16.0),
    "nothing tells loads from stores": lambda: few_counters(5.0, 4.0),
    "warps wait for stores": lambda: few_counters(30.0, 50.0),
    "side by side": lambda: touches(1.0),
    "in blocks of nine threads, whose size comes first": lambda: touches(3.0, block=9),
    "shifted by a few bytes": lambda: touches(1.15),
    "one value for all threads": lambda: kernel({USED.format("ld"): 4.0}),
    "the caches keep what is loaded again": lambda: touches(
        2.0, {"dram__bytes_read.sum": 1.425e9}, {f"lts__throughput{ELAPSED}": 10.0}
    ),
    "local memory is not counted": lambda: touches(
        8.0, {"memory_l2_theoretical_sectors_local": None}
    ),
    "stores are not counted": lambda: touches(8.0, {SECTORS.format("global_op_st"): None}),
    "sixteen bytes a thread": lambda: by_cycles(4.0),
    "shared memory may be it": lambda: by_cycles(16.0, launch__shared_mem_per_block_static=4096.0),
    "mostly stores": lambda: by_cycles(16.0, **{f"l1tex__lsu_writeback_active{ELAPSED}": 1.0}),
}
