"""Other processes use the same GPU."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import GpuProcess
from gpuadvisor.domain.telemetry_window import GpuWindow
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.gpus import called, of_each_gpu, run_pids
from gpuadvisor.rules.requirements import PROCESSES
from gpuadvisor.rules.rule import Estimate, Rule, RuleResult

COMPUTE = "compute"
MPS = "nvidia-cuda-mps"
"""Beginning of the names of CUDA's own processes, through which others share a GPU by intent."""
LEAST_SM_PCT = 5.0
"""Utilization of another process from which on it does take time away. [own]"""
GIB = 2**30
METHOD = "At most the share of the time in which another process had kernels on this GPU."

RULE = Rule(Category.HEALTH, needs=(PROCESSES,))


@of_each_gpu
def check(window: GpuWindow, evidence: Evidence) -> Iterator[RuleResult]:
    """Find compute processes that are no relatives of the run's, or of each other."""
    others = _others(evidence, window)
    if not others:
        return
    busy = [each.sm_utilization_pct or 0.0 for each in others]
    share = min(sum(each for each in busy if each >= LEAST_SM_PCT) / 100, 1.0)
    held = sum(each.memory_bytes or 0 for each in others)
    count = "another process" if len(others) == 1 else f"{len(others)} other processes"
    who = ", ".join(f"{each.name or 'process'} ({each.pid})" for each in others[:3])
    yield RuleResult(
        f"{called(window.gpu)} is shared with {count}: {who}{', ...' if len(others) > 3 else ''}",
        (
            Figure("other_processes", len(others), "", 1),
            Figure("other_sm_utilization", round(100 * share, 1), "%", LEAST_SM_PCT),
            Figure("other_memory", round(held / GIB, 2), "GiB"),
        ),
        "End what is left over, or give each its own GPU (`CUDA_VISIBLE_DEVICES`) or MIG"
        " instance; timings of this run say little until then.",
        _saving(evidence, share),
        METHOD if share else "",
        severity=None if share else Severity.NOTICE,
    )


def _others(evidence: Evidence, window: GpuWindow) -> list[GpuProcess]:
    """Return the processes that are not of the run, those with most work first."""
    found = [
        each
        for each in window.processes or ()
        if each.kind == COMPUTE
        and not each.is_host_pid  # its number means nothing here
        and not (each.name or "").startswith(MPS)
    ]
    pids = run_pids(evidence)
    ours = [each for each in found if each.pid in pids]
    if not pids and evidence.facts is None:
        ours = sorted(found, key=_work)[-1:]  # nobody's run: the others are so to the largest
    if not ours:
        return []
    kin = {each.pid for each in ours} | pids
    parents = {each.parent_pid for each in ours} - {None, 0, 1}
    others = [
        each
        for each in found
        if each.pid not in kin and each.parent_pid not in kin | parents and each.pid not in parents
    ]
    return sorted(others, key=_work, reverse=True)


def _work(process: GpuProcess) -> tuple[float, int, int]:
    return process.sm_utilization_pct or 0.0, process.memory_bytes or 0, process.pid


def _saving(evidence: Evidence, share: float) -> Estimate | None:
    if not share:
        return None
    facts = evidence.facts
    if facts is None or not evidence.has_timeline or not facts.busy:
        seconds = evidence.telemetry.measured_s if evidence.telemetry is not None else 0.0
        return Estimate(0.0, share * 1e9 * seconds, {}, 1e9 * seconds)
    return Estimate(0.0, share * max(each.busy_ns for each in facts.busy))
