"""Loading a trace and breaking its time down, side by side with HolisticTraceAnalysis.

    python benchmarks/profile_speed.py TRACE.json.gz --hta-python /tmp/hta/bin/python \
        [--times 10] [--runs 3]

HTA needs an environment of its own: `benchmarks/hta_breakdown.py` says how to make it. Each run is
a fresh process, the two take turns, and what they say must be equal. `--times N` measures the trace
N times in a row as well: the same events again, later and with correlations of their own. Time is
from the file to the figures; what Python takes to start and import is left out of both.

Targets: at least 8 times as fast as HTA on the 216 k events of `hta_v100_df_index_resolver`, and on
10 times as many 10 times as fast with at most a quarter of its peak memory.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HTA = Path(__file__).with_name("hta_breakdown.py")
SAME = 1e-3
"""As a share: HTA's figures and ours must not differ by more."""
PAUSE_US = 1000
"""Between the last event of one copy and the first one of the next."""
IDS = ("correlation", "External id")
"""Arguments of events by which they find each other."""


@dataclass(frozen=True)
class Run:
    """One fresh process."""

    seconds: float
    peak_bytes: int
    figures: dict[str, Any]


def main() -> None:
    """Measure, compare and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--hta-python", help="an interpreter that has HolisticTraceAnalysis")
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--ours", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.ours:
        print(json.dumps(ours(chosen.trace)))
        return
    if chosen.hta_python is None:
        parser.error("--hta-python is needed: see the top of this file")
    compare(chosen.trace, chosen.hta_python, chosen.runs)
    if chosen.times > 1:
        with tempfile.TemporaryDirectory() as folder:
            larger = Path(folder) / "larger.json"
            enlarge(chosen.trace, larger, chosen.times)
            compare(larger, chosen.hta_python, chosen.runs)


def ours(path: Path) -> dict[str, Any]:
    """Read the trace and break its time down, in this process."""
    from gpuadvisor.collectors.kineto.reader import read
    from gpuadvisor.columns import MemoryProfile
    from gpuadvisor.rules.facts.summary import Facts

    began = time.perf_counter()
    profile = MemoryProfile()
    profile.finish(read(path, profile))
    loaded_s = time.perf_counter() - began
    facts = Facts(profile)
    (device,) = facts.busy
    took_s = time.perf_counter() - began
    figures = {
        "idle_us": device.idle_ns / 1e3,
        "compute_us": device.compute_ns / 1e3,
        "span_us": device.span_ns / 1e3,
    }
    peak_bytes = peak()
    facts.as_dict()
    return {
        "seconds": took_s,
        "peak_bytes": peak_bytes,
        "figures": figures,
        "loaded_s": loaded_s,
        "all_facts_s": time.perf_counter() - began - loaded_s,
    }


def peak() -> int:
    """Return this process's peak; `getrusage` would count the parent's, from before `exec`."""
    return 1024 * int(re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[0])


def compare(trace: Path, hta_python: str, runs: int) -> None:
    """Let both take turns on a trace, and print what came out."""
    us = [sys.executable, str(Path(__file__)), "--ours", str(trace)]
    them = [hta_python, str(HTA), "--once", str(trace)]
    told: list[dict[str, Any]] = []
    pairs = []
    for _ in range(runs):
        told.append(_run(us))
        pairs.append((_as_run(told[-1]), _as_run(_run(them))))
    for mine, theirs in pairs:
        for figure, value in mine.figures.items():
            other = theirs.figures[figure]
            if abs(value - other) > SAME * max(abs(other), 1.0):
                sys.exit(f"{figure} is {value} here and {other} in HTA")
    mine_s = statistics.median(mine.seconds for mine, _ in pairs)
    theirs_s = statistics.median(theirs.seconds for _, theirs in pairs)
    ratios = sorted(theirs.seconds / mine.seconds for mine, theirs in pairs)
    mine_mb = max(mine.peak_bytes for mine, _ in pairs) / 1e6
    theirs_mb = max(theirs.peak_bytes for _, theirs in pairs) / 1e6
    facts_s = statistics.median(each["all_facts_s"] for each in told)
    print(f"{trace.name}: {trace.stat().st_size / 1e6:.1f} MB, {runs} runs each, in turns")
    print(f"  gpuadvisor {mine_s:8.2f} s  {mine_mb:8.0f} MB   (then all facts: {facts_s:.2f} s)")
    print(f"  HTA        {theirs_s:8.2f} s  {theirs_mb:8.0f} MB")
    spread = f"{ratios[0]:.1f} to {ratios[-1]:.1f}"
    print(
        f"  {statistics.median(ratios):.1f} times as fast ({spread}),"
        f" {mine_mb / theirs_mb:.2f} of the memory",
        flush=True,
    )


def _run(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _as_run(told: dict[str, Any]) -> Run:
    return Run(told["seconds"], told["peak_bytes"], told["figures"])


def enlarge(trace: Path, larger: Path, times: int) -> None:
    """Write a trace with all its events so many times, one copy after the other."""
    opened = gzip.open if trace.suffix == ".gz" else open
    with opened(trace, "rt") as file:  # type: ignore[operator]
        whole = json.load(file)
    events = whole.pop("traceEvents")
    timed = [event for event in events if event.get("ph") == "X"]
    first = min(event["ts"] for event in timed)
    length = max(event["ts"] + event.get("dur", 0) for event in timed) - first + PAUSE_US
    apart = 1 + max((_largest_id(event) for event in events), default=0)
    with larger.open("w") as file:
        file.write(json.dumps(whole)[:-1] + ', "traceEvents": [\n')
        for copy in range(times):
            for number, event in enumerate(events):
                if copy or number:
                    file.write(",\n")
                file.write(json.dumps(_moved(event, copy * length, copy * apart)))
        file.write("\n]}\n")


def _largest_id(event: dict[str, Any]) -> int:
    arguments = event.get("args") or {}
    ids = [arguments.get(name) for name in IDS]
    return max((each for each in ids if isinstance(each, int)), default=0)


def _moved(event: dict[str, Any], by_us: float, by_ids: int) -> dict[str, Any]:
    moved = dict(event)
    if "ts" in event:
        moved["ts"] = event["ts"] + by_us
    arguments = event.get("args")
    if isinstance(arguments, dict) and by_ids:
        shifted = {name: arguments[name] + by_ids for name in IDS
                   if isinstance(arguments.get(name), int)}  # fmt: skip
        moved["args"] = {**arguments, **shifted}
    return moved


if __name__ == "__main__":
    main()
