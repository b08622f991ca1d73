"""What `diagnose` says of kernels with one planted bottleneck, and what their cures really save.

    python benchmarks/planted_kernels.py [NAME ...] [--json FILE] [--reports FOLDER]

`benchmarks/planted/kernels.cu` holds each kernel with and without its bottleneck. It is compiled
with nvcc, times both in turns, and is then profiled as a user would: `gpuadvisor profile --ncu`.
Needs a GPU, nvcc, Nsight Compute and the right to read performance counters.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

from planted_table import Row, answer, asked, compared, show

SOURCE = Path(__file__).parent / "planted" / "kernels.cu"
WANT = {
    "healthy_copy": (),
    "healthy_transpose": (),
    "structures": ("coalescing",),
    "column_stores": ("coalescing",),
    "bank_conflicts": ("bank_conflict",),
    "much_shared_memory": ("occupancy",),
    "many_registers": ("occupancy",),
    "small_blocks": ("occupancy",),
    "tail": ("tail",),
    "long_blocks": ("tail",),
    "few_blocks": ("small_grid",),
    "branches": ("divergence",),
    "local_array": ("local_memory",),
    "atomics": ("atomics",),
    "chains": ("latency", "small_grid", "occupancy"),  # more loads at once, or more threads
    "double_constants": ("precision", "compute"),
    "product_without_tensor_cores": ("tensor_core", "compute"),
    "byte_by_byte": ("dram_bandwidth", "compute"),  # the many instructions, or the few bytes
}


def main() -> int:
    """Print a row for each kernel; exit with 1 where a first finding is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", choices=[*WANT, []], help="kernels; all by default")
    parser.add_argument("--json", type=Path, help="write all there is to know to this file")
    parser.add_argument("--reports", type=Path, help="keep what Nsight Compute says in this folder")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder) / "kernels")
        answer(["nvcc", "-O3", "-std=c++17", "-arch=native", "-o", program, str(SOURCE)])
        times = {
            name: (float(planted_ms), float(cured_ms))
            for name, planted_ms, cured_ms in map(
                str.split, answer([program, "--time"]).splitlines()
            )
        }
        look = partial(look_at, program, times, chosen.reports)
        return show(chosen.names or WANT, look, chosen.json)


def look_at(
    program: str, times: dict[str, tuple[float, float]], reports: Path | None, name: str
) -> Row:
    """Diagnose a planted kernel."""
    options = []
    if reports is not None:
        reports.mkdir(parents=True, exist_ok=True)
        options = ["--output", str(reports.absolute() / f"{name}.csv")]
    profile = asked("profile", "--ncu", *options, "--", program, name)["profile"]
    return compared(name, WANT[name], *times[name], asked("diagnose", profile["name"]))


if __name__ == "__main__":
    sys.exit(main())
