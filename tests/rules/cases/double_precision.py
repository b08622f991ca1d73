"""64 bits where they are slow, and where they are not."""

from tests.rules.building import T4
from tests.rules.counted import ELAPSED, QUIET, kernel

FP64 = f"sm__pipe_fp64_cycles_active{ELAPSED}"
XU = f"sm__inst_executed_pipe_xu{ELAPSED}"
ISSUED = "smsp__issue_active.avg.per_cycle_active"


def doubles(percent, **shape):
    return kernel(
        QUIET, {FP64: percent, f"sm__throughput{ELAPSED}": percent, ISSUED: 0.1},
        **{"device": T4, "ms": 10.0, **shape},
    )  # fmt: skip


def constants(converting=94.0, percent=12.0, busiest=94.0, **shape):
    """Values of 32 bits that meet constants of 64."""
    return kernel(
        QUIET,
        {XU: converting, FP64: percent, f"sm__throughput{ELAPSED}": busiest, ISSUED: 0.18},
        **shape,
    )


FIRES = {
    "at their roof": lambda: doubles(95.0),
    "half": lambda: doubles(50.0),
    "conversions, where 64 bits are fast": constants,
    "conversions, where they are slow": lambda: constants(device=T4, ms=10.0),
}
SILENT = {
    "exponentials, and a sum in 64 bits": lambda: constants(
        converting=80.0, percent=6.0, busiest=80.0
    ),
    "sines instead of conversions": lambda: constants(percent=0.0),
    "another unit is busier": lambda: constants(converting=60.0, busiest=90.0),
    "few conversions": lambda: constants(converting=40.0, busiest=40.0),
    "a GPU that is fast at them": lambda: kernel(QUIET, {FP64: 95.0}),
    "hardly any": lambda: doubles(10.0),
    "not counted": lambda: doubles(95.0, without="fp64"),
}
