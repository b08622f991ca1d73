"""The GPU's memory is nearly used up."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.accumulators import Latest
from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Frame, Gpu, Number
from gpuadvisor.rules.alert_states import GpuCondition, Message
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.gpus import called, gpus_of_run, scope
from gpuadvisor.rules.requirements import sampled
from gpuadvisor.rules.rule import Rule, RuleResult

FULL_SHARE = 0.95
"""On 80 GB that leaves 4 GB, less than an activation or a batch of many models. [own]"""
CLEAR_SHARE = 0.90
"""An event ends below it: an allocator at its limit comes and goes by some percent. [own]"""
GIB = 2**30

RULE = Rule(Category.MEMORY_CAPACITY, needs=(sampled("memory_used_bytes"),))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find GPUs whose memory was used to more than `FULL_SHARE` at some time."""
    for window in gpus_of_run(evidence):
        used, told = (
            window.series.get(name) for name in ("memory_used_bytes", "memory_total_bytes")
        )
        total = told.last if told else window.gpu.memory_total_bytes
        if used is None or not total or used.high <= FULL_SHARE * total:
            continue
        yield RuleResult(
            f"{called(window.gpu)} has up to {used.high / total:.0%} of its memory in use"
            f" ({_sizes(used.high, total)})",
            (Figure("memory_used", round(100 * used.high / total, 1), "%", 100 * FULL_SHARE),),
            "See who holds it (`gpuadvisor watch`): a program that runs out of memory ends, and"
            " PyTorch's allocator slows down before that as it gives memory back; a smaller batch"
            " or activation checkpointing needs less.",
            scope=scope(window.gpu),
            severity=Severity.NOTICE,
        )


class MemoryFull(GpuCondition):
    """The event that memory is nearly used up: begins above `FULL_SHARE`, ends at `CLEAR_SHARE`."""

    kind = "memory_full"

    def judge(self, gpu: Gpu, frame: Frame, latest: Latest) -> Iterator[tuple[str, bool | None]]:
        used, total = _bytes(gpu, latest)
        limit = CLEAR_SHARE if self.states.is_firing(gpu.uuid) else FULL_SHARE
        yield "", used > limit * total if used is not None and total else None

    def message(self, gpu: Gpu, key: str, latest: Latest) -> Message:
        used, total = (number or 1 for number in _bytes(gpu, latest))
        return Message(
            f"{called(gpu)} has {100 * used / total:.0f} % of its memory in use"
            f" ({_sizes(used, total)}).",
            Severity.WARNING,
            {"memory_used_bytes": used, "memory_total_bytes": total},
        )


def _bytes(gpu: Gpu, latest: Latest) -> tuple[Number | None, Number | None]:
    """Return how much memory is used and how much there is, in bytes; None where not known."""
    used = latest.value(gpu.uuid, "memory_used_bytes")
    return used, latest.value(gpu.uuid, "memory_total_bytes") or gpu.memory_total_bytes


def _sizes(used: Number, total: Number) -> str:
    return f"{used / GIB:.1f} of {total / GIB:.1f} GiB"


EVENTS = (MemoryFull,)
