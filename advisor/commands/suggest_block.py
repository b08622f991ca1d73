"""Suggest the threads of a block and the grid for a kernel of one element a thread, with reasons.

A heuristic without a search: from how many warps an SM can hold, how rows lie in memory, how blocks
fall on the SMs, and the shape. `gpuadvisor tune-kernel` measures instead.
Exit status: 0; 1 where no block can be launched, or no GPU is named and none here; 2 where the GPU
is not known.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from gpuadvisor.commands._arguments import (
    add_json,
    add_kernel_on_gpu,
    check_positive,
    parse_size,
)
from gpuadvisor.errors import UsageError

if TYPE_CHECKING:
    from gpuadvisor.rules.facts.block_choice import BlockSuggestion

SCHEMA_VERSION = 1
EPILOG = """examples:
  gpuadvisor suggest-block 1080x1920 --regs 40
  gpuadvisor suggest-block 1000000 --gpu A100 --regs 64 --smem 4k
  gpuadvisor suggest-block 256x256x256 --gpu 9.0 --sms 132 --json | jq .block
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "shape",
        metavar="SHAPE",
        help="the problem in elements, as numpy has it, the contiguous side last: 1000, 1080x1920",
    )
    add_kernel_on_gpu(parser)
    parser.add_argument(
        "--sms", metavar="N", type=int, help="its SMs, where the name does not tell them"
    )
    parser.add_argument(
        "--smem-per-thread", metavar="BYTES", type=int, default=0,
        help="shared memory that each thread of a block adds (default: 0)",
    )  # fmt: skip
    parser.add_argument(
        "--max-threads", metavar="N", type=int, default=1024,
        help="threads of a block that it was compiled for, as __launch_bounds__ (default: 1024)",
    )  # fmt: skip
    parser.add_argument(
        "--element-bytes", metavar="N", type=int, default=4,
        help="bytes of an element that neighbouring threads read (default: 4)",
    )  # fmt: skip
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    check_positive(args, "--sms", "--max-threads", "--element-bytes")
    for option, value in (("--regs", args.regs), ("--smem-per-thread", args.smem_per_thread)):
        if value < 0:
            raise UsageError(f"{option} {value}: give a number from 0 on")
    from gpuadvisor.tuning.kernels.suggesting import suggest_block

    resources = {
        "registers_per_thread": args.regs,
        "shared_bytes_per_block": parse_size(args.smem, "--smem"),
        "shared_bytes_per_thread": args.smem_per_thread,
        "most_threads": args.max_threads,
    }
    found = suggest_block(
        resources,
        parse_shape(args.shape),
        gpu=args.gpu,
        element_bytes=args.element_bytes,
        sm_count=args.sms,
    )
    print(as_json(found) if args.json else found)
    return 0


def parse_shape(text: str) -> tuple[int, ...]:
    """Return the sides of `1080x1920`; UsageError for what is none."""
    sides = text.lower().split("x")
    if len(sides) > 3 or not all(re.fullmatch(r"\d{1,12}", side) for side in sides):
        raise UsageError(f"{text!r} is no shape: write one to three sides as 1000000 or 1080x1920")
    return tuple(map(int, sides))


def as_json(found: BlockSuggestion) -> str:
    """Return all of it for machines."""
    from gpuadvisor.reports import figures, strict_json

    now = found.occupancy
    return strict_json.text(
        {
            "schema_version": SCHEMA_VERSION,
            "compute_capability": figures.capability(now.architecture.compute_capability),
            "block": list(found.block),
            "grid": list(found.grid),
            "threads": found.threads,
            "occupancy": now.fraction,
            "blocks_per_sm": now.blocks,
            "limiters": list(now.limiters),
            "filled": found.filled,
            "coalesced": found.coalesced,
            "waves": found.waves,
            "reasons": list(found.reasons),
            "alike": [list(block) for block in found.alike],
        }
    )
