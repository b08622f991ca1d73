"""How far the blocks of `gpuadvisor suggest-block` are from the best, on brute-forced spaces.

    python benchmarks/suggested_blocks.py SPACES    # a folder with the three files named below

Two comparisons, each with the space's median block and a textbook's beside the suggested one.
All else equal: in each setting of the other parameters, a block's time over the best block's there.
All else at its best: the fastest time with a block over the fastest of the space.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from gpuadvisor import suggest_block
from gpuadvisor.domain.kernel_records import Record
from gpuadvisor.storage.kernel_caches import read

Block = tuple[int, ...]


@dataclass(frozen=True)
class Space:
    """A recorded space whose block is a part of its parameters."""

    file: str
    sides: tuple[str, ...]
    """Parameters that are the block's sides, x first."""
    shape: tuple[int, ...]
    """The problem as numpy has it."""
    gpu: str
    sm_count: int
    element_bytes: int
    textbook: Block
    """256 threads, or the 16 x 16 of the CUDA C++ Programming Guide's matrix product."""


SPACES = (
    Space("pnpoly_RTX_3090", ("block_size_x",), (20_000_000,), "RTX 3090", 82, 8, (256,)),
    Space(
        "convolution_milo_A4000", ("block_size_x", "block_size_y"), (4096, 4096), "8.6", 48, 4,
        (16, 16),
    ),
    Space("gemm_RTX_3090", ("MDIMC", "NDIMC"), (4096, 4096), "RTX 3090", 82, 4, (16, 16)),
)  # fmt: skip


def times(record: Record, sides: tuple[str, ...]) -> Mapping[Block, dict[Block, float]]:
    """Return the time of each block in each setting of the rest; infinite where it failed."""
    found: dict[Block, dict[Block, float]] = defaultdict(dict)
    for each in record.evaluations:
        block = tuple(each.point[name] for name in sides)
        other = tuple(value for name, value in each.point.items() if name not in sides)
        found[other][block] = each.time_ms or math.inf  # type: ignore[index]
    return found  # type: ignore[return-value]


def shown(ratios: list[float]) -> str:
    """Return the median and the 90th percentile."""
    if len(ratios) < 2:
        return "-"
    return f"{median(ratios):.2f}, {quantiles(ratios, n=10)[-1]:.2f}"


def compare(space: Space, record: Record) -> None:
    """Print a row for the suggestion, the textbook's block and the median block."""
    settings = times(record, space.sides)
    suggestion = suggest_block(
        None, space.shape, gpu=space.gpu, sm_count=space.sm_count, element_bytes=space.element_bytes
    )
    suggested = suggestion.block[: len(space.sides)]
    fastest: dict[Block, float] = {}
    for blocks in settings.values():
        for block, time in blocks.items():
            fastest[block] = min(time, fastest.get(block, math.inf))
    best = min(fastest.values())
    print(f"\n{space.file}: {len(fastest)} blocks, {len(settings)} settings of the rest; "
          f"best block {min(fastest, key=lambda b: fastest[b])}")  # fmt: skip
    print("| block | settings, failed | all else equal: median, 90th percentile | at best | rank |")
    print("| --- | --- | --- | --- | --- |")
    for name, block in (("suggested", suggested), ("textbook", space.textbook)):
        ratios, failed = [], 0
        for blocks in settings.values():
            here = min(blocks.values())
            if block in blocks and math.isfinite(here):
                failed += math.isinf(blocks[block])
                if math.isfinite(blocks[block]):
                    ratios.append(blocks[block] / here)
        whole = fastest.get(block, math.inf) / best
        rank = 1 + sum(time < fastest.get(block, math.inf) for time in fastest.values())
        print(f"| {name} {' x '.join(map(str, block))} | {len(ratios) + failed}, {failed} | "
              f"{shown(ratios)} | {whole:.3f} | {rank} of {len(fastest)} |")  # fmt: skip
    middles = [
        median(finite) / min(finite)
        for blocks in settings.values()
        if (finite := [each for each in blocks.values() if math.isfinite(each)])
    ]
    middle = median(each for each in fastest.values() if math.isfinite(each)) / best
    print(f"| median block | | {shown(middles)} | {middle:.3f} | |")


def main() -> None:
    """Compare on each space."""
    for space in SPACES:
        (path,) = Path(sys.argv[1]).glob(f"{space.file}.json*")
        compare(space, read(path))


if __name__ == "__main__":
    main()
