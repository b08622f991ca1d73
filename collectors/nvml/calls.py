"""The table of calls that fill the GPU metrics: which functions of NVML are asked, newest first.

A new value of the driver is a line here and a `Metric` in `domain/metrics.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import byref, c_uint, c_ulonglong
from dataclasses import dataclass
from typing import Any

from gpuadvisor.collectors.nvml import codes
from gpuadvisor.collectors.nvml.codes import PENDING, Answer, member
from gpuadvisor.collectors.nvml.gpm import Gpm
from gpuadvisor.collectors.nvml.pcie_throughput import PcieThroughput
from gpuadvisor.domain.metrics import BY_NAME, SamplingInterval
from gpuadvisor.domain.telemetry import Number

_BYTES_PER_KIB = 1024
_US_PER_S = 1_000_000
_NS_PER_S = 1_000_000_000
_ALL_LINKS = 0xFFFFFFFF
"""Scope of the NVLink throughput fields that means the sum over all links (nvml.h)."""
_UNION_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of a field value's union, in the order of `nvmlValueType_t`."""


@dataclass(slots=True)
class DeviceHandle:
    """A GPU, or a MIG instance, as long as its handle is good."""

    handle: Any
    """An `nvmlDevice_t`."""
    uuid: str
    gpm: Gpm
    pcie: PcieThroughput
    """The counter of PCIe bytes, which all GPUs share."""


Way = Callable[[Any, DeviceHandle], Sequence[Answer]]
"""`way(pynvml, device)` returns an answer for each metric, in their order, in NVML's units. It
raises NVMLError, or AttributeError where nvidia-ml-py is too old."""


class Call:
    """What one call to the driver fills, and the ways to make that call."""

    def __init__(
        self,
        metrics: str | tuple[str, ...],
        *ways: Way | Callable[[], Way],
        divisors: int | tuple[int, ...] = 1,
        for_instances: bool = False,
    ) -> None:
        """`metrics`: names, the fast ones first. `ways`: newest first; a class is made an instance
        of for each GPU, and keeps what it must. `divisors`: from NVML's unit to the metric's, one
        for all or one for each. `for_instances`: whether the driver also offers it for MIG
        instances.
        """
        self.metrics = (metrics,) if isinstance(metrics, str) else metrics
        self.ways = ways
        if isinstance(divisors, int):
            divisors = (divisors,) * len(self.metrics)
        self.divisors = divisors
        self.for_instances = for_instances

    @property
    def interval(self) -> SamplingInterval:
        """The sampling interval of the fastest of the metrics."""
        return min((BY_NAME[name].interval for name in self.metrics), key=lambda one: one.period_s)

    @property
    def fast_metrics(self) -> int:
        """How many metrics are read with every frame, whole or not."""
        return sum(BY_NAME[name].interval is SamplingInterval.FAST for name in self.metrics)


def get(function: str, *constants: str, members: Sequence[str | None] = ()) -> Way:
    """Return the way that calls `nvmlDeviceGet<function>(handle, *constants)`.

    The constants are named as in pynvml. The answer is the result itself, or these members of it;
    None for what that structure does not have.
    """
    function = f"nvmlDeviceGet{function}"
    named: list[Any] = []
    """The function and its constants, once they were looked up: each is asked once a second."""

    def way(nvml: Any, device: DeviceHandle) -> Sequence[Answer]:
        if not named:
            named[:] = [getattr(nvml, each) for each in (function, *constants)]
        result = named[0](device.handle, *named[1:])
        if not members:
            return (result,)
        return [member(result, name) if name else None for name in members]

    return way


