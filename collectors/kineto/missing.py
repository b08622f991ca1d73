"""Why a trace of Kineto lacks what it lacks."""

from __future__ import annotations

from collections.abc import Mapping

from gpuadvisor.collectors.kineto.batch import Output

_NO_DEVICE = "the trace has nothing of a GPU: only the CPU was recorded"
_DEVICE_TABLES = ("kernels", "copies", "calls", "collectives", "synchronizations", "links")
_ALWAYS = {"metrics": "the torch profiler takes no metrics of Nsight Compute"}
_TABLES = {
    "synchronizations": "synchronisations are recorded only when asked for "
    "(`_ExperimentalConfig(enable_cuda_sync_events=True)`)",
    "calls": "the trace has no calls into CUDA",
    "links": "the trace does not say which operator launched what",
    "memory": "the trace was recorded without memory (`profile_memory=True`)",
    "operators": "the trace has no operators",
    "counters": "no counters of the GPU were sampled",
}
_COLUMNS = {
    "kernels.registers": "the profiler does not tell registers on this device",
    "kernels.shared_bytes": "the profiler does not tell shared memory on this device",
    "kernels.grid_x": "the trace does not tell the sizes of grids and blocks",
    "copies.bytes": "the trace does not tell the sizes of copies",
    "collectives.in_elements": "the trace does not tell the sizes of collectives",
    "collectives.type": "the trace does not tell the types of collectives",
    "operators.external_id": "the trace does not number its operators",
    "operators.shapes": "the trace was recorded without shapes (`record_shapes=True`)",
    "operators.types": "the trace was recorded without shapes (`record_shapes=True`)",
    "operators.stack": "the trace was recorded without stacks (`with_stack=True`)",
    "operators.flops": "the torch profiler writes no FLOP counts into traces",
    "memory.allocated_bytes": "this version of PyTorch did not write totals",
    "memory.reserved_bytes": "this version of PyTorch did not write totals",
    "memory.address": "this version of PyTorch did not write addresses",
}


def not_measured(output: Output, has_python: bool) -> Mapping[str, str]:
    """Return tables and columns that are empty, with the reason."""
    rows, reasons = output.rows, dict(_ALWAYS)
    if not any(rows[table] for table in _DEVICE_TABLES):
        reasons |= dict.fromkeys(_DEVICE_TABLES, _NO_DEVICE)
    for table, reason in _TABLES.items():
        if not rows[table]:
            reasons.setdefault(table, reason)
    for column, reason in _COLUMNS.items():
        if rows[column.partition(".")[0]] and column not in output.measured:
            reasons[column] = reason
    if has_python and "operators.stack" in reasons:
        reasons["operators.stack"] = "stacks are in `ranges`, as Python functions"
    return reasons
