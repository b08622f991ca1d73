"""The figures of a run that reports show, and how the best run compares with the baseline.

A run that was cut short may lack any of them; each is None then, never zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isclose, isfinite

from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.study import StudyResult
from gpuadvisor.reports import figures


@dataclass(frozen=True)
class Quantities:
    """What was measured of one run. None stands for `not measured`."""

    mean_ms: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    throughput: float | None = None
    unit: str = "steps/s"
    samples_per_step: float | None = None
    peak_memory_bytes: int | None = None
    energy_j_per_step: float | None = None

    def per_sample(self, value: float | None) -> float | None:
        """Return a step's value divided by its samples; None where either is not known."""
        return value / self.samples_per_step if value and self.samples_per_step else None


def quantities(measurement: Measurement | None) -> Quantities:
    """Return the figures of a run; all are None where there was no run."""
    if measurement is None:
        return Quantities()
    timed = measurement.steps > 0 and _positive(measurement.seconds) is not None
    return Quantities(
        mean_ms=measurement.mean_step_ms if timed else None,
        p50_ms=_percentile(measurement, 50),
        p95_ms=_percentile(measurement, 95),
        throughput=measurement.throughput if timed else None,
        unit=measurement.throughput_unit if timed else "steps/s",
        samples_per_step=measurement.samples_per_step if timed else None,
        # No process computes in zero bytes: this is a reading that failed.
        peak_memory_bytes=measurement.peak_memory_bytes or None,
        energy_j_per_step=_positive(measurement.energy_j_per_step),
    )


@dataclass(frozen=True)
class ComparedQuantity:
    """One row of the table `baseline against best`, ready to print."""

    label: str
    baseline: str
    best: str
    change: str
    """`-29.6 %`; empty where one of the two was not measured."""


def comparisons(result: StudyResult) -> tuple[ComparedQuantity, ...]:
    """Return the rows of the table; without a best run its cells and changes are empty."""
    before, after = quantities(result.baseline), quantities(result.best)
    rows = [
        _row("Step time, median", before.p50_ms, after.p50_ms, figures.milliseconds),
        _row("Step time, p95", before.p95_ms, after.p95_ms, figures.milliseconds),
        _throughput_row(before, after),
        _row("Peak memory", before.peak_memory_bytes, after.peak_memory_bytes, figures.memory),
        _row("Energy per step", before.energy_j_per_step, after.energy_j_per_step, figures.energy),
    ]
    if result.best is not None and steps_differ(before, after):
        rows[:0] = _sample_rows(before, after)
    if result.best is None:
        rows = [ComparedQuantity(row.label, row.baseline, "", "") for row in rows]
    return tuple(rows)


def steps_differ(before: Quantities, after: Quantities) -> bool:
    """Say whether a step of the two runs holds another number of samples.

    Step times and energies of the two cannot be compared then; those of a sample can.
    """
    if before.samples_per_step is None or after.samples_per_step is None:
        return False
    # The last batch of an epoch may be short in one run and beyond its end in the other.
    return not isclose(before.samples_per_step, after.samples_per_step, rel_tol=0.1)


def _sample_rows(before: Quantities, after: Quantities) -> list[ComparedQuantity]:
    time = before.per_sample(before.mean_ms), after.per_sample(after.mean_ms)
    energy = (
        before.per_sample(before.energy_j_per_step),
        after.per_sample(after.energy_j_per_step),
    )
    return [
        _row("Samples per step", before.samples_per_step, after.samples_per_step, figures.number),
        _row("Time per sample, mean", *time, figures.milliseconds),
        _row("Energy per sample", *energy, figures.energy),
    ]


def _throughput_row(before: Quantities, after: Quantities) -> ComparedQuantity:
    comparable = before.unit == after.unit
    return ComparedQuantity(
        "Throughput",
        figures.throughput(before.throughput, before.unit),
        figures.throughput(after.throughput, after.unit),
        figures.change(before.throughput, after.throughput) if comparable else "",
    )


def _row(
    label: str, before: float | None, after: float | None, show: Callable[[float | None], str]
) -> ComparedQuantity:
    return ComparedQuantity(label, show(before), show(after), figures.change(before, after))


def _percentile(measurement: Measurement, percent: float) -> float | None:
    return _positive(measurement.percentile_ms(percent)) if measurement.step_ms else None


def _positive(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) and value > 0 else None
