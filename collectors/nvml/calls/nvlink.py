"""NVLink: how many links are up, and packets with a wrong checksum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuadvisor.collectors.nvml import codes
from gpuadvisor.collectors.nvml.answers import Answer
from gpuadvisor.collectors.nvml.calls import Call
from gpuadvisor.collectors.nvml.device import Device
from gpuadvisor.collectors.nvml.field_values import read


def _links_up(nvml: Any, device: Device) -> Sequence[Answer]:
    up = 0
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            up += nvml.nvmlDeviceGetNvLinkState(device.handle, link) == 1
        except nvml.NVMLError as error:
            if link == 0 or error.value not in codes.OLDER_WAY:
                raise
            break  # this GPU has no more
    return (up,)


def _errors_in_all(nvml: Any, device: Device) -> Sequence[Answer]:
    field = nvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL
    answer: Answer = read(nvml, device, (field,))[0][0]
    if isinstance(answer, Exception):
        raise answer
    return (answer,)


def _errors_of_each(nvml: Any, device: Device) -> Sequence[Answer]:
    errors = 0
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            counter = nvml.NVML_NVLINK_ERROR_DL_CRC_FLIT
            errors += nvml.nvmlDeviceGetNvLinkErrorCounter(device.handle, link, counter)
        except nvml.NVMLError as error:
            if link == 0 or error.value not in codes.OLDER_WAY:
                raise
            break
    return (errors,)


CALLS = (
    Call(("nvlink_links",), (_links_up,)),
    Call(("nvlink_errors",), (_errors_in_all, _errors_of_each)),
)
