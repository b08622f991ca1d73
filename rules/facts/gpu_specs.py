"""What each compute capability and each GPU product holds: limits of an SM, clocks, bandwidth.

Architectures (7.0 to 12.1): CUDA C++ Programming Guide 13, "Technical Specifications per Compute
Capability" (warps, threads, registers, shared memory) and `cuda_occupancy.h` of CUDA 13 (blocks,
granules, carve-outs, barriers, virtual resources). Warps and shared memory of 10.1, 10.3, 11.0 and
12.1 come from the guide alone; the others were also seen in what drivers and profilers report.

Products: NVIDIA's data sheets and architecture papers. They stand in for a profile that names no
clocks, and tell what only the name tells. Where a data sheet's figure for tensor cores follows
from a lower clock than the highest one, both clocks are kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from gpuadvisor.domain.profile import DeviceLimits
from gpuadvisor.errors import UsageError

KIB = 1024
WARP_THREADS = 32
MAX_THREADS_PER_BLOCK = 1024
MAX_REGISTERS_PER_THREAD = 255
"""Most registers of a thread in the instruction set; `cuda_occupancy.h` lets 256 pass."""

_ABSURD = 1 << 30
"""A number above what any SM has of anything, which only a damaged file holds."""

Capability = tuple[int, int]
CapabilityLike = tuple[int, int] | str | float
"""(9, 0), "9.0" or 9.0."""

_VOLTA = (0, 8, 16, 32, 64, 96)
_TURING = (32, 64)
_AMPERE = (0, 8, 16, 32, 64, 100, 132, 164)
_SMALL = (0, 8, 16, 32, 64, 100)
_HOPPER = (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)


@dataclass(frozen=True)
class Architecture:
    """The limits of one compute capability that occupancy depends on."""

    compute_capability: Capability
    name: str
    max_warps: int
    """Most warps resident on an SM."""
    max_blocks: int
    """Most blocks resident on an SM."""
    shared_bytes_per_block: int
    """Shared memory of a block with opt-in; without it a block gets at most 48 KiB."""
    carveouts_bytes: tuple[int, ...]
    """Sizes that the shared memory of an SM can be set to, the largest last."""
    shared_granule_bytes: int = 128
    shared_reserved_bytes: int = KIB
    """What the driver takes from every block."""
    barriers: int | None = None
    """Barriers of an SM; None where they never limit (before 9.0)."""
    virtual_resources: int | None = None
    """Virtual resources of an SM; None where there are none (before 10.0)."""
    registers: int = 65536
    """Registers of an SM, in 4 equal parts."""
    registers_per_block: int = 65536
    register_granule: int = 256
    """Registers are given to a warp in multiples of this."""
    sub_partitions: int = 4

    @property
    def shared_bytes(self) -> int:
        """Shared memory of an SM at its largest carve-out."""
        return self.carveouts_bytes[-1]

    def with_limits(self, limits: DeviceLimits) -> Architecture:
        """Return the same with what a device says of itself; what it does not say stays."""
        changes: dict[str, int | tuple[int, ...]] = {}
        if threads := _given(limits.threads_per_multiprocessor):
            changes["max_warps"] = max(1, threads // WARP_THREADS)
        if registers := _given(limits.registers_per_multiprocessor):
            changes["registers"] = registers
            changes["registers_per_block"] = min(registers, self.registers_per_block)
        if shared := _given(limits.shared_bytes_per_multiprocessor):
            smaller = tuple(size for size in self.carveouts_bytes if size < shared)
            changes["carveouts_bytes"] = (*smaller, shared)
            changes["shared_bytes_per_block"] = shared - self.shared_reserved_bytes
        if block := _given(limits.shared_bytes_per_block):
            changes["shared_bytes_per_block"] = block
        return replace(self, **changes) if changes else self  # type: ignore[arg-type]


def _make(
    capability: Capability,
    name: str,
    warps_blocks: tuple[int, int],
    carveouts_kib: tuple[int, ...],
    per_block_kib: int,
    barriers: int | None = None,
) -> Architecture:
    before_ampere = capability < (8, 0)
    return Architecture(
        capability,
        name,
        *warps_blocks,
        shared_bytes_per_block=per_block_kib * KIB,
        carveouts_bytes=tuple(size * KIB for size in carveouts_kib),
        shared_granule_bytes=256 if before_ampere else 128,
        shared_reserved_bytes=0 if before_ampere else KIB,
        barriers=barriers,
        virtual_resources=128 if capability >= (10, 0) else None,
    )


ARCHITECTURES: dict[Capability, Architecture] = {
    made.compute_capability: made
    for made in (
        # capability, name, (warps, blocks), carve-outs and largest block in KiB, barriers
        _make((7, 0), "Volta", (64, 32), _VOLTA, 96),
        _make((7, 2), "Volta (Xavier)", (64, 32), _VOLTA, 96),
        _make((7, 5), "Turing", (32, 16), _TURING, 64),
        _make((8, 0), "Ampere (A100)", (64, 32), _AMPERE, 163),
        _make((8, 6), "Ampere", (48, 16), _SMALL, 99),
        _make((8, 7), "Ampere (Orin)", (48, 16), _AMPERE, 163),
        _make((8, 9), "Ada", (48, 24), _SMALL, 99),
        _make((9, 0), "Hopper", (64, 32), _HOPPER, 227, 64),
        _make((10, 0), "Blackwell (B200)", (64, 32), _HOPPER, 227, 64),
        _make((10, 1), "Blackwell (Thor, before CUDA 13)", (48, 24), _HOPPER, 227, 24),
        _make((10, 3), "Blackwell (B300)", (64, 32), _HOPPER, 227, 32),
        _make((11, 0), "Blackwell (Thor)", (48, 24), _HOPPER, 227, 24),
        _make((12, 0), "Blackwell (GeForce, RTX PRO)", (48, 24), _SMALL, 99, 24),
        _make((12, 1), "Blackwell (GB10)", (48, 24), _SMALL, 99, 24),
    )
}


def architecture(capability: CapabilityLike, limits: DeviceLimits | None = None) -> Architecture:
    """Return the limits of a compute capability, overridden by what a device says of itself.

    Raises UsageError for one that is not in the table.
    """
    found = ARCHITECTURES.get(parse_capability(capability))
    if found is None:
        known = ", ".join(f"{major}.{minor}" for major, minor in ARCHITECTURES)
        raise UsageError(
            f"compute capability {_shown(capability)} is not known: give one of {known}"
        )
    return found if limits is None else _limited(found, limits)


def parse_capability(capability: CapabilityLike) -> Capability:
    """Return (9, 0) for (9, 0), "9.0" or 9.0; UsageError for what is none."""
    if isinstance(capability, tuple) and len(capability) == 2:
        return int(capability[0]), int(capability[1])
    match = re.fullmatch(r"(\d{1,3})\.(\d)", str(capability).strip())
    if match is None:
        raise UsageError(
            f"{_shown(capability)} is no compute capability: write it as 9.0 (an H100 has it)"
        )
    return int(match[1]), int(match[2])


@lru_cache(maxsize=64)
def _limited(found: Architecture, limits: DeviceLimits) -> Architecture:
    return found.with_limits(limits)


def _given(value: int | None) -> int:
    """Return what a device says, 0 where it cannot be so."""
    return value if value is not None and 0 < value < _ABSURD else 0


def _shown(capability: CapabilityLike) -> str:
    return ".".join(map(str, capability)) if isinstance(capability, tuple) else str(capability)


@dataclass(frozen=True)
class GpuSpec:
    """A GPU product."""

    pattern: str
    """Pattern of the name that the driver gives; the first entry of the list that matches
    counts."""
    sm_count: int
    boost_mhz: int
    memory_gb_per_s: float
    """10^9 bytes."""
    tensor_mhz: int | None = None
    """Clock of the data sheet's tensor core figures, where it is not the boost clock."""


