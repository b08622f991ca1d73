"""Instructions that wait for each other as in code for a debugger, and such that do not."""

from tests.rules.counted import QUIET, kernel

WAIT = "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio"
OLD_WAIT = "smsp__average_warp_latency_issue_stalled_wait.ratio"


def waiting(cycles, metric=WAIT, **more):
    """A kernel of which an instruction waits so many cycles for the one before."""
    return kernel(QUIET, {WAIT: None, metric: cycles}, **more)


FIRES = {
    "code for a debugger": lambda: waiting(13.7),
    "the longest that an instruction can tell": lambda: waiting(15.0),
    "told by an older version": lambda: waiting(14.1, OLD_WAIT),
    "with a tenth of the captured time": lambda: waiting(14.0, beside_ms=9.0, ms=1.0),
    "how busy units are is not known": lambda: waiting(14.0, without="throughput"),
}
SILENT = {
    "the most of optimized code that was seen": lambda: waiting(4.6),
    "usual": lambda: waiting(2.5),
    "with a hundredth of the captured time": lambda: waiting(14.0, beside_ms=99.0, ms=1.0),
    "waits were not counted": lambda: waiting(None),
    "no number": lambda: waiting(float("nan")),
}
