"""Communication with and without computing beside it."""

from tests.profiles import Made
from tests.rules.building import timeline

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def steps(compute, exposed, hidden=0.0, name=ALL_REDUCE):
    """Ten steps of a compute kernel, communication beside its end, and some after it."""
    made = Made()
    at = 0.0
    for _ in range(10):
        made.launched("gemm", call=(at, 2), runs=(at + 5, compute))
        begin = at + 5 + compute - hidden
        made.launched(name, call=(at + 2, 2), runs=(begin, hidden + exposed), stream=9)
        at += compute + exposed + 6
    return timeline(made)


FIRES = {
    "a fifth of the run": lambda: steps(800, 200),
    "the end of what is hidden": lambda: steps(800, 100, hidden=300),
    "just enough": lambda: steps(920, 55),
    "long ones": lambda: steps(8000, 2000),
    "of ranks that send to each other": lambda: steps(
        800, 200, name="ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
    ),
    "of RCCL": lambda: steps(800, 200, name="ncclKernel_Generic_4(ncclDevComm*, ncclWork*)"),
}
SILENT = {
    "hidden behind computing": lambda: steps(800, 0, hidden=300),
    "little": lambda: steps(950, 40),
    "none": lambda: steps(800, 200, name="gemm"),
}
