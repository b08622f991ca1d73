"""Activity counters read zero on a GPU that is fully busy: they are broken, it is not idle.

Known from others: after Xid 31 the profiling fields read 0 for ever (NVIDIA/DCGM#303 and #202).
"""

from __future__ import annotations

from gpuadvisor.domain.telemetry import Gpu, Number
from gpuadvisor.rules.alert_states import Level, Message
from gpuadvisor.rules.gpus import called

BUSY_PCT = 99
IDLE_PCT = 0.01
"""Percent of SMs that are active, at most: one warp on one of 132 SMs for all of the time is
0.76 %, and for a seventieth of it 0.01 %."""


class BrokenCollector(Level):
    """The event of counters that contradict the utilization; ends when an SM is active."""

    kind = "broken_collector"
    metrics = ("sm_active_pct", "gpu_utilization_pct")
    begin_after_s = 30.0
    """The two average over different times, so they disagree for a second or two around pauses."""

    def holds(self, gpu: Gpu, values: list[Number]) -> bool:
        active, utilization = values
        # Once it is broken, only activity proves that it is mended.
        is_busy = utilization >= BUSY_PCT or self.states.is_firing(gpu.uuid)
        return active <= IDLE_PCT and is_busy

    def says(self, gpu: Gpu, values: list[Number]) -> Message:
        return Message(
            f"{called(gpu)} is fully busy while its counters say that no SM is active: the"
            " counters are broken; stop other profilers, and if that does not help, reset the GPU."
        )


EVENTS = (BrokenCollector,)
