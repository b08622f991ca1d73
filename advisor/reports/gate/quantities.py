"""How each metric of a gate is called, read from a run, and shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from gpuadvisor.domain.gate import GateResult, GateRun, Metric
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.reports import figures


@dataclass(frozen=True)
class Quantity:
    """One metric, as reports have it."""

    title: str
    unit: str
    """Base unit of `value`, as Prometheus writes it: `seconds`, `bytes`; empty for a number."""
    value: Callable[[Measurement], float | None]
    """A run's figure, in that unit."""
    show: Callable[[float | None], str]
    """That figure for people."""


QUANTITIES: dict[Metric, Quantity] = {
    Metric.STEP_TIME: Quantity(
        "Step time",
        "seconds",
        lambda run: run.mean_step_ms / 1e3,
        lambda value: figures.milliseconds(None if value is None else value * 1e3),
    ),
    Metric.PEAK_MEMORY: Quantity(
        "Peak memory", "bytes", lambda run: float(run.peak_memory_bytes), figures.memory
    ),
}


def compared(found: GateResult, side: str) -> list[GateRun]:
    """Return the runs of a side that were compared."""
    return [
        run
        for run in found.runs
        if run.side == side and run.place.startswith("pair") and run.trial.measurement is not None
    ]


def values(found: GateResult, metric: Metric, side: str) -> list[float]:
    """Return a side's figures of a metric in its base unit, of the runs that were compared."""
    read = QUANTITIES[metric].value
    figures_ = [read(m) for run in compared(found, side) if (m := run.trial.measurement)]
    return [each for each in figures_ if each is not None and figures.is_figure(each)]


def middle(found: GateResult, metric: Metric, side: str) -> str:
    """Return the median of them for people, or a hyphen where there are none."""
    known = values(found, metric, side)
    return QUANTITIES[metric].show(median(known)) if known else "-"
