"""What a way of asking the driver may answer for one metric."""

from __future__ import annotations

from typing import Final

from gpuadvisor.domain.telemetry import Number


class Pending:
    """The type of PENDING."""


PENDING: Final = Pending()
"""No value yet and nothing wrong: a rate needs two readings."""

Answer = Number | None | Pending | Exception
"""None: not supported. An NVMLError: as if the call had failed, for this metric alone."""

NOT_VALUES = frozenset(
    {
        0xFFFFFFFF,  # NVML_VALUE_NOT_AVAILABLE, as unsigned int
        0xFFFFFFFFFFFFFFFF,  # the same as unsigned long long
        *range(0x7FFFFFF0, 0x7FFFFFF4),  # DCGM's blank values (dcgm_structs.h), as int
        *range(0x7FFFFFFFFFFFFFF0, 0x7FFFFFFFFFFFFFF4),  # and as long long
    }
)
"""Numbers that stand for "no value". dcgm-exporter showed one of them as a temperature."""
