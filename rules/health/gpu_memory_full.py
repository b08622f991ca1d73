"""The GPU's memory is nearly used up."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.accumulators import Latest
from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Gpu, Number
from gpuadvisor.domain.telemetry_window import GpuWindow
from gpuadvisor.rules.alert_states import Level, Message
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.gpus import called, of_each_gpu
from gpuadvisor.rules.requirements import sampled
from gpuadvisor.rules.rule import Rule, RuleResult

FULL_SHARE = 0.95
"""On 80 GB that leaves 4 GB, less than an activation or a batch of many models. [own]"""
CLEAR_SHARE = 0.90
"""An event ends below it: an allocator at its limit comes and goes by some percent. [own]"""
GIB = 2**30

RULE = Rule(Category.MEMORY_CAPACITY, needs=(sampled("memory_used_bytes"),))


@of_each_gpu
def check(window: GpuWindow, evidence: Evidence) -> Iterator[RuleResult]:
    """Find GPUs whose memory was used to more than `FULL_SHARE` at some time."""
    used, told = window.series.get("memory_used_bytes"), window.series.get("memory_total_bytes")
    total = told.last if told else window.gpu.memory_total_bytes
    if used is not None and total and used.high > FULL_SHARE * total:
        yield RuleResult(
            f"{_sentence(window.gpu, used.high, total)} at its peak",
            (Figure("memory_used", round(100 * used.high / total, 1), "%", 100 * FULL_SHARE),),
            "See who holds it (`gpuadvisor watch`): a program that runs out of memory ends, and"
            " PyTorch's allocator slows down before that as it gives memory back; a smaller batch"
            " or activation checkpointing needs less.",
            severity=Severity.NOTICE,
        )


def _sentence(gpu: Gpu, used: Number, total: Number) -> str:
    return (
        f"{called(gpu)} has {100 * used / total:.0f} % of its memory in use"
        f" ({used / GIB:.1f} of {total / GIB:.1f} GiB)"
    )


class MemoryFull(Level):
    """The event that memory is nearly used up: begins above `FULL_SHARE`, ends at `CLEAR_SHARE`."""

    kind = "memory_full"
    metrics = ("memory_used_bytes", "memory_total_bytes")

    def read(self, gpu: Gpu, latest: Latest) -> list[Number]:
        used, total = (latest.value(gpu.uuid, name) for name in self.metrics)
        total = total or gpu.memory_total_bytes
        return [used, total] if used is not None and total else []

    def holds(self, gpu: Gpu, values: list[Number]) -> bool:
        used, total = values
        return used > total * (CLEAR_SHARE if self.states.is_firing(gpu.uuid) else FULL_SHARE)

    def says(self, gpu: Gpu, values: list[Number]) -> Message:
        data = dict(zip(self.metrics, values, strict=True))
        return Message(f"{_sentence(gpu, *values)}.", Severity.WARNING, data)


EVENTS = (MemoryFull,)
