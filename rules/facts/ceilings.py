"""The ceilings of a device: bytes a second of its memory, operations a second of each data type.

A ceiling is measured (`gpuadvisor bench-device`) or theoretical, which no program quite reaches.
Theoretical figures are dense: with structured sparsity data sheets promise twice as much.

Memory: 2 transfers a clock x bus width, as NVML and Nsight Systems give both; this equals the data
sheets of A100, H100, T4, L4, A40, RTX 4090 and RTX 5090. Arithmetic: SMs x clock x operations an
SM does in a clock, a multiplication and an addition counting as two. PCIe: what copies of pinned
memory reach on GPUs of a generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuadvisor.domain.ceiling import Ceiling
from gpuadvisor.domain.profile import DeviceLimits, Direction, Memory
from gpuadvisor.rules.facts import gpu_specs
from gpuadvisor.rules.facts.gpu_specs import Capability

if TYPE_CHECKING:  # it loads numpy
    from gpuadvisor.rules.facts.device_work import DeviceWork

DRAM = "dram"
"""Bytes read and written a second; measured by a copy within the device."""
DRAM_ADD = "dram_add"
"""Bytes read and written a second, measured by adding two buffers."""
OF_DTYPE = {
    "float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "int8": "int8",
    "float8_e4m3fn": "fp8", "float8_e5m2": "fp8",
}  # fmt: skip
"""torch's names of types to the ceilings of their arithmetic; `fp32` is that without tensor
cores."""
BYTES_PER_S = "bytes/s"
TRANSFERS_PER_CLOCK = 2

_GEFORCE_HALVES = ("fp16", "bf16", "tf32", "fp8")
_AT_BOOST_CLOCK = ("fp32", "fp64", "fp64_tensor")
"""Data sheets give these at the highest clock, the other types at the tensor cores' clock."""

# Operations an SM does in a clock. `fp32` and `fp64` are those outside of tensor cores; all others
# are tensor cores with 32-bit accumulation. A type that is not named does not exist or is not
# known. Sources: papers on the architectures of V100, TU102, A100, GA102, AD102, H100 and GB202;
# 10.0: data sheet of the HGX B200, and 8 bits also from `proton/specs.py` of Triton.
OPERATIONS_PER_CLOCK: Mapping[Capability, Mapping[str, int]] = {
    (7, 0): {"fp16": 1024, "fp32": 128, "fp64": 64},
    (7, 5): {"fp16": 1024, "int8": 2048, "fp32": 128, "fp64": 4},
    (8, 0): {
        "fp16": 2048, "bf16": 2048, "tf32": 1024, "int8": 4096,
        "fp32": 128, "fp64": 64, "fp64_tensor": 128,
    },
    (8, 6): {"fp16": 1024, "bf16": 1024, "tf32": 512, "int8": 2048, "fp32": 256, "fp64": 4},
    (8, 9): {
        "fp16": 1024, "bf16": 1024, "tf32": 512, "fp8": 2048, "int8": 2048,
        "fp32": 256, "fp64": 4,
    },
    (9, 0): {
        "fp16": 4096, "bf16": 4096, "tf32": 2048, "fp8": 8192, "int8": 8192,
        "fp32": 256, "fp64": 128, "fp64_tensor": 256,
    },
    (10, 0): {
        "fp16": 8192, "bf16": 8192, "tf32": 4096, "fp8": 16384, "int8": 16384, "fp4": 32768,
        "fp32": 256, "fp64": 128, "fp64_tensor": 128,
    },
    (12, 0): {
        "fp16": 1024, "bf16": 1024, "tf32": 512, "fp8": 2048, "int8": 2048, "fp4": 4096,
        "fp32": 256, "fp64": 4,
    },
}  # fmt: skip
UNVERIFIED = frozenset(
    {((10, 0), kind) for kind in ("tf32", "int8", "fp4", "fp32", "fp64", "fp64_tensor")}
    | {((12, 0), kind) for kind in ("tf32", "fp8", "int8", "fp4", "fp32", "fp64")}
)
"""Computed from data sheets and not seen to be reached; the source of the ceiling says so."""


@dataclass(frozen=True)
class Peak:
    """The most that a device does of one thing."""

    value: float
    unit: str
    """`bytes/s`, `flop/s` or `op/s`; of a measured one also `1/s` and `s`."""
    source: str
    """How the figure came about, in words."""
    measured: str | None = None
    """Time of the measurement (UTC, ISO 8601); None for a theoretical ceiling."""

    @property
    def is_measured(self) -> bool:
        return self.measured is not None


@dataclass(frozen=True)
class Ceilings:
    """The ceilings of a device, by quantity: `dram`, `fp32`, `bf16`, `fp64_tensor`, ..."""

    device: str
    """Name of the device."""
    by_quantity: Mapping[str, Peak] = field(default_factory=dict)

    def get(self, quantity: str) -> Peak | None:
        """Return a ceiling, or None where it is not known."""
        return self.by_quantity.get(quantity)

    def values(self) -> dict[str, float]:
        """Return the value of each ceiling, by quantity."""
        return {quantity: peak.value for quantity, peak in self.by_quantity.items()}

    def preferring(self, measured: Mapping[str, Ceiling]) -> Ceilings:
        """Return these with measured ones, by quantity, in place of theoretical ones."""
        found = {
            name: Peak(each.value, each.unit, "gpuadvisor bench-device", each.measured)
            for name, each in measured.items()
            if each.value > 0
        }
        memory = [found[name] for name in (DRAM, DRAM_ADD) if name in found]
        if memory:  # whichever way of copying is the faster one
            found[DRAM] = max(memory, key=lambda peak: peak.value)
        return Ceilings(self.device, {**self.by_quantity, **found})


