"""Failing memory rows wait to be replaced, or could not be."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Gpu, Number
from gpuadvisor.domain.telemetry_window import GpuWindow
from gpuadvisor.rules.alert_states import Level, Message
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.gpus import called, of_each_gpu
from gpuadvisor.rules.requirements import either, sampled
from gpuadvisor.rules.rule import Rule, RuleResult

PENDING = "remap_pending"
FAILED = "remap_failed"

RULE = Rule(
    Category.HEALTH, needs=(either((sampled(PENDING),), (sampled(FAILED),)),), hides=("ecc_errors",)
)


@of_each_gpu
def check(window: GpuWindow, evidence: Evidence) -> Iterator[RuleResult]:
    """Find what the driver says of rows, as it was said last."""
    for metric in (FAILED, PENDING):
        read = window.series.get(metric)
        if read is not None and read.last >= 1:
            yield _rows(window.gpu, metric)


def _rows(gpu: Gpu, metric: str) -> RuleResult:
    figures = (Figure(metric, 1.0, "", 1.0),)
    if metric == FAILED:
        return RuleResult(
            f"{called(gpu)} could not replace a failing memory row, as it has no spare one left",
            figures,
            "Take the GPU out of use and have it replaced.",
            severity=Severity.CRITICAL,
        )
    return RuleResult(
        f"{called(gpu)} has failing memory rows that a reset replaces",
        figures,
        f"Reset it with `sudo nvidia-smi --gpu-reset -i {gpu.index}` when nothing runs on it.",
        severity=Severity.WARNING,
    )


class Rows(Level):
    """An event that begins and ends with what the driver says: its state does not flicker."""

    def __init__(self, metric: str) -> None:
        self.kind = metric
        self.metrics = (metric,)
        super().__init__()

    def holds(self, gpu: Gpu, values: list[Number]) -> bool:
        return bool(values[0])

    def says(self, gpu: Gpu, values: list[Number]) -> Message:
        return Message.of(_rows(gpu, self.kind), Severity.ERROR)


EVENTS = (partial(Rows, FAILED), partial(Rows, PENDING))