GPU_SPECS = (
    GpuSpec(r"V100-(?:SXM2|DGXS)", 80, 1530, 898),
    GpuSpec(r"V100-SXM3", 80, 1597, 981),
    GpuSpec(r"V100S", 80, 1597, 1134),
    GpuSpec(r"V100-PCIE|V100-FHHL", 80, 1380, 898),
    GpuSpec(r"\bT4\b", 40, 1590, 320),
    GpuSpec(r"A100.*80GB PCIe|A100-PCIE-80GB", 108, 1410, 1935),
    GpuSpec(r"A100.*80GB", 108, 1410, 2039),
    GpuSpec(r"A100", 108, 1410, 1555),
    GpuSpec(r"\bA30\b", 56, 1440, 933),
    GpuSpec(r"\bA10G\b", 80, 1710, 600),
    GpuSpec(r"\bA10\b", 72, 1695, 600),
    GpuSpec(r"\bA40\b", 84, 1740, 696),
    GpuSpec(r"RTX A6000", 84, 1800, 768),
    GpuSpec(r"RTX 3090 Ti", 84, 1860, 1008),
    GpuSpec(r"RTX 3090", 82, 1695, 936),
    GpuSpec(r"RTX 4090(?! D| Laptop)", 128, 2520, 1008),
    GpuSpec(r"\bL4\b", 58, 2040, 300),
    GpuSpec(r"\bL40S\b", 142, 2520, 864),
    GpuSpec(r"\bL40\b", 142, 2490, 864),
    GpuSpec(r"RTX 6000 Ada", 142, 2505, 960),
    GpuSpec(r"H100 PCIe", 114, 1755, 2039, tensor_mhz=1620),
    GpuSpec(r"H100 NVL", 132, 1785, 3938, tensor_mhz=1545),
    GpuSpec(r"H100.*HBM3|H100 SXM", 132, 1980, 3352, tensor_mhz=1830),
    GpuSpec(r"H200 NVL", 132, 1785, 4800, tensor_mhz=1545),
    GpuSpec(r"\bH200\b", 132, 1980, 4800, tensor_mhz=1830),
    GpuSpec(r"\bB200\b", 148, 1965, 8000, tensor_mhz=1850),
    GpuSpec(r"RTX 5090(?! D| Laptop)", 170, 2407, 1792),
)