def number(
    function: str, *constants: str, answer: type[c_uint | c_ulonglong] = c_uint, unused: int = 0
) -> Way:
    """Return the way that calls `nvmlDeviceGet<function>(handle, *constants, &number)`, past
    nvidia-ml-py's own way, which takes three times as long: for what is asked once a second.

    `answer` is the number's type in nvml.h; after it come pointers to `unused` others.
    """
    function = f"nvmlDeviceGet{function}"
    result = answer()
    library: Any = None
    """The library that `ask` is of: the sampler loads another one after an upgrade."""
    ask: Callable[..., int]
    arguments: tuple[Any, ...]

    def way(nvml: Any, device: DeviceHandle) -> Sequence[Answer]:
        nonlocal library, ask, arguments
        if nvml.nvmlLib is not library:
            ask = getattr(nvml.nvmlLib, function)
            given = [c_uint(getattr(nvml, each)) for each in constants]
            arguments = (*given, byref(result), *(byref(c_uint()) for _ in range(unused)))
            library = nvml.nvmlLib
        if code := ask(device.handle, *arguments):
            raise nvml.NVMLError(code)
        return (result.value,)

    return way


def get_several(function: str) -> Way:
    """Return the way that calls `nvmlDeviceGet<function>(handle)`, which answers with a sequence.

    What it has beyond the metrics of the call is ignored.
    """

    function = f"nvmlDeviceGet{function}"

    def way(nvml: Any, device: DeviceHandle) -> Sequence[Answer]:
        answers: Sequence[Answer] = getattr(nvml, function)(device.handle)
        return answers

    return way


def get_fields(*fields: str) -> Way:
    """Return the way that reads field values; they fail each for itself.

    One call takes 0.5 ms on an H100 however many it asks for.
    """
    asked = _Fields(*fields)
    return lambda nvml, device: [answer for answer, _ in asked.read(nvml, device)]


def sum_over_links(function: str, *constants: str) -> Way:
    """Return the way that adds up `nvmlDeviceGet<function>(handle, link, *constants)`."""
    function = f"nvmlDeviceGet{function}"

    def way(nvml: Any, device: DeviceHandle) -> Sequence[Answer]:
        arguments = [getattr(nvml, constant) for constant in constants]
        total = 0
        for link in range(nvml.NVML_NVLINK_MAX_LINKS):
            try:
                total += getattr(nvml, function)(device.handle, link, *arguments)
            except nvml.NVMLError as error:
                if link == 0 or error.value not in codes.OLDER_WAY:
                    raise
                break  # this GPU has no more
        return (total,)

    return way


def _memory(*constants: str, reserved: str | None = None) -> Way:
    """Return the way to memory in use, free and reserved; no value where more is in use than there
    is, as a GPU tells that fails."""
    info = get("MemoryInfo", *constants, members=("used", "free", reserved, "total"))

    def way(nvml: Any, device: DeviceHandle) -> Sequence[Answer]:
        used, free, kept, total = info(nvml, device)
        if isinstance(used, int) and isinstance(total, int) and used > total > 0:
            return (codes.NO_VALUE,) * 3
        return used, free, kept

    return way


class _Fields:
    """Field values, in structures that are made once: anew each time they take most of the call."""

    def __init__(self, *fields: str, scope: int = 0) -> None:
        """`fields` are names as in `NVML_FI_DEV_<field>`, `scope` that of all, such as a link."""
        self._names = fields
        self._scope = scope
        self._library: Any = None

    def read(self, nvml: Any, device: DeviceHandle) -> list[tuple[Number | Exception, int]]:
        """Return for each field its value, or an NVMLError, and the Unix time of it in us.

        Raises NVMLError where the whole call fails.
        """
        if nvml.nvmlLib is not self._library:
            self._ask = nvml.nvmlLib.nvmlDeviceGetFieldValues
            self._array = (nvml.c_nvmlFieldValue_t * len(self._names))()
            self._fields = [(field, field.value) for field in self._array]
            for (field, _), name in zip(self._fields, self._names, strict=True):
                field.fieldId = getattr(nvml, f"NVML_FI_DEV_{name}")
                field.scopeId = self._scope
            self._library = nvml.nvmlLib
        if code := self._ask(device.handle, len(self._names), self._array):
            raise nvml.NVMLError(code)
        return [
            (
                nvml.NVMLError(code)
                if (code := member(field, "nvmlReturn"))
                else member(value, _UNION_MEMBERS[member(field, "valueType")]),
                member(field, "timestamp"),
            )
            for field, value in self._fields
        ]


