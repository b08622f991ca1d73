"""The GPU's memory has errors."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from gpuadvisor.domain.accumulators import Latest, remember
from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Event, Frame, Gpu, Number
from gpuadvisor.domain.telemetry_window import GpuWindow
from gpuadvisor.rules.alert_states import GpuCondition, Message
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.gpus import called, of_each_gpu
from gpuadvisor.rules.requirements import sampled
from gpuadvisor.rules.rule import Rule, RuleResult

UNCORRECTED = "ecc_uncorrected_volatile"
CORRECTED = "ecc_corrected_volatile"
STORM_ERRORS = 100
"""Corrected errors of the time looked at that a finding needs, and of `STORM_WINDOW_S` an event.
A healthy GPU corrects a few a week; NVIDIA's Xid 92 ("high single-bit ECC error rate") is about a
rate of this order and gives no number. [own]"""
STORM_WINDOW_S = 60.0
STORM_END_S = 600.0
"""Storms come in bursts from one cell; ten minutes make one event of them. [own]"""

RULE = Rule(Category.HEALTH, needs=(sampled(UNCORRECTED),))


@of_each_gpu
def check(window: GpuWindow, evidence: Evidence) -> Iterator[RuleResult]:
    """Find errors that were counted within the time; those of before say nothing of this run."""
    lost, mended = window.series.get(UNCORRECTED), window.series.get(CORRECTED)
    if lost is not None and lost.grown >= 1:
        yield _lost(window.gpu, int(lost.grown))
    elif mended is not None and mended.grown >= STORM_ERRORS:
        yield _mended(window.gpu, int(mended.grown))


def _lost(gpu: Gpu, new: int) -> RuleResult:
    errors = "a memory error" if new == 1 else f"{new} memory errors"
    return RuleResult(
        f"{called(gpu)} had {errors} that could not be corrected: results since then may be wrong",
        (Figure(UNCORRECTED, new, "", 1),),
        "Stop what runs on it, throw its results away, and reset it with"
        f" `sudo nvidia-smi --gpu-reset -i {gpu.index}`; have it replaced if they come again.",
        severity=Severity.CRITICAL,
    )


def _mended(gpu: Gpu, new: int, time: str = "") -> RuleResult:
    return RuleResult(
        f"{called(gpu)} corrected {new} memory errors{time}: its memory may be failing",
        (Figure(CORRECTED, new, "", STORM_ERRORS),),
        "Watch it, and reset it when it can be spared, so that failing rows are replaced.",
        severity=Severity.WARNING,
    )


class Ecc(GpuCondition):
    """The events of memory errors: each that could not be corrected, and storms of corrected ones.

    The former have no length. A storm ends after `STORM_END_S` without.
    """

    kind = "ecc"
    key = "corrected"
    end_after_s = STORM_END_S

    def __init__(self) -> None:
        super().__init__()
        self._uncorrected: dict[str, Number] = {}
        self._corrected: dict[str, deque[tuple[float, Number]]] = {}
        """The counter of each GPU (UUID) over the last minute, with Unix times."""

    def observe(self, frame: Frame, latest: Latest) -> Iterator[Event]:
        yield from super().observe(frame, latest)
        for gpu in latest.gpus:
            count = _count(gpu, UNCORRECTED, frame)
            if count is None:
                continue
            before = self._uncorrected.get(gpu.uuid, count)
            new = int(count if count < before else count - before)  # lower: it began anew at 0
            self._uncorrected[gpu.uuid] = count
            if new > 0:
                now_s, said = frame.time_s, Message.of(_lost(gpu, new), Severity.ERROR).text
                key, data = "uncorrected", {"errors": new}
                yield Event(self.kind, now_s, said, Severity.ERROR, gpu.uuid, now_s, key, data)

    def judge(self, gpu: Gpu, frame: Frame, latest: Latest) -> bool | None:
        count = _count(gpu, CORRECTED, frame)
        if count is None:
            return None
        history = self._corrected.setdefault(gpu.uuid, deque())
        if history and count < history[-1][1]:
            history.clear()
        remember(history, frame.time_s, count, STORM_WINDOW_S)
        return count - history[0][1] >= STORM_ERRORS

    def message(self, gpu: Gpu, latest: Latest) -> Message:
        history = self._corrected[gpu.uuid]
        new = int(history[-1][1] - history[0][1])
        told = _mended(gpu, new, " within a minute")
        return Message.of(told, Severity.WARNING, {"errors": new})


def _count(gpu: Gpu, metric: str, frame: Frame) -> Number | None:
    """Return a counter, where this frame has it."""
    sample = frame.samples.get(gpu.uuid)
    return sample.values.get(metric) if sample else None


EVENTS = (Ecc,)
