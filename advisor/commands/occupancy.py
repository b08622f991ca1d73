"""Calculate how many warps of a kernel an SM can hold, what limits it, and what would raise it.

The figures are those of NVIDIA's `cuda_occupancy.h`; thread block clusters are not considered.
Exit status: 0; 1 where no GPU of that kind can launch the kernel.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpuadvisor.commands._arguments import add_json
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
_UNITS = {"": 1, "b": 1, "k": 1024, "kb": 1024, "kib": 1024, "m": 1 << 20, "mib": 1 << 20}
"""Bytes by unit; in CUDA's own words a KB of shared memory has 1,024."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    device = parser.add_mutually_exclusive_group()
    device.add_argument("--cc", metavar="X.Y", help="compute capability, 7.0 to 12.1")
    device.add_argument(
        "--gpu", metavar="NAME", help="a product such as H100 (default: this machine's GPU)"
    )
    parser.add_argument(
        "--block", metavar="N", required=True, help="threads of a block, as 256 or 16x16x1"
    )
    parser.add_argument(
        "--regs", metavar="N", type=int, default=0, help="registers of a thread (default: none)"
    )
    parser.add_argument(
        "--smem",
        metavar="SIZE",
        default="0",
        help="shared memory of a block, static and dynamic, as 100k, 48KiB or bytes (default: 0)",
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
    from gpuadvisor.reports import occupancy_report
    from gpuadvisor.rules.facts.occupancy import LaunchConfig, fit, next_steps

    sm = _architecture(args)
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


def parse_size(text: str, option: str) -> int:
    """Return the bytes of a size such as `100k`, `48KiB` or `1024`; UsageError for none."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?) ?([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS:
        raise UsageError(f"{option} takes a size such as 100k, 48KiB or 1024, not {text!r}")
    return round(float(match[1]) * _UNITS[match[2]])


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


def _architecture(args: argparse.Namespace) -> Architecture:
    from gpuadvisor.rules.facts.gpu_specs import architecture, capability

    if args.cc is not None:
        return architecture(args.cc)
    if args.gpu is None:
        return architecture(_this_machine())
    found = capability(args.gpu)
    if found is None:
        raise UsageError(
            f"the GPU {args.gpu!r} is not known by name: give its compute capability with --cc"
        )
    return architecture(found)


def _this_machine() -> tuple[int, int]:
    from gpuadvisor.collectors.devices import inventory

    found = inventory()
    if not found.gpus or found.gpus[0].compute_capability is None:
        reason = found.reason or "the driver does not say its compute capability"
        raise UsageError(f"{reason}; or say for which GPU, with --cc 9.0 or --gpu H100")
    return found.gpus[0].compute_capability


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise AdvisorError(f"{path} cannot be written: {error.strerror}") from error