_LINK_ERRORS = _Fields("NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL")
_LINK_BYTES = _Fields("NVLINK_THROUGHPUT_DATA_TX", "NVLINK_THROUGHPUT_DATA_RX", scope=_ALL_LINKS)


def _link_errors(nvml: Any, device: DeviceHandle) -> Sequence[Answer]:
    answer: Answer = _LINK_ERRORS.read(nvml, device)[0][0]
    if isinstance(answer, Exception):
        raise answer
    return (answer,)


class _LinkRates:
    """Bytes/s over NVLink from two readings of the fields that count KiB."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, int]] = []

    def __call__(self, nvml: Any, device: DeviceHandle) -> Sequence[Answer]:
        before, self._before = self._before, _LINK_BYTES.read(nvml, device)
        for value, _ in self._before:
            if isinstance(value, Exception):
                self._before = []
                raise value
        if not before:
            return PENDING, PENDING
        return [_rate(*pair) for pair in zip(before, self._before, strict=True)]


def _rate(before: tuple[Any, int], now: tuple[Any, int]) -> Answer:
    kib, time_us = now[0] - before[0], now[1] - before[1]
    if kib < 0 or time_us <= 0:
        return PENDING  # the counters began anew
    rate: float = kib * _BYTES_PER_KIB * _US_PER_S / time_us
    return rate


def _pcie_counter(nvml: Any, device: DeviceHandle) -> Sequence[Answer]:
    """Read the counter that takes 21 ms a call, on a thread of its own."""
    return device.pcie.read(nvml, device.uuid, device.handle) or (PENDING, PENDING)


_ACTIVITY = (
    "graphics_active_pct", "sm_active_pct", "sm_occupancy_pct", "tensor_active_pct",
    "fp64_active_pct", "fp32_active_pct", "fp16_active_pct", "dram_active_pct",
)  # fmt: skip
"""What happens inside the SMs, by GPM: Hopper and later."""
_PCIE_TRAFFIC = ("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s")
_NVLINK_TRAFFIC = ("nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s")


def _traffic_by_gpm(metrics: tuple[str, ...]) -> Way:
    """Return the way to traffic by GPM, which fails where GPM lacks any of the metrics here."""
    return lambda nvml, device: device.gpm.read_all_or_raise(nvml, device.handle, metrics)


def _ecc_errors(error_type: str, counter: str) -> Way:
    """Return the way to count memory errors, since the driver was loaded or in the GPU's life."""
    return get("TotalEccErrors", f"NVML_MEMORY_ERROR_TYPE_{error_type}", f"NVML_{counter}_ECC")


def _violation(policy: str) -> Way:
    """Return the way to how long, in ns, a policy held the clocks below what was wanted."""
    return get("ViolationStatus", f"NVML_PERF_POLICY_{policy}", members=("violationTime",))


