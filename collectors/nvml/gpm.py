"""GPM (GPU performance monitoring): what the SMs do between two samples of their counters.

Hopper and later, without a profiler and without root. The driver wants samples 100 ms or more
apart; ours are as far apart as full frames.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

from gpuadvisor.collectors.nvml import codes
from gpuadvisor.collectors.nvml.codes import PENDING, Answer, member

_BYTES_PER_MIB = 1024 * 1024
_ROUNDING_PCT = 1.0
"""Percentages may come out a little above 100, as two counters are not read at one instant."""
MIN_GAP_S = 0.1
"""Closer together, all calls of a poll share the newest pair of samples."""
_MISFITS = 3
"""How often in a row two samples may not belong together, as after a reset of the GPU."""

_IDS = {
    "graphics_active_pct": "NVML_GPM_METRIC_GRAPHICS_UTIL",
    "sm_active_pct": "NVML_GPM_METRIC_SM_UTIL",
    "sm_occupancy_pct": "NVML_GPM_METRIC_SM_OCCUPANCY",
    "tensor_active_pct": "NVML_GPM_METRIC_ANY_TENSOR_UTIL",
    "fp64_active_pct": "NVML_GPM_METRIC_FP64_UTIL",
    "fp32_active_pct": "NVML_GPM_METRIC_FP32_UTIL",
    "fp16_active_pct": "NVML_GPM_METRIC_FP16_UTIL",
    "dram_active_pct": "NVML_GPM_METRIC_DRAM_BW_UTIL",
    "pcie_tx_bytes_per_s": "NVML_GPM_METRIC_PCIE_TX_PER_SEC",
    "pcie_rx_bytes_per_s": "NVML_GPM_METRIC_PCIE_RX_PER_SEC",
    "nvlink_tx_bytes_per_s": "NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC",
    "nvlink_rx_bytes_per_s": "NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC",
}


class Gpm:
    """Two samples of one GPU, and what the newest pair says."""

    def __init__(self) -> None:
        self._older: Any = None
        self._newer: Any = None
        self._has_sample = False
        self._request: Any = None
        self._metrics: list[tuple[str, bool, Any]] = []
        """Name, whether it is a share, and the structure of the request of each metric, which
        ctypes would make anew each time."""
        self._answers: dict[str, Answer] = {}
        self._error: Exception | None = None
        self._taken_s: float | None = None
        self._misfits = 0

    def read(self, nvml: Any, handle: Any, metrics: Sequence[str]) -> Sequence[Answer]:
        """Return what happened since the sample before, by metric; raises NVMLError.

        PENDING after the first sample. Percentages are 0 to 100, traffic is in bytes/s.
        """
        now_s = time.monotonic()
        if self._taken_s is None or now_s - self._taken_s >= MIN_GAP_S:
            self._taken_s = now_s
            self._error = None
            try:
                self._answers = self._sample(nvml, handle)
            except (nvml.NVMLError, AttributeError) as error:
                self._has_sample = False
                self._error = error
        if self._error is not None:
            raise self._error
        return [self._answers.get(metric, PENDING) for metric in metrics]

    def read_all_or_raise(self, nvml: Any, handle: Any, metrics: Sequence[str]) -> Sequence[Answer]:
        """Read like `read`, but a metric that GPM lacks here is an error for all of them."""
        answers = self.read(nvml, handle, metrics)
        for answer in answers:
            if isinstance(answer, Exception) and codes.code_of(answer) in codes.OLDER_WAY:
                raise answer
        return answers

    def close(self, nvml: Any) -> None:
        """Free the samples; call it before the library is shut down."""
        for sample in (self._older, self._newer):
            if sample is not None:
                with contextlib.suppress(nvml.NVMLError, AttributeError):
                    nvml.nvmlGpmSampleFree(sample)
        self._older = self._newer = None
        self._has_sample = False

    def _sample(self, nvml: Any, handle: Any) -> dict[str, Answer]:
        if self._newer is None:
            if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
                raise nvml.NVMLError(codes.NOT_SUPPORTED)
            self._older, self._newer = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
        self._older, self._newer = self._newer, self._older
        nvml.nvmlGpmSampleGet(handle, self._newer)
        if not self._has_sample:
            self._has_sample = True
            return {}
        return self._compare(nvml)

    def _compare(self, nvml: Any) -> dict[str, Answer]:
        request = self._request
        if request is None:
            self._request = request = nvml.c_nvmlGpmMetricsGet_t()
            request.version = nvml.NVML_GPM_METRICS_GET_VERSION
            request.numMetrics = len(_IDS)
            for i, constant in enumerate(_IDS.values()):
                request.metrics[i].metricId = getattr(nvml, constant)
            self._metrics = [
                (name, name.endswith("_pct"), request.metrics[i]) for i, name in enumerate(_IDS)
            ]
        request.sample1, request.sample2 = self._older, self._newer
        try:
            nvml.nvmlGpmMetricsGet(request)
        except nvml.NVMLError as error:
            self._misfits += 1
            if error.value != codes.INVALID_ARGUMENT or self._misfits >= _MISFITS:
                raise
            return {}
        self._misfits = 0
        answers: dict[str, Answer] = {}
        for name, is_share, metric in self._metrics:
            value: float = member(metric, "value")
            if code := member(metric, "nvmlReturn"):
                answers[name] = nvml.NVMLError(code)
            elif not is_share:
                answers[name] = value * _BYTES_PER_MIB
            else:
                answers[name] = 100.0 if 100.0 < value <= 100.0 + _ROUNDING_PCT else value
        return answers
