"""Failing memory rows wait to be replaced, or could not be."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category, Figure, Severity
from gpuadvisor.domain.telemetry_window import GpuWindow
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.gpus import called, gpus_of_run, scope
from gpuadvisor.rules.requirements import either, sampled
from gpuadvisor.rules.rule import Rule, RuleResult

PENDING = "remap_pending"
FAILED = "remap_failed"

RULE = Rule(
    Category.HEALTH, needs=(either((sampled(PENDING),), (sampled(FAILED),)),), hides=("ecc_errors",)
)


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find what the driver says of rows, as it was said last."""
    for window in gpus_of_run(evidence):
        name = called(window.gpu)
        if _is_set(window, FAILED):
            yield RuleResult(
                f"{name} could not replace a failing memory row: it has no spare one left",
                (Figure(FAILED, 1.0, "", 1.0),),
                "Take the GPU out of use and have it replaced.",
                scope=scope(window.gpu),
                severity=Severity.CRITICAL,
            )
        if _is_set(window, PENDING):
            yield RuleResult(
                f"{name} has failing memory rows that wait for a reset to be replaced",
                (Figure(PENDING, 1.0, "", 1.0),),
                f"Reset it with `sudo nvidia-smi --gpu-reset -i {window.gpu.index}` when nothing"
                " runs on it.",
                scope=scope(window.gpu),
                severity=Severity.WARNING,
            )


def _is_set(window: GpuWindow, metric: str) -> bool:
    read = window.series.get(metric)
    return read is not None and read.last >= 1
