"""Every quantity that telemetry knows, once: what it is called, its unit, and how often it is read.

The collectors fill these metrics, the store has a column for each, and the exporter, the pages
and the DataFrames take their names from here. A new metric is a new line.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class SamplingInterval(Enum):
    """How often a metric is read. What a call costs was measured on an H100 with driver 580."""

    FAST = 0.1
    """Up to 10 Hz: calls of 2 to 12 us for what changes that quickly."""
    NORMAL = 1.0
    """1 Hz: averages over a second or so, and calls below a millisecond."""
    SLOW = 10.0
    """Counters and health, some of whose calls take milliseconds (total energy: 4.4 ms)."""
    RARE = 60.0
    """Limits, which change only when somebody sets them (maximum clocks: 1.5 ms)."""

    @property
    def period_s(self) -> float:
        """The time between two readings, in seconds."""
        return self.value


class Kind(Enum):
    """What the numbers of a metric mean over time."""

    GAUGE = "gauge"
    """A level, whose mean over a minute says something."""
    COUNTER = "counter"
    """A sum since some start, of which only differences say something."""
    BITMASK = "flags"
    """A set of conditions, a bit for each."""


@dataclass(frozen=True)
class Metric:
    """One quantity of a GPU or of the machine."""

    name: str
    """Column, JSON key and DataFrame column; it ends in the unit."""
    help: str
    """What it is, for people, without a full stop."""
    unit: str
    """As shown to people: `%`, `W`, `J`, `bytes`, `bytes/s`, `MHz`, `C`, `s`, or empty."""
    interval: SamplingInterval
    kind: Kind = Kind.GAUGE
    whole: bool = False
    """Whether its values are whole numbers."""
    dcgm: str | None = None
    """The field of NVIDIA's dcgm-exporter that means the same."""
    dcgm_factor: float = 1.0
    """What our number is multiplied by to be in that field's unit."""


_MIB = 1 / 2**20
_BY_100 = 0.01

_FAST, _NORMAL, _SLOW, _RARE = SamplingInterval

