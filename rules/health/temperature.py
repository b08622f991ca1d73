"""The temperature is just below the one at which the clocks are cut."""

from __future__ import annotations

from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Gpu, Number
from gpuadvisor.rules.alert_states import Level, Message
from gpuadvisor.rules.gpus import called

BEGIN_BELOW_C = 3
"""Sensors count in whole degrees and waver by one, so this is as near as can be told apart."""
END_BELOW_C = 8


class Temperature(Level):
    """The event of a temperature within `BEGIN_BELOW_C` of the limit; ends `END_BELOW_C` below."""

    kind = "temperature"
    metrics = ("temperature_c", "temperature_slowdown_c")
    begin_after_s = 5.0

    def holds(self, gpu: Gpu, values: list[Number]) -> bool:
        now, limit = values
        return now >= limit - (END_BELOW_C if self.states.is_firing(gpu.uuid) else BEGIN_BELOW_C)

    def says(self, gpu: Gpu, values: list[Number]) -> Message:
        now, limit = values
        return Message(
            f"{called(gpu)} is at {now} C, and its clocks are cut at {limit} C:"
            " check fans and airflow.",
            Severity.WARNING,
            dict(zip(self.metrics, values, strict=True)),
        )


EVENTS = (Temperature,)
