"""Field values: many numbers with one call, each with a return code and a time of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuadvisor.domain.telemetry import Number

_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Of the union, by `nvmlValueType_t`."""

Field = int | tuple[int, int]
"""Its number, or its number and scope (such as a link)."""


def read(nvml: Any, device: Any, fields: Sequence[Field]) -> list[tuple[Number | Exception, int]]:
    """Return for each field its value, or an NVMLError, and the Unix time of it in microseconds.

    Raises NVMLError where the whole call fails.
    """
    values = nvml.nvmlDeviceGetFieldValues(device.handle, fields)
    return [(_value(nvml, field), int(field.timestamp)) for field in values]


def _value(nvml: Any, field: Any) -> Number | Exception:
    if field.nvmlReturn:
        error: Exception = nvml.NVMLError(field.nvmlReturn)
        return error
    number: Number = getattr(field.value, _MEMBERS[field.valueType])
    return number