_CAPABILITIES = (
    (r"V100|TITAN V\b", (7, 0)),
    (r"GB10\b|DGX SPARK", (12, 1)),
    (r"RTX PRO|RTX 50\d\d", (12, 0)),
    (r"THOR", (11, 0)),
    (r"B300", (10, 3)),
    (r"B[12]00", (10, 0)),
    (r"H[128]00\b|H20\b", (9, 0)),
    (r"L4\b|L20\b|L40S?\b|RTX 40\d\d|RTX \d000 ADA", (8, 9)),
    (r"ORIN", (8, 7)),
    (r"A100|A800|A30\b", (8, 0)),
    (r"\bA2\b|A10G?\b|A16\b|A40\b|RTX A\d000|RTX 30\d\d", (8, 6)),
    (r"\bT4\b|RTX 20\d\d|TITAN RTX|QUADRO RTX|GTX 16\d\d", (7, 5)),
    (r"XAVIER", (7, 2)),
)
"""Names in capitals, and the compute capability (developer.nvidia.com/cuda-gpus)."""


def capability(name: str) -> Capability | None:
    """Return the compute capability of a GPU by its name or a part of it, such as `h100`."""
    words = " ".join(name.upper().split())
    found = (cc for pattern, cc in _CAPABILITIES if re.search(pattern, words))
    return next(found, None)


LEAST_SM_COUNTS = {(7, 0): 80, (8, 0): 56, (9, 0): 78}
"""Fewest SMs of a whole GPU of these compute capabilities, which only chips for data centres have:
V100, A30 and H20 (NVIDIA's data sheets)."""


MOST_SM_COUNT = 256
"""More SMs than any GPU has that Nsight Compute can count: up to 188 (RTX PRO 6000). [own]"""


def gpu_spec(name: str) -> GpuSpec | None:
    """Return what is known of a GPU of this name; None for a part of one (MIG), or an unknown."""
    if "MIG" in name:
        return None
    return next((each for each in GPU_SPECS if re.search(each.pattern, name, re.IGNORECASE)), None)


def sm_counts(name: str) -> tuple[int, ...]:
    """Return the SMs of the products that a name, such as `H200` or `h100`, may stand for, the
    fewest first; empty where none of them is known.
    """
    spec, words = gpu_spec(name), " ".join(name.upper().split())
    if spec is not None:
        return (spec.sm_count,)
    if not words or "MIG" in words:
        return ()
    return tuple(sorted({each.sm_count for each in GPU_SPECS if words in each.pattern.upper()}))


def halves_tensor_cores(name: str) -> bool:
    """Say whether 16-bit and smaller floats run at half the rate of the chip's other products.

    GeForce does when it accumulates in 32 bits (architecture papers of Turing to Blackwell,
    appendix A), and so do the A10G and the L40 (data sheets: 70 and 181 TFLOP/s).
    """
    return "GeForce" in name or halves_integers(name)


def halves_integers(name: str) -> bool:
    """Say whether INT8 runs at half the rate too (data sheets: 140 and 362 TOP/s)."""
    return re.search(r"\bA10G\b|\bL40\b", name) is not None


def lacks_tensor_cores(name: str) -> bool:
    """Say whether the chip is a Turing without tensor cores (TU116, TU117)."""
    return (
        re.search(r"GTX 16|MX4[35]0|MX550|Quadro T\d|\bT(?:4|5|6|10|12)00\b|\bT550\b", name)
        is not None
    )