def theoretical(
    device: DeviceLimits, memory_clock_hz: float | None = None, bus_width_bits: int | None = None
) -> Ceilings:
    """Return what a device could do at best; what cannot be known of it is left out.

    The highest memory clock and the bus width are NVML's; the device's own bandwidth, else its
    name, stands in for them.
    """
    found: dict[str, Peak] = {}
    memory = _memory(device, memory_clock_hz, bus_width_bits)
    if memory is not None:
        found[DRAM] = memory
    for kind, rate in operations_per_clock(device.name, device.compute_capability).items():
        if (ceiling := _arithmetic(device, kind, rate)) is not None:
            found[kind] = ceiling
    return Ceilings(device.name, found)


def operations_per_clock(name: str, capability: Capability | None) -> dict[str, int]:
    """Return the operations that an SM of this GPU does in a clock, by type."""
    rates = dict(OPERATIONS_PER_CLOCK.get(capability, {})) if capability else {}
    if gpu_specs.lacks_tensor_cores(name):
        return {kind: rate for kind, rate in rates.items() if kind in _AT_BOOST_CLOCK}
    halved: Iterable[str] = _GEFORCE_HALVES if gpu_specs.halves_tensor_cores(name) else ()
    halved = (*halved, "int8") if gpu_specs.halves_integers(name) else halved
    return {kind: rate // 2 if kind in halved else rate for kind, rate in rates.items()}


def _memory(
    device: DeviceLimits, clock_hz: float | None, bus_width_bits: int | None
) -> Peak | None:
    if clock_hz and bus_width_bits:
        value = TRANSFERS_PER_CLOCK * clock_hz * bus_width_bits / 8
        source = f"2 x {clock_hz / 1e6:,.0f} MHz x {bus_width_bits:,} bits"
        return Peak(value, BYTES_PER_S, source)
    if (given := device.memory_bandwidth_bytes_per_s) is not None and given > 0:
        return Peak(given, BYTES_PER_S, "as the profiler reports it")
    spec = gpu_specs.gpu_spec(device.name)
    if spec is None:
        return None
    return Peak(spec.memory_gb_per_s * 1e9, BYTES_PER_S, f"data sheet of {device.name}")


def _arithmetic(device: DeviceLimits, kind: str, rate: int) -> Peak | None:
    spec = gpu_specs.gpu_spec(device.name)
    count = device.sm_count or (spec.sm_count if spec else None)
    clock_hz = _clock_hz(device, spec, kind)
    if not count or not clock_hz or count < 0 or clock_hz < 0:
        return None
    source = f"{count} SMs x {rate:,} a clock x {clock_hz / 1e6:,.0f} MHz"
    if spec is not None:
        source += " (data sheet's clock)"
    if (device.compute_capability, kind) in UNVERIFIED:
        source += "; not verified"
    unit = "op/s" if kind.startswith("int") else "flop/s"
    return Peak(count * rate * clock_hz, unit, source)


def _clock_hz(device: DeviceLimits, spec: gpu_specs.GpuSpec | None, kind: str) -> float | None:
    if spec is None:
        return device.clock_hz
    if kind in _AT_BOOST_CLOCK or spec.tensor_mhz is None:
        return spec.boost_mhz * 1e6
    return spec.tensor_mhz * 1e6


PINNED_BYTES_PER_S = (
    ((9, 0), 53e9),  # PCIe 5 x16: 53.6 GB/s with pinned memory on an H100 (268 MB a copy)
    ((8, 0), 24e9),  # PCIe 4 x16: 24.1 GB/s on an A100 (CloverLeaf's larger copies)
    ((7, 0), 12e9),  # PCIe 3 x16: 12 to 13 GB/s (bandwidthTest on V100 and T4)
)
"""The least compute capability of products with a link, and the bytes a second that copies reach on
it, not its rate."""
LARGE_BYTES = 1 << 20
"""Smaller copies take longer to begin than to move at these rates."""


LEAST_OF_LINK = 0.5
"""Least share of the rate that pinned memory usually has: virtual machines and distant sockets have
less. [own]"""


def pinned_bandwidth(work: DeviceWork, device: DeviceLimits | None) -> float | None:
    """Return the bytes a second of a copy of pinned memory: as this profile's own copies show it
    or as GPUs of this generation have it, whichever is more; None where nothing tells."""
    seen, capability = _fastest_pinned_copy(work), None
    if device is not None:
        capability = device.compute_capability or gpu_specs.capability(device.name)
    usual = next((rate for least, rate in PINNED_BYTES_PER_S if (capability or (0, 0)) >= least), 0)
    return max(seen, usual) or None


def _fastest_pinned_copy(work: DeviceWork) -> float:
    columns = work.copies
    pinned = (columns["source"] == Memory.PINNED) | (columns["destination"] == Memory.PINNED)
    towards = (columns["direction"] == Direction.HOST_TO_DEVICE) | (
        columns["direction"] == Direction.DEVICE_TO_HOST
    )
    duration = work.duration_ns[work.kernels :]
    large = pinned & towards & (columns["bytes"] >= LARGE_BYTES) & (duration > 0)
    return float((columns["bytes"][large] / duration[large]).max(initial=0.0) * 1e9)
