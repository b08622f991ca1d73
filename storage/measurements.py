"""Measurements with their raw windows, step times and traces."""

from __future__ import annotations

from gpuadvisor.domain.knobs import AppliedKnob
from gpuadvisor.domain.measurement import Measurement, Trace, Window
from gpuadvisor.storage.models import AppliedKnobRow, MeasurementRow, TraceRow, WindowRow
from gpuadvisor.storage.rows import shared, values

SCALARS = shared(MeasurementRow, Measurement)
WINDOW = shared(WindowRow, Window)
TRACE = shared(TraceRow, Trace)
APPLIED = shared(AppliedKnobRow, AppliedKnob)


def to_row(measurement: Measurement) -> MeasurementRow:
    """Return a new row, with all that belongs to it."""
    return MeasurementRow(
        **values(measurement, SCALARS),
        trace=TraceRow(**values(measurement.trace, TRACE)),
        windows=[
            WindowRow(position=position, **values(window, WINDOW))
            for position, window in enumerate(measurement.windows)
        ],
        applied=[
            AppliedKnobRow(position=position, **values(knob, APPLIED))
            for position, knob in enumerate(measurement.applied)
        ],
    )


def from_row(row: MeasurementRow) -> Measurement:
    """Return what the row and its parts hold."""
    return Measurement(
        **values(row, SCALARS),
        trace=Trace(**values(row.trace, TRACE)),
        windows=tuple(Window(**values(window, WINDOW)) for window in row.windows),
        applied=tuple(AppliedKnob(**values(knob, APPLIED)) for knob in row.applied),
    )
