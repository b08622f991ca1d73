"""Failing memory rows wait to be replaced, or could not be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from gpuadvisor.domain.accumulators import Latest
from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Frame, Gpu
from gpuadvisor.domain.telemetry_window import GpuWindow
from gpuadvisor.rules.alert_states import GpuCondition, Message
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


class _Rows(GpuCondition):
    """An event that begins and ends with what the driver says: its state does not flicker."""

    metric: ClassVar[str]

    def judge(self, gpu: Gpu, frame: Frame, latest: Latest) -> Iterator[tuple[str, bool | None]]:
        rows = latest.value(gpu.uuid, self.metric)
        yield "", None if rows is None else bool(rows)


class RemapFailed(_Rows):
    """The event that a row fails and there is no spare one left."""

    kind = metric = FAILED

    def message(self, gpu: Gpu, key: str, latest: Latest) -> Message:
        return Message(
            f"{called(gpu)} could not replace a failing memory row, as it has no spare one left:"
            " have the GPU replaced.",
            Severity.ERROR,
        )


class RemapPending(_Rows):
    """The event that rows wait for a reset of the GPU to be replaced by spare ones."""

    kind = metric = PENDING

    def message(self, gpu: Gpu, key: str, latest: Latest) -> Message:
        return Message(
            f"{called(gpu)} has failing memory rows that a reset replaces: reset it"
            f" (`nvidia-smi --gpu-reset -i {gpu.index}`) when nothing runs on it.",
            Severity.ERROR,
        )


EVENTS = (RemapFailed, RemapPending)
