"""Calculate how many warps of a kernel an SM can hold, what limits it, and what would raise it.

The figures are those of NVIDIA's `cuda_occupancy.h`; thread block clusters are not considered.
Exit status: 0; 1 where no GPU of that kind can launch the kernel, or none is named and none here.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpuadvisor.commands._arguments import add_json, add_kernel_on_gpu, parse_size
from gpuadvisor.errors import AdvisorError, UsageError

if TYPE_CHECKING:
    from gpuadvisor.rules.facts.gpu_specs import Architecture

EPILOG = """examples:
  gpuadvisor occupancy --cc 9.0 --regs 168 --block 384 --smem 100k
  gpuadvisor occupancy --gpu "RTX 4090" --regs 40 --block 16x16 --svg occupancy.svg
  gpuadvisor occupancy --block 256 --regs 64 --json | jq .occupancy
"""
BLOCK_SIDES = (1024, 1024, 64)
"""Most threads of a block in x, y and z, on every GPU (CUDA C++ Programming Guide)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_kernel_on_gpu(parser)
    parser.add_argument(
        "--block", metavar="N", required=True, help="threads of a block, as 256 or 16x16x1"
    )
    parser.add_argument(
        "--carveout",
        metavar="SIZE",
        help="shared memory of an SM, as 50%% or 64k (default: the most that it has)",
    )
    parser.add_argument(
        "--barriers", metavar="N", type=int, default=0, help="barriers of a block (default: 0)"
    )
    parser.add_argument("--svg", metavar="FILE", type=Path, help="write the plots to a file too")
    add_json(parser, "print the results as JSON")


def run(args: argparse.Namespace) -> int:
    from gpuadvisor.reports.kernel import occupancy as occupancy_report
    from gpuadvisor.rules.facts.gpu_specs import architecture
    from gpuadvisor.rules.facts.occupancy import LaunchConfig, fit, next_steps
    from gpuadvisor.tuning.kernels.suggesting import named_gpu

    sm = architecture(named_gpu(args.gpu)[0])
    launch = LaunchConfig(
        parse_block(args.block),
        args.regs,
        parse_size(args.smem, "--smem"),
        _carveout(args.carveout, sm),
        args.barriers,
    )
    now = fit(sm, launch)
    steps = next_steps(now)
    if args.svg is not None:
        _write(args.svg, occupancy_report.as_svg(now))
    print(occupancy_report.as_json(now, steps) if args.json else occupancy_report.page(now, steps))
    if now.impossible is not None:
        sys.stdout.flush()
        raise AdvisorError(f"this kernel cannot be launched: {now.impossible}")
    return 0


def parse_block(text: str) -> int:
    """Return the threads of a block written as `256` or `16x16x1`; UsageError for none."""
    sides = text.lower().split("x")
    if len(sides) > 3 or not all(re.fullmatch(r"\d{1,9}", side) for side in sides):
        raise UsageError(f"{text!r} is no block: write its threads as 256 or 16x16x1")
    threads = 1
    for name, side, most in zip("xyz", map(int, sides), BLOCK_SIDES, strict=False):
        if len(sides) > 1 and side > most:
            raise UsageError(f"a block has at most {most:,} threads in {name}, not {side:,}")
        threads *= side
    return threads


def _carveout(text: str | None, sm: Architecture) -> int | None:
    if text is None:
        return None
    share = re.fullmatch(r"(\d{1,3})%", text.strip())
    if share is None:
        size = parse_size(text, "--carveout")
    else:
        size = int(share[1]) * sm.shared_bytes // 100
    if size > sm.shared_bytes:
        most = f"{sm.shared_bytes // 1024} KiB"
        raise UsageError(f"an SM has at most {most} of shared memory: --carveout {text} is more")
    return size


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise AdvisorError(f"{path} cannot be written: {error.strerror}") from error
