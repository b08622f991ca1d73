"""Results of tuned kernels, as a search on a GPU leaves them in the store."""

from dataclasses import replace
from pathlib import Path

from gpuadvisor.domain.kernel_records import Evaluation, KernelResult, Record
from gpuadvisor.domain.study import Speedup, TrialState, Verdict
from gpuadvisor.storage import kernel_caches, kernel_studies

PARAMETERS = {"block_x": (8, 16, 32, 64), "unroll": (1, 2, 4)}
"""block_x decides, unroll hardly matters: see `evaluations`."""


def evaluations():
    """Every point, the fastest of which is 16, 2; one of 64 fails."""
    found = []
    for block in PARAMETERS["block_x"]:
        for unroll in PARAMETERS["unroll"]:
            time_ms = {8: 0.4, 16: 0.16, 32: 0.25, 64: 0.3}[block] * (1.02 if unroll == 1 else 1)
            time_ms *= 0.99 if unroll == 2 else 1
            point = {"block_x": block, "unroll": unroll}
            failed = block == 64 and unroll == 4
            found.append(
                Evaluation(point, TrialState.CRASHED, "an illegal address")
                if failed
                else Evaluation(
                    point,
                    TrialState.COMPLETE,
                    times_ms=(time_ms,),
                    default_ms=(0.255,),
                    resources={"registers": 32, "shared_bytes": 4224},
                )
            )
    return tuple(found)


RESULT = KernelResult(
    "transpose",
    {"rows": 8192, "columns": 8192},
    "NVIDIA H200",
    12,
    {"block_x": 32, "unroll": 1},
    Verdict.FASTER,
    best={"block_x": 16, "unroll": 2},
    speedup=Speedup(1.61, 1.6, 1.62, 12),
    default_ms=0.255,
    best_ms=0.1584,
    useful_bytes=2 * 4 * 8192**2,
    has_reference=True,
    file="/home/someone/transpose.py",
    started="2026-11-24T10:00:00+00:00",
    language="cuda_cpp",
    dtype="float32",
    parameters=PARAMETERS,
    size_restrictions=("rows % block_x == 0",),
    compute_capability=(9, 0),
)


def kept(**changes):
    """Store a result with its evaluations, and return it."""
    result = replace(RESULT, **changes)
    path = kernel_studies.cache_path(
        Path(result.file), result.kernel, result.problem, result.device
    )
    record = Record(result.kernel, result.device, result.problem, result.parameters)
    cache = kernel_caches.Cache(path, record)
    for each in evaluations():
        cache.add(each)
    cache.finish()
    result = replace(result, record=str(path))
    kernel_studies.keep(result)
    return result
