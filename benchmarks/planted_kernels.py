"""What `diagnose` says of kernels with one planted bottleneck, and what their cures really save.

    python benchmarks/planted_kernels.py [NAME ...] [--json FILE] [--reports FOLDER]

`benchmarks/planted/kernels.cu` holds each kernel with and without its bottleneck. It is compiled
with nvcc, times both in turns, and is then profiled as a user would: `gpuadvisor profile --ncu`.
Needs a GPU, nvcc, Nsight Compute and the right to read performance counters.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

Row = dict[str, Any]
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


def show(names: Iterable[str], look: Callable[[str], Row], file: Path | None) -> int:
    """Print a row for each program; return 1 where a first finding is wrong, or one failed."""
    rows, failures = [], []
    print("| program | first finding | right | estimate | measured | inside |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in names:
        try:
            rows.append(look(name))
        except RuntimeError as error:
            failures.append(f"{name}: {error}")
            continue
        print(line(rows[-1]), flush=True)
        if file is not None:
            file.write_text(json.dumps(rows, indent=1))
    print(f"\n{summary(rows)}")
    for failure in failures:
        print(f"\n{failure}")
    return int(bool(failures) or not all(row["right"] for row in rows))


def compared(
    name: str, want: Iterable[str], planted_ms: float, cured_ms: float, diagnosis: dict[str, Any]
) -> Row:
    """Return what was measured beside what was said; a healthy program wants no category."""
    shown = [each for each in diagnosis["findings"] if each["hidden_by"] is None]
    severe = [each for each in shown if each["severity"] in ("warning", "critical")]
    first = severe[0] if severe else None
    want = sorted(want)
    right = first["category"] in want if first else not want
    worth = first["improvement_pct"] if first else None
    saved = 100 * (1 - cured_ms / planted_ms)
    return {
        "name": name,
        "want": want,
        "planted_ms": planted_ms,
        "cured_ms": cured_ms,
        "saved_pct": saved,
        "first": first,
        "right": right,
        "inside": worth is not None and worth["low"] <= saved <= worth["high"],
        "findings": diagnosis["findings"],
    }


def asked(command: str, *words: str) -> dict[str, Any]:
    """Return what gpuadvisor answers; RuntimeError where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        told = answer([sys.executable, "-m", "gpuadvisor", command, "--json", *words], folder)
    return dict(json.loads(told))


def answer(command: list[str], folder: str | None = None) -> str:
    """Return what a command prints; RuntimeError with its complaint where it fails."""
    told = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if told.returncode:
        raise RuntimeError(f"`{' '.join(command)}` ended with {told.returncode}:\n{told.stderr}")
    return told.stdout


def line(row: Row) -> str:
    """Return a row of the table."""
    first = row["first"]
    worth = first["improvement_pct"] if first else None
    return (
        f"| {row['name']} | {first['rule'] if first else 'nothing'}"
        f" | {'yes' if row['right'] else 'no'}"
        f" | {'{low:.0f} to {high:.0f} %'.format(**worth) if worth else ''}"
        f" | {row['saved_pct']:.1f} % | {'yes' if row['inside'] else 'no' if worth else ''} |"
    )


def summary(rows: list[Row]) -> str:
    """Return how many held."""
    right = sum(row["right"] for row in rows)
    estimated = [row for row in rows if row["right"] and row["first"]]
    worths = [row["first"]["improvement_pct"] for row in estimated]
    widths = [worth["high"] - worth["low"] for worth in worths if worth]
    inside = sum(row["inside"] for row in estimated)
    return (
        f"{right} of {len(rows)} right; {inside} of {len(estimated)} inside,"
        f" median width {median(widths) if widths else 0:.0f} points"
    )


if __name__ == "__main__":
    sys.exit(main())
