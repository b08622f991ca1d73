"""Atomics that wait for each other, and such that do not."""

from tests.rules.counted import ELAPSED, QUIET, REQUESTS, STALLED, kernel

UNIT = "lts__d_atomic_input_cycles_active.{}.pct_of_peak_sustained_elapsed"


def added(count, *changes):
    """A kernel with so many atomics without result, besides 22 million other accesses."""
    return kernel(QUIET, {REQUESTS.format("global_op_red"): count}, *changes)


def waiting(count, share):
    return added(count, {STALLED.format("lg_throttle"): 100 * share - 20.0,
                         STALLED.format("drain"): 0.0, STALLED.format("membar"): 0.0})  # fmt: skip


def in_shared(again):
    """Atomics on shared memory take half of the L1 cache's cycles."""
    return kernel(
        QUIET,
        {
            "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom.sum": 50e6,
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_atom.sum": again,
            "l1tex__data_pipe_lsu_wavefronts.sum": 100e6,
            f"l1tex__throughput{ELAPSED}": 80.0,
            f"gpu__compute_memory_throughput{ELAPSED}": 80.0,
        },
    )


NOT_COUNTED = {REQUESTS.format(f"global_op_{each}"): None for each in ("atom", "red")}

SLICE = "lts__throughput.{}.pct_of_peak_sustained_elapsed"
FIRES = {
    "one slice of the L2 cache has the work, and atomics were not counted": lambda: kernel(
        QUIET, NOT_COUNTED, {SLICE.format("avg"): 1.1, SLICE.format("max"): 35.7}
    ),
    "one slice has the work of a lock, with few atomics": lambda: kernel(
        QUIET,
        NOT_COUNTED,
        {UNIT.format("avg"): 0.01, UNIT.format("max"): 0.2},
        {SLICE.format("avg"): 1.1, SLICE.format("max"): 35.7},
    ),
    "one unit does all, of atomics that were not counted": lambda: added(
        0.0, {UNIT.format("avg"): 1.0, UNIT.format("max"): 33.0}, NOT_COUNTED
    ),
    "one unit does all": lambda: added(20e6, {UNIT.format("avg"): 1.0, UNIT.format("max"): 95.0}),
    "all units are busy": lambda: added(20e6, {UNIT.format("avg"): 70.0, UNIT.format("max"): 80.0}),
    "warps wait for them": lambda: waiting(20e6, 0.8),
    "in shared memory": lambda: in_shared(45e6),
}
SILENT = {
    "slices that are even, and atomics were not counted": lambda: kernel(
        QUIET, NOT_COUNTED, {SLICE.format("avg"): 12.0, SLICE.format("max"): 18.0}
    ),
    "one slice has the work of a kernel without atomics": lambda: kernel(
        QUIET, {SLICE.format("avg"): 1.1, SLICE.format("max"): 35.7}
    ),
    "units that are even, of atomics that were not counted": lambda: added(
        0.0, {UNIT.format("avg"): 30.0, UNIT.format("max"): 33.0}, NOT_COUNTED
    ),
    "none": lambda: waiting(0.0, 0.8),
    "one a block": lambda: waiting(1e5, 0.8),
    "warps do not wait": lambda: waiting(20e6, 0.4),
    "units that all work a little": lambda: waiting(1e5, 0.8),
    "in shared memory, side by side": lambda: in_shared(10e6),
}
