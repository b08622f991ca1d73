"""The temperature is just below the one at which the clocks are cut."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.accumulators import Latest
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Frame, Gpu, Number
from gpuadvisor.rules.alert_states import GpuCondition, Message
from gpuadvisor.rules.gpus import called

BEGIN_BELOW_C = 3
"""Sensors count in whole degrees and waver by one, so this is as near as can be told apart."""
END_BELOW_C = 8


class Temperature(GpuCondition):
    """The event of a temperature within `BEGIN_BELOW_C` of the limit; ends `END_BELOW_C` below."""

    kind = "temperature"
    begin_after_s = 5.0

    def judge(self, gpu: Gpu, frame: Frame, latest: Latest) -> Iterator[tuple[str, bool | None]]:
        now, limit = _degrees(gpu, latest)
        margin = END_BELOW_C if self.states.is_firing(gpu.uuid) else BEGIN_BELOW_C
        yield "", None if now is None or limit is None else now >= limit - margin

    def message(self, gpu: Gpu, key: str, latest: Latest) -> Message:
        now, limit = _degrees(gpu, latest)
        return Message(
            f"{called(gpu)} is at {now} C, and its clocks are cut at {limit} C:"
            " check fans and airflow.",
            Severity.WARNING,
            {"temperature_c": now or 0, "temperature_slowdown_c": limit or 0},
        )


def _degrees(gpu: Gpu, latest: Latest) -> tuple[Number | None, Number | None]:
    """Return the temperature and the slowdown temperature, in degrees Celsius."""
    return (
        latest.value(gpu.uuid, "temperature_c"),
        latest.value(gpu.uuid, "temperature_slowdown_c"),
    )


EVENTS = (Temperature,)
