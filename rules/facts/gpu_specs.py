"""GPUs by name: what a profile that names no clocks leaves out, and what only the name tells.

Sources: NVIDIA's data sheets and architecture papers of each product. Where a data sheet's figure
for tensor cores follows from a lower clock than the highest one, both clocks are kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuadvisor.rules.facts.architectures import Capability


@dataclass(frozen=True)
class Board:
    """A GPU product."""

    pattern: str
    """Of its name, as the driver gives it; the first board of the list that matches counts."""
    multiprocessors: int
    boost_mhz: int
    memory_gb_per_s: float
    """10^9 bytes."""
    tensor_mhz: int | None = None
    """Clock of the data sheet's tensor core figures, where it is not the boost clock."""


BOARDS = (
    Board(r"V100-(?:SXM2|DGXS)", 80, 1530, 898),
    Board(r"V100-SXM3", 80, 1597, 981),
    Board(r"V100S", 80, 1597, 1134),
    Board(r"V100-PCIE|V100-FHHL", 80, 1380, 898),
    Board(r"\bT4\b", 40, 1590, 320),
    Board(r"A100.*80GB PCIe|A100-PCIE-80GB", 108, 1410, 1935),
    Board(r"A100.*80GB", 108, 1410, 2039),
    Board(r"A100", 108, 1410, 1555),
    Board(r"\bA30\b", 56, 1440, 933),
    Board(r"\bA10G\b", 80, 1710, 600),
    Board(r"\bA10\b", 72, 1695, 600),
    Board(r"\bA40\b", 84, 1740, 696),
    Board(r"RTX A6000", 84, 1800, 768),
    Board(r"RTX 3090 Ti", 84, 1860, 1008),
    Board(r"RTX 3090", 82, 1695, 936),
    Board(r"RTX 4090(?! D| Laptop)", 128, 2520, 1008),
    Board(r"\bL4\b", 58, 2040, 300),
    Board(r"\bL40S\b", 142, 2520, 864),
    Board(r"\bL40\b", 142, 2490, 864),
    Board(r"RTX 6000 Ada", 142, 2505, 960),
    Board(r"H100 PCIe", 114, 1755, 2039, tensor_mhz=1620),
    Board(r"H100 NVL", 132, 1785, 3938, tensor_mhz=1545),
    Board(r"H100.*HBM3|H100 SXM", 132, 1980, 3352, tensor_mhz=1830),
    Board(r"H200 NVL", 132, 1785, 4800, tensor_mhz=1545),
    Board(r"\bH200\b", 132, 1980, 4800, tensor_mhz=1830),
    Board(r"\bB200\b", 148, 1965, 8000, tensor_mhz=1850),
    Board(r"RTX 5090(?! D| Laptop)", 170, 2407, 1792),
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


def board(name: str) -> Board | None:
    """Return what is known of a GPU of this name; None for a part of one (MIG), or an unknown."""
    if "MIG" in name:
        return None
    return next((each for each in BOARDS if re.search(each.pattern, name)), None)


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