GPU_METRICS: tuple[Metric, ...] = (
    # What changes within a second.
    Metric("gpu_utilization_pct", "Time in which at least one kernel ran", "%", _FAST,
           whole=True, dcgm="DCGM_FI_DEV_GPU_UTIL"),
    Metric("memory_utilization_pct", "Time in which device memory was read or written", "%",
           _FAST, whole=True, dcgm="DCGM_FI_DEV_MEM_COPY_UTIL"),
    Metric("memory_used_bytes", "Device memory in use", "bytes", _FAST, whole=True,
           dcgm="DCGM_FI_DEV_FB_USED", dcgm_factor=_MIB),
    Metric("power_w", "Power draw, averaged over up to a second", "W", _FAST,
           dcgm="DCGM_FI_DEV_POWER_USAGE"),
    Metric("sm_clock_mhz", "Clock of the SMs", "MHz", _FAST, whole=True,
           dcgm="DCGM_FI_DEV_SM_CLOCK"),
    Metric("memory_clock_mhz", "Clock of the memory", "MHz", _FAST, whole=True,
           dcgm="DCGM_FI_DEV_MEM_CLOCK"),
    Metric("throttle_reasons", "Why the clocks are held down (NVML's clocks event reasons)", "",
           _FAST, Kind.BITMASK, whole=True, dcgm="DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"),
    # Levels, once a second.
    Metric("power_instant_w", "Power draw at this instant", "W", _NORMAL,
           dcgm="DCGM_FI_DEV_POWER_USAGE_INSTANT"),
    Metric("temperature_c", "Temperature of the GPU", "C", _NORMAL, whole=True,
           dcgm="DCGM_FI_DEV_GPU_TEMP"),
    Metric("memory_temperature_c", "Temperature of the memory", "C", _NORMAL, whole=True,
           dcgm="DCGM_FI_DEV_MEMORY_TEMP"),
    Metric("fan_pct", "Fan speed", "%", _NORMAL, whole=True, dcgm="DCGM_FI_DEV_FAN_SPEED"),
    Metric("performance_state", "Performance state, 0 (fastest) to 15", "", _NORMAL,
           whole=True, dcgm="DCGM_FI_DEV_PSTATE"),
    Metric("memory_free_bytes", "Device memory that is free", "bytes", _NORMAL, whole=True,
           dcgm="DCGM_FI_DEV_FB_FREE", dcgm_factor=_MIB),
    Metric("memory_reserved_bytes", "Device memory that the driver keeps for itself", "bytes",
           _NORMAL, whole=True, dcgm="DCGM_FI_DEV_FB_RESERVED", dcgm_factor=_MIB),
    Metric("encoder_utilization_pct", "Time in which the video encoder worked", "%", _NORMAL,
           whole=True, dcgm="DCGM_FI_DEV_ENC_UTIL"),
    Metric("decoder_utilization_pct", "Time in which the video decoder worked", "%", _NORMAL,
           whole=True, dcgm="DCGM_FI_DEV_DEC_UTIL"),
    Metric("pcie_generation", "PCIe generation of the link now", "", _NORMAL, whole=True,
           dcgm="DCGM_FI_DEV_PCIE_LINK_GEN"),
    Metric("pcie_width", "PCIe lanes of the link now", "", _NORMAL, whole=True,
           dcgm="DCGM_FI_DEV_PCIE_LINK_WIDTH"),
    # Inside the SMs: GPM, on Hopper and later.
    Metric("graphics_active_pct", "Time in which the graphics or compute engine worked", "%",
           _NORMAL, dcgm="DCGM_FI_PROF_GR_ENGINE_ACTIVE", dcgm_factor=_BY_100),
    Metric("sm_active_pct", "SMs with at least one warp, averaged over time and SMs", "%",
           _NORMAL, dcgm="DCGM_FI_PROF_SM_ACTIVE", dcgm_factor=_BY_100),
    Metric("sm_occupancy_pct", "Resident warps of those that fit, averaged over time and SMs", "%",
           _NORMAL, dcgm="DCGM_FI_PROF_SM_OCCUPANCY", dcgm_factor=_BY_100),
    Metric("tensor_active_pct", "Cycles in which the tensor pipe was active", "%", _NORMAL,
           dcgm="DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", dcgm_factor=_BY_100),
    Metric("fp64_active_pct", "Cycles in which the FP64 pipe was active", "%", _NORMAL,
           dcgm="DCGM_FI_PROF_PIPE_FP64_ACTIVE", dcgm_factor=_BY_100),
    Metric("fp32_active_pct", "Cycles in which the FP32 pipe was active", "%", _NORMAL,
           dcgm="DCGM_FI_PROF_PIPE_FP32_ACTIVE", dcgm_factor=_BY_100),
    Metric("fp16_active_pct", "Cycles in which the FP16 pipe was active", "%", _NORMAL,
           dcgm="DCGM_FI_PROF_PIPE_FP16_ACTIVE", dcgm_factor=_BY_100),
    Metric("dram_active_pct", "Device memory bandwidth in use, of the theoretical peak", "%",
           _NORMAL, dcgm="DCGM_FI_PROF_DRAM_ACTIVE", dcgm_factor=_BY_100),
    Metric("pcie_tx_bytes_per_s", "Bytes that the GPU sends over PCIe", "bytes/s", _NORMAL,
           dcgm="DCGM_FI_PROF_PCIE_TX_BYTES"),
    Metric("pcie_rx_bytes_per_s", "Bytes that the GPU receives over PCIe", "bytes/s", _NORMAL,
           dcgm="DCGM_FI_PROF_PCIE_RX_BYTES"),
    Metric("nvlink_tx_bytes_per_s", "Bytes that the GPU sends over NVLink", "bytes/s", _NORMAL,
           dcgm="DCGM_FI_PROF_NVLINK_TX_BYTES"),
    Metric("nvlink_rx_bytes_per_s", "Bytes that the GPU receives over NVLink", "bytes/s",
           _NORMAL, dcgm="DCGM_FI_PROF_NVLINK_RX_BYTES"),
    # Counters and health.
    Metric("energy_j", "Energy used since the driver was loaded", "J", _SLOW, Kind.COUNTER,
           dcgm="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", dcgm_factor=1000.0),
    Metric("power_violation_s", "Time below the wanted clocks for the power limit", "s",
           _SLOW, Kind.COUNTER, dcgm="DCGM_FI_DEV_POWER_VIOLATION", dcgm_factor=1e9),
    Metric("thermal_violation_s", "Time below the wanted clocks for the temperature", "s",
           _SLOW, Kind.COUNTER, dcgm="DCGM_FI_DEV_THERMAL_VIOLATION", dcgm_factor=1e9),
    Metric("reliability_violation_s", "Time below the wanted clocks for reliability", "s",
           _SLOW, Kind.COUNTER, dcgm="DCGM_FI_DEV_RELIABILITY_VIOLATION", dcgm_factor=1e9),
    Metric("board_limit_violation_s", "Time below the wanted clocks for the board's limits", "s",
           _SLOW, Kind.COUNTER, dcgm="DCGM_FI_DEV_BOARD_LIMIT_VIOLATION", dcgm_factor=1e9),
    Metric("pcie_replays", "PCIe packets sent again", "", _SLOW, Kind.COUNTER, whole=True,
           dcgm="DCGM_FI_DEV_PCIE_REPLAY_COUNTER"),
    Metric("nvlink_links", "NVLink links that are up", "", _SLOW, whole=True),
    Metric("nvlink_errors", "NVLink packets with a wrong checksum", "", _SLOW, Kind.COUNTER,
           whole=True, dcgm="DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL"),
    Metric("ecc_corrected_volatile", "Memory errors corrected since the driver was loaded", "",
           _SLOW, Kind.COUNTER, whole=True, dcgm="DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"),
    Metric("ecc_uncorrected_volatile", "Memory errors not correctable since the driver was loaded",
           "", _SLOW, Kind.COUNTER, whole=True, dcgm="DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"),
    Metric("ecc_corrected_aggregate", "Memory errors corrected in the GPU's life", "", _SLOW,
           Kind.COUNTER, whole=True, dcgm="DCGM_FI_DEV_ECC_SBE_AGG_TOTAL"),
    Metric("ecc_uncorrected_aggregate", "Memory errors not correctable in the GPU's life", "",
           _SLOW, Kind.COUNTER, whole=True, dcgm="DCGM_FI_DEV_ECC_DBE_AGG_TOTAL"),
    Metric("remapped_rows_corrected", "Memory rows replaced after correctable errors", "",
           _SLOW, Kind.COUNTER, whole=True, dcgm="DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS"),
    Metric("remapped_rows_uncorrected", "Memory rows replaced after errors not correctable", "",
           _SLOW, Kind.COUNTER, whole=True, dcgm="DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"),
    Metric("remap_pending", "Whether rows wait for a reset to be replaced (1 or 0)", "",
           _SLOW, whole=True, dcgm="DCGM_FI_DEV_ROW_REMAP_PENDING"),
    Metric("remap_failed", "Whether replacing a row has failed (1 or 0)", "", _SLOW,
           whole=True, dcgm="DCGM_FI_DEV_ROW_REMAP_FAILURE"),
    # Limits.
    Metric("memory_total_bytes", "Device memory", "bytes", _RARE, whole=True,
           dcgm="DCGM_FI_DEV_FB_TOTAL", dcgm_factor=_MIB),
    Metric("power_limit_w", "Power limit in force", "W", _RARE,
           dcgm="DCGM_FI_DEV_ENFORCED_POWER_LIMIT"),
    Metric("temperature_slowdown_c", "Temperature at which the clocks are cut", "C", _RARE,
           whole=True, dcgm="DCGM_FI_DEV_SLOWDOWN_TEMP"),
    Metric("sm_clock_max_mhz", "Highest clock of the SMs", "MHz", _RARE, whole=True,
           dcgm="DCGM_FI_DEV_MAX_SM_CLOCK"),
    Metric("memory_clock_max_mhz", "Highest clock of the memory", "MHz", _RARE, whole=True,
           dcgm="DCGM_FI_DEV_MAX_MEM_CLOCK"),
    Metric("pcie_generation_max", "Highest PCIe generation of this GPU in this slot", "",
           _RARE, whole=True, dcgm="DCGM_FI_DEV_PCIE_MAX_LINK_GEN"),
    Metric("pcie_width_max", "Most PCIe lanes of this GPU in this slot", "", _RARE,
           whole=True, dcgm="DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH"),
)  # fmt: skip
"""Metrics of a GPU. Percentages are 0 to 100, clocks MHz, sizes bytes, temperatures Celsius."""

