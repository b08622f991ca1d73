"""Stores to places apart, and such that only look so."""

from tests.rules.counted import HEALTHY, REQUESTS, SECTORS, USED, kernel


def touches(times, *changes, **shape):
    """The stores touch so many times the sectors of a copy, and memory moves them all."""
    sectors = times * 44.5e6 + 44.5e6
    return kernel(
        {
            "memory_l2_theoretical_sectors_global": sectors,
            SECTORS.format("global_op_st"): times * 44.5e6,
            USED.format("st"): 32.0 / times,
            "dram__bytes_write.sum": 1.425e9 * times,
            "memory_l2_theoretical_sectors_global_ideal": 89e6,
        },
        *changes,
        ms=(times + 1) / 2,
        **shape,
    )


def chart(sectors, *changes, **shape):
    """The memory's chart alone: of stores only what reaches the L2 cache."""
    return kernel(
        dict.fromkeys(HEALTHY),
        {
            "lts__t_sectors_srcunit_tex_op_write.sum": 6144.0 * sectors,
            REQUESTS.format("global_op_st"): 6144.0,
            REQUESTS.format("local_op_st"): 0.0,
        },
        *changes,
        **shape,
    )


FIRES = {
    "every third value": lambda: chart(12.0),
    "each thread another sector": lambda: chart(32.0),
    "eight times as many sectors": lambda: touches(8.0),
    "a quarter more": lambda: touches(1.5),
    "without the share that is used": lambda: touches(8.0, {USED.format("st"): None}),
}
SILENT = {
    "4 bytes a thread": lambda: chart(4.0),
    "8 bytes a thread, shifted": lambda: chart(9.0),
    "16 bytes a thread": lambda: chart(16.0),
    "a byte a thread": lambda: chart(1.0),
    "atomics write too": lambda: chart(12.0, {REQUESTS.format("global_op_red"): 100.0}),
    "of little of the captured time": lambda: chart(12.0, beside_ms=20.0),
    "side by side": lambda: touches(1.0),
    "shifted by a few bytes": lambda: touches(1.15),
    "it is the loads": lambda: touches(8.0, {USED.format("ld"): 4.0, USED.format("st"): 32.0}),
    "loads are not counted": lambda: touches(8.0, {SECTORS.format("global_op_ld"): None}),
}
