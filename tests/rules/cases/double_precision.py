"""64 bits where they are slow, and where they are not."""

from tests.rules.building import T4
from tests.rules.counted import ELAPSED, QUIET, kernel

FP64 = f"sm__pipe_fp64_cycles_active{ELAPSED}"
ISSUED = "smsp__issue_active.avg.per_cycle_active"


def doubles(percent, **shape):
    return kernel(
        QUIET, {FP64: percent, f"sm__throughput{ELAPSED}": percent, ISSUED: 0.1},
        **{"device": T4, **shape},
    )  # fmt: skip


FIRES = {
    "at their roof": lambda: doubles(95.0),
    "half": lambda: doubles(50.0),
}
SILENT = {
    "a GPU that is fast at them": lambda: kernel(QUIET, {FP64: 95.0}),
    "hardly any": lambda: doubles(10.0),
    "not counted": lambda: doubles(95.0, without="fp64"),
}
