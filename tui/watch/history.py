"""What was read in the last minutes, and its sparkline."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from gpuadvisor.domain.accumulators import Accumulator, Latest, remember
from gpuadvisor.domain.telemetry import Frame, Number, Sample

KEPT_S = 600.0
KEPT_READINGS = 6000
"""Ten minutes at ten readings a second, for each GPU and metric."""
SHOWN_S = 60.0
"""Time that a sparkline shows at least."""
STEPS_S = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0)
"""Times of which a character of a sparkline stands for one."""
BLOCKS = "▁▂▃▄▅▆▇█"
NOTHING = " "
"""A character without any reading in its time: not the lowest block, which is zero."""


@dataclass(frozen=True)
class Sparkline:
    """A metric that can be drawn over time."""

    metric: str
    title: str
    limit: str | None = None
    """The metric that the highest block stands for, where it is known."""
    top: float | None = None
    """The value of the highest block where no metric tells it; with neither, the highest shown."""


SPARKLINES = (
    Sparkline("gpu_utilization_pct", "util", top=100.0),
    Sparkline("memory_used_bytes", "memory", "memory_total_bytes"),
    Sparkline("power_w", "power", "power_limit_w"),
    Sparkline("temperature_c", "temp", "temperature_slowdown_c", 100.0),
    Sparkline("sm_clock_mhz", "clock", "sm_clock_max_mhz"),
    Sparkline("sm_active_pct", "SM active", top=100.0),
    Sparkline("tensor_active_pct", "tensor", top=100.0),
    Sparkline("dram_active_pct", "DRAM", top=100.0),
    Sparkline("pcie_rx_bytes_per_s", "PCIe in"),
    Sparkline("nvlink_rx_bytes_per_s", "NVLink in"),
)
"""What can be drawn, in the order in which `m` goes through it."""

KEPT = (*(each.metric for each in SPARKLINES), "throttle_reasons")
"""The metrics whose last readings are kept."""


class _Readings:
    """The last readings of one device."""

    def __init__(self) -> None:
        self.by_metric: dict[str, deque[tuple[float, Number]]] = {}

    def add(self, frame: Frame, sample: Sample) -> None:
        for metric in KEPT:
            value = sample.values.get(metric)
            if value is not None:
                kept = self.by_metric.get(metric)
                if kept is None:
                    kept = self.by_metric[metric] = deque(maxlen=KEPT_READINGS)
                remember(kept, frame.time_s, value, KEPT_S)


class History(Accumulator[_Readings]):
    """The last readings of the metrics that can be drawn."""

    def __init__(self) -> None:
        super().__init__(_Readings)

    def readings(self, device: str, metric: str) -> Sequence[tuple[float, Number]]:
        """Return the kept readings of a metric as Unix times and values, oldest first."""
        return self.device(device).by_metric.get(metric, ())

    def means(
        self, device: str, metric: str, now_s: float, step_s: float, count: int
    ) -> list[float | None]:
        """Return the means of the last `count` steps, oldest first; None for one without readings.

        Steps begin at whole multiples of `step_s`, so that a sparkline moves but does not flicker.
        """
        sums, numbers = [0.0] * count, [0] * count
        last = int(now_s // step_s)
        for time_s, value in reversed(self.readings(device, metric)):
            place = count - 1 - (last - int(time_s // step_s))
            if place < 0:
                break
            if place < count:
                sums[place] += value
                numbers[place] += 1
        return [
            each / number if number else None for each, number in zip(sums, numbers, strict=True)
        ]


def step_s(width: int) -> float:
    """Return what a character stands for, in seconds, in a sparkline of `width` of them."""
    return next((step for step in STEPS_S if step * width >= SHOWN_S), STEPS_S[-1])


def blocks(means: Sequence[float | None], top: float | None) -> str:
    """Return one character for each mean, from zero to `top`; without it, to the highest mean."""
    known = [mean for mean in means if mean is not None]
    scale = top if top and top > 0 else max(known, default=0.0)

    def block(value: float) -> str:
        place = round(value / scale * (len(BLOCKS) - 1)) if scale > 0 else 0
        return BLOCKS[min(max(place, 0), len(BLOCKS) - 1)]

    return "".join(NOTHING if mean is None else block(mean) for mean in means)


def top_of(sparkline: Sparkline, device: str, latest: Latest) -> float | None:
    """Return what the highest block stands for on that GPU, None where that is not known."""
    limit = latest.value(device, sparkline.limit) if sparkline.limit else None
    return sparkline.top if limit is None else float(limit)