CALLS = (
    Call(_ACTIVITY, lambda nvml, device: device.gpm.read(nvml, device.handle, _ACTIVITY)),
    # Clocks in MHz, why they are held down, and the performance state.
    Call("sm_clock_mhz", number("ClockInfo", "NVML_CLOCK_SM")),
    Call("memory_clock_mhz", number("ClockInfo", "NVML_CLOCK_MEM")),
    Call("sm_clock_max_mhz", get("MaxClockInfo", "NVML_CLOCK_SM")),
    Call("memory_clock_max_mhz", get("MaxClockInfo", "NVML_CLOCK_MEM")),
    Call(
        "throttle_reasons",
        number("CurrentClocksEventReasons", answer=c_ulonglong),
        number("CurrentClocksThrottleReasons", answer=c_ulonglong),  # its name before driver 535
    ),
    Call("performance_state", number("PerformanceState")),
    # Memory errors, and the rows that were replaced for them.
    Call("ecc_corrected_volatile", _ecc_errors("CORRECTED", "VOLATILE")),
    Call("ecc_uncorrected_volatile", _ecc_errors("UNCORRECTED", "VOLATILE")),
    Call("ecc_corrected_aggregate", _ecc_errors("CORRECTED", "AGGREGATE")),
    Call("ecc_uncorrected_aggregate", _ecc_errors("UNCORRECTED", "AGGREGATE")),
    Call(
        ("remapped_rows_corrected", "remapped_rows_uncorrected", "remap_pending", "remap_failed"),
        get_several("RemappedRows"),
    ),
    Call("fan_pct", get("FanSpeed")),  # may be above 100; boards without a fan do not have it
    Call(
        ("power_instant_w", "memory_temperature_c"),
        get_fields("POWER_INSTANT", "MEMORY_TEMP"),
        divisors=(1000, 1),
    ),
    # The second version of the structure says what the driver keeps for itself; in the first one
    # that is a part of what is in use.
    Call(
        ("memory_used_bytes", "memory_free_bytes", "memory_reserved_bytes"),
        _memory("nvmlMemory_v2", reserved="reserved"),
        _memory(),
        for_instances=True,
    ),
    Call("memory_total_bytes", get("MemoryInfo", members=("total",)), for_instances=True),
    # NVLink: how many links are up, packets with a wrong checksum, and traffic.
    Call("nvlink_links", sum_over_links("NvLinkState")),
    Call(
        "nvlink_errors",
        _link_errors,
        sum_over_links("NvLinkErrorCounter", "NVML_NVLINK_ERROR_DL_CRC_FLIT"),
    ),
    Call(_NVLINK_TRAFFIC, _traffic_by_gpm(_NVLINK_TRAFFIC), _LinkRates),
    # The PCIe link now and at most, packets sent again, and traffic.
    Call("pcie_generation", number("CurrPcieLinkGeneration")),
    Call("pcie_width", number("CurrPcieLinkWidth")),
    Call("pcie_generation_max", get("MaxPcieLinkGeneration")),
    Call("pcie_width_max", get("MaxPcieLinkWidth")),
    Call("pcie_replays", get("PcieReplayCounter")),
    Call(_PCIE_TRAFFIC, _traffic_by_gpm(_PCIE_TRAFFIC), _pcie_counter),
    # NVML counts milliwatts and millijoules. The power draw is averaged over a second from Ampere
    # (but for GA100) on; the instant one is a field, above. On A100 and H100 only a quarter of the
    # time is sampled (Yang et al., "Part-time Power Measurements", SC24), so the energy of short
    # spans is a guess.
    Call("power_w", number("PowerUsage"), divisors=1000),
    Call("energy_j", get("TotalEnergyConsumption"), divisors=1000),
    Call("power_limit_w", get("EnforcedPowerLimit"), divisors=1000),
    Call(
        "temperature_c",
        get("TemperatureV", "NVML_TEMPERATURE_GPU"),
        number("Temperature", "NVML_TEMPERATURE_GPU"),
    ),
    Call(
        "temperature_slowdown_c", get("TemperatureThreshold", "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN")
    ),
    # The share of time, not of the SMs; averaged over 1/6 to 1 s by product.
    Call(
        ("gpu_utilization_pct", "memory_utilization_pct"),
        get("UtilizationRates", members=("gpu", "memory")),
    ),
    Call("encoder_utilization_pct", number("EncoderUtilization", unused=1)),
    Call("decoder_utilization_pct", number("DecoderUtilization", unused=1)),
    Call("power_violation_s", _violation("POWER"), divisors=_NS_PER_S),
    Call("thermal_violation_s", _violation("THERMAL"), divisors=_NS_PER_S),
    Call("reliability_violation_s", _violation("RELIABILITY"), divisors=_NS_PER_S),
    Call("board_limit_violation_s", _violation("BOARD_LIMIT"), divisors=_NS_PER_S),
)