HOST_METRICS: tuple[Metric, ...] = (
    Metric("cpu_pct", "CPU time in use, of all cores", "%", _NORMAL),
    Metric("iowait_pct", "CPU time idle while something waits for a disk, of all cores", "%",
           _NORMAL),
    Metric("load_1m", "Processes that run or wait to, averaged over a minute", "", _NORMAL),
    Metric("host_memory_used_bytes", "Memory in use", "bytes", _NORMAL, whole=True),
    Metric("host_memory_total_bytes", "Memory", "bytes", _NORMAL, whole=True),
    Metric("swap_used_bytes", "Swap space in use", "bytes", _NORMAL, whole=True),
    Metric("disk_read_bytes_per_s", "Bytes read from disks", "bytes/s", _NORMAL),
    Metric("disk_write_bytes_per_s", "Bytes written to disks", "bytes/s", _NORMAL),
    Metric("disk_busy_pct", "Time in which the busiest disk worked", "%", _NORMAL),
    Metric("network_receive_bytes_per_s", "Bytes received, but for loopback", "bytes/s",
           _NORMAL),
    Metric("network_transmit_bytes_per_s", "Bytes sent, but for loopback", "bytes/s",
           _NORMAL),
    Metric("cpu_stall_pct", "Time in which some process waited for a core", "%", _NORMAL),
    Metric("io_stall_pct", "Time in which some process waited for a disk or the network", "%",
           _NORMAL),
    Metric("memory_stall_pct", "Time in which some process waited for memory", "%", _NORMAL),
)  # fmt: skip
"""Metrics of the machine. The stalls are the kernel's pressure figures (proc_pressure, `some`)."""

BY_NAME: dict[str, Metric] = {metric.name: metric for metric in (*GPU_METRICS, *HOST_METRICS)}

NO_KERNELS_SM_ACTIVE_PCT = 0.05
"""SM activity without kernels, in percent: an H200 counts 0.00 for a process that only holds
memory, 0.13 for kernels of some microseconds that run 4 % of the time, and 0.6 for a network that
waits for its pictures 97 % of the time, while its utilization reads 0."""
