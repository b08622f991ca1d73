"""Stores to places apart, and such that only look so."""

from tests.rules.counted import SECTORS, USED, kernel


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


FIRES = {
    "eight times as many sectors": lambda: touches(8.0),
    "a quarter more": lambda: touches(1.5),
    "without the share that is used": lambda: touches(8.0, {USED.format("st"): None}),
}
SILENT = {
    "side by side": lambda: touches(1.0),
    "shifted by a few bytes": lambda: touches(1.15),
    "it is the loads": lambda: touches(8.0, {USED.format("ld"): 4.0, USED.format("st"): 32.0}),
    "loads are not counted": lambda: touches(8.0, {SECTORS.format("global_op_ld"): None}),
}
