"""Memory errors, since the driver was loaded and in the GPU's life, and rows replaced for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuadvisor.collectors.nvml.answers import Answer
from gpuadvisor.collectors.nvml.calls import Call, Way
from gpuadvisor.collectors.nvml.device import Device

_COUNTERS = {
    "ecc_corrected_volatile": ("NVML_MEMORY_ERROR_TYPE_CORRECTED", "NVML_VOLATILE_ECC"),
    "ecc_uncorrected_volatile": ("NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_VOLATILE_ECC"),
    "ecc_corrected_aggregate": ("NVML_MEMORY_ERROR_TYPE_CORRECTED", "NVML_AGGREGATE_ECC"),
    "ecc_uncorrected_aggregate": ("NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_AGGREGATE_ECC"),
}


def _errors_of(error_type: str, counter: str) -> Way:
    def errors(nvml: Any, device: Device) -> Sequence[Answer]:
        kind = getattr(nvml, error_type), getattr(nvml, counter)
        return (nvml.nvmlDeviceGetTotalEccErrors(device.handle, *kind),)

    return errors


def _remapped(nvml: Any, device: Device) -> Sequence[Answer]:
    rows: Sequence[Answer] = nvml.nvmlDeviceGetRemappedRows(device.handle)
    return rows


CALLS = (
    *(Call((metric,), (_errors_of(*names),)) for metric, names in _COUNTERS.items()),
    Call(
        (
            "remapped_rows_corrected",
            "remapped_rows_uncorrected",
            "remap_pending",
            "remap_failed",
        ),
        (_remapped,),
    ),
)
