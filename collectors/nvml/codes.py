"""What NVML answers: its return codes (`nvmlReturn_t` in nvml.h), and numbers for "no value"."""

from __future__ import annotations

from typing import Final

from gpuadvisor.domain.telemetry import Number

UNINITIALIZED = 1
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
TIMEOUT = 10
LIBRARY_NOT_FOUND = 12
FUNCTION_NOT_FOUND = 13
GPU_IS_LOST = 15
RESET_REQUIRED = 16
LIB_RM_VERSION_MISMATCH = 18
ARGUMENT_VERSION_MISMATCH = 25
DEPRECATED = 26
GPU_NOT_FOUND = 28

OLDER_WAY = frozenset(
    {INVALID_ARGUMENT, NOT_SUPPORTED, FUNCTION_NOT_FOUND, ARGUMENT_VERSION_MISMATCH, DEPRECATED}
)
"""This way of asking does not work here; an older one may. Boards answer any of these for what
they do not have: `nvmlDeviceGetTemperatureV` exists and says NOT_SUPPORTED where the older
`nvmlDeviceGetTemperature` works."""
GPU_GONE = frozenset({GPU_IS_LOST, RESET_REQUIRED, GPU_NOT_FOUND})
"""No call for this GPU works until it was reset, or came back."""
LIBRARY_GONE = frozenset(
    {UNINITIALIZED, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, LIB_RM_VERSION_MISMATCH}
)
"""No call at all works until the library is initialised again: a driver was upgraded or unloaded
under us."""
NO_VALUE = 0xFFFFFFFFFFFFFFFF
"""NVML_VALUE_NOT_AVAILABLE, as unsigned long long."""
NOT_VALUES = frozenset(
    {
        0xFFFFFFFF,  # NVML_VALUE_NOT_AVAILABLE, as unsigned int
        NO_VALUE,
        *range(0x7FFFFFF0, 0x7FFFFFF4),  # DCGM's blank values (dcgm_structs.h), as int
        *range(0x7FFFFFFFFFFFFFF0, 0x7FFFFFFFFFFFFFF4),  # DCGM's blank values, as long long
    }
)
"""Numbers that stand for "no value". dcgm-exporter showed one of them as a temperature."""


def code_of(error: BaseException) -> int:
    """Return the code of an NVMLError; a function that nvidia-ml-py lacks is not found."""
    if isinstance(error, AttributeError):
        return FUNCTION_NOT_FOUND
    return int(getattr(error, "value", -1))


member = object.__getattribute__
"""Reads a number from a structure of nvidia-ml-py, past its own way, which looks at each in Python
whether it is text: 0.1 instead of 0.25 us, some hundred times a second."""


class GpuGoneError(Exception):
    """A GPU does not answer any more; `__cause__` is what the driver said."""


class LibraryGoneError(Exception):
    """The library does not answer any more; `__cause__` is what it said."""


class Pending:
    """Type of `PENDING`."""


PENDING: Final = Pending()
"""No value yet and nothing wrong: a rate needs two readings."""

Answer = Number | None | Pending | Exception
"""What a call may answer for a metric: None where it is not supported, an NVMLError where the call
failed for this metric alone."""
