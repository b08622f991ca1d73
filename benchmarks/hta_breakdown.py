"""What HolisticTraceAnalysis says of a trace: run it with an interpreter that has it.

    python -m venv /tmp/hta
    /tmp/hta/bin/pip install HolisticTraceAnalysis==0.5.0 'pandas<3'
    /tmp/hta/bin/python benchmarks/hta_breakdown.py TRACE.json.gz ...

Prints JSON: for each trace the temporal breakdown, the breakdown by kind of kernel and the overlap
of communication, as HTA computes them by default except that the last step counts too, and once
more with HTA's rounding to whole microseconds turned off. `tests/data/profiles/hta_figures.json` is
its output.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

EXACT = "HTA_DISABLE_NS_ROUNDING"
"""HTA's own switch."""


def main() -> None:
    """Print what HTA says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("traces", nargs="+", type=Path)
    chosen = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    figures = {
        "tool": f"HolisticTraceAnalysis {version('HolisticTraceAnalysis')}",
        "command": "python benchmarks/hta_breakdown.py TRACE.json.gz ...",
        "traces": {path.name.partition(".")[0]: both_ways(path) for path in chosen.traces},
    }
    json.dump(figures, sys.stdout, indent=1)
    print()


def both_ways(path: Path) -> dict[str, Any]:
    """Return HTA's figures with its rounding and without."""
    found = {}
    for name, value in (("rounded", "0"), ("exact", "1")):
        os.environ[EXACT] = value
        try:
            found[name] = breakdown(path)
        except (AssertionError, IndexError, KeyError, ValueError) as error:
            found[name] = {"error": repr(error)}
    return found


def breakdown(path: Path) -> dict[str, Any]:
    """Return HTA's figures, in microseconds."""
    from hta.trace_analysis import TraceAnalysis

    analysis = TraceAnalysis(trace_files={0: str(path)}, include_last_profiler_step=True)
    (times,) = analysis.get_temporal_breakdown(visualize=False).to_dict("records")
    kinds, _ = analysis.get_gpu_kernel_breakdown(visualize=False, include_memory_kernels=True)
    figures: dict[str, Any] = {
        "idle_us": float(times["idle_time(us)"]),
        "compute_us": float(times["compute_time(us)"]),
        "non_compute_us": float(times["non_compute_time(us)"]),
        "span_us": float(times["kernel_time(us)"]),
        "kinds_us": {row["kernel_type"]: float(row["sum"]) for row in kinds.to_dict("records")},
    }
    if "COMMUNICATION" in figures["kinds_us"]:
        (overlap,) = analysis.get_comm_comp_overlap(visualize=False).to_dict("records")
        figures["communication_overlap_pct"] = float(overlap["comp_comm_overlap_pctg"])
    return figures


if __name__ == "__main__":
    main()
