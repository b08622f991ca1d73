"""Measure what this machine's GPU really reaches: memory, arithmetic, transfers and launches.

It takes 20 to 40 s, changes no clock, and wants a GPU that does nothing else. Reports and diagnoses
use what was measured rather than data sheets. Bytes read and written both count.
Exit status: 0; 1 where there is no GPU; 2 where that Python has no torch.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpuadvisor.commands._arguments import add_json, add_python

if TYPE_CHECKING:
    from gpuadvisor.collectors.device_bench.runner import BenchResult

EPILOG = """examples:
  gpuadvisor bench-device
  gpuadvisor bench-device --python ~/venvs/train/bin/python --quick
  gpuadvisor bench-device --json | jq '.rates[] | {quantity, value, ratio}'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_python(parser, "a Python that has torch")
    parser.add_argument(
        "--gpu", metavar="N", type=int, default=0, help="torch's number of the GPU (default: 0)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer and shorter repeats: some 10 s, less exact"
    )
    parser.add_argument(
        "--no-store", action="store_true", help="only print, keep nothing for later diagnoses"
    )
    add_json(parser, "print the results as JSON")


def run(args: argparse.Namespace) -> int:
    import json

    from gpuadvisor.profiling import device_ceilings

    result = _measured(args)
    if args.json:
        print(json.dumps(device_ceilings.document(result), indent=2))
    else:
        print("\n".join(device_ceilings.table(result)))
    if not args.no_store:
        device_ceilings.keep(result)
    return 0


def _measured(args: argparse.Namespace) -> BenchResult:
    from rich.text import Text

    from gpuadvisor.collectors.device_bench.runner import bench_device
    from gpuadvisor.commands._output import messages

    # On a pipe the status shows nothing.
    with messages().status(Text(f"Asking {args.python} for its torch ...")) as status:

        def show(event: Mapping[str, Any]) -> None:
            done = event.get("quantity") or event.get("name")
            if done:
                status.update(Text(f"Measuring, which takes 20 to 40 s: {done} done"))

        return bench_device(args.python, args.gpu, quick=args.quick, on_event=show)
