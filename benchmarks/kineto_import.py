"""How fast, and in how much memory, traces of the torch profiler are read.

    python benchmarks/kineto_import.py TRACE [--times 10] [--times 100] [--store | --report]

Each size is read in a fresh process, into a sink that counts rows and keeps none; with `--store`
into a new store, as `gpuadvisor import` does; with `--report` into a store from which another fresh
process makes the HTML page. `--times N`
makes a trace of N times the events first, in a temporary folder: the events again and again, each
time later and with correlations of their own. Targets on two cores: 2.16 million events (424 MB)
in 8 s and 500 MB, growth linear up to 20 million.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gpuadvisor.domain.profile import Columns

IDS = re.compile(rb'"(External id|correlation|id)":(\d+)')
ID_STEP = 10_000_000
"""Between the correlations of two repetitions."""


class CountingSink:
    """Forgets everything but how much it was."""

    def __init__(self) -> None:
        self.rows = 0

    def add(self, table: str, columns: Columns) -> None:
        """Count a batch."""
        self.rows += len(next(iter(columns.values())))


def main() -> None:
    """Measure each size, or the one trace that a measuring process is started for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--times", type=int, action="append", default=[], help="enlarge so often")
    parser.add_argument("--store", action="store_true", help="measure the import into a store")
    parser.add_argument("--report", action="store_true", help="and the page made from it")
    parser.add_argument("--here", choices=MEASURES, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.here:
        MEASURES[chosen.here](chosen.trace)
        return
    measures = ["store", "page"] if chosen.report else ["store"] if chosen.store else ["read"]
    in_fresh_processes(chosen.trace, measures)
    with tempfile.TemporaryDirectory() as folder:
        for times in chosen.times:
            larger = Path(folder) / f"times_{times}.json"
            enlarge(chosen.trace, larger, times)
            in_fresh_processes(larger, measures)
            larger.unlink()


def in_fresh_processes(trace: Path, measures: list[str]) -> None:
    """Measure in processes whose peak memory is that of one measurement alone."""
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "GPUADVISOR_HOME": home}
        for each in measures:
            command = [sys.executable, __file__, "--here", each, str(trace)]
            subprocess.run(command, check=True, env=environment)


def measure(trace: Path) -> None:
    """Read once and print what it took; the time to import the reader is not in it."""
    from gpuadvisor.collectors.kineto.reader import read

    sink = CountingSink()
    begin, begin_cpu = time.perf_counter(), time.process_time()
    header = read(trace, sink)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    print(
        f"{trace.name}: {trace.stat().st_size / 1e6:,.0f} MB, {sink.rows:,} rows "
        f"in {seconds:.2f} s ({cpu:.2f} s of a core), peak {peak_mib():,.0f} MiB, "
        f"{len(header.texts):,} texts, {len(header.warnings)} warnings",
        flush=True,
    )


def measure_import(trace: Path) -> None:
    """Import once and print what it took; the time to import the modules is not in it."""
    from gpuadvisor.profiling.importing import import_trace
    from gpuadvisor.profiling.reading import trace_files
    from gpuadvisor.storage.profiles.library import open_profiles

    begin, begin_cpu = time.perf_counter(), time.process_time()
    with open_profiles() as profiles:
        (file,) = trace_files([trace])
        record = import_trace(profiles, file).profile.record
        seconds, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
        print(
            f"{trace.name}: import of {sum(record.table_rows.values()):,} rows in {seconds:.2f} s "
            f"({cpu:.2f} s of a core), peak {peak_mib():,.0f} MiB, "
            f"{profiles.path.stat().st_size / 1e6:,.1f} MB stored",
            flush=True,
        )


def measure_page(_: Path) -> None:
    """Make the page of the newest profile once and print what it took."""
    from gpuadvisor.profiling.diagnosing import profile_report
    from gpuadvisor.profiling.resolving import newest_profile
    from gpuadvisor.reports.profile.document import profile_html

    begin, begin_cpu = time.perf_counter(), time.process_time()
    named = newest_profile()
    assert named is not None
    page = profile_html(profile_report(named))
    seconds, cpu = time.perf_counter() - begin, time.process_time() - begin_cpu
    print(
        f"{named.name}: page of {len(page) / 1e3:,.0f} kB in {seconds:.2f} s "
        f"({cpu:.2f} s of a core), peak {peak_mib():,.0f} MiB",
        flush=True,
    )


def peak_mib() -> float:
    """Return this process's peak; `getrusage` would count the parent's, from before `exec`."""
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024


def enlarge(trace: Path, larger: Path, times: int) -> None:
    """Write a trace with the events of another, `times` times."""
    document = _document(trace)
    events = document.pop("traceEvents")
    span = max((event["ts"] + event.get("dur", 0) for event in events if "ts" in event), default=0)
    span -= min((event["ts"] for event in events if "ts" in event), default=0)
    parts = [_split(event) for event in events]
    with larger.open("wb") as file:
        file.write(json.dumps(document)[:-1].encode() + b', "traceEvents": [\n')
        for number in range(times):
            shift = int(span + 1) * number
            lines = [_shifted(before, ts, after, shift, number) for before, ts, after in parts]
            file.write((b",\n" if number else b"") + b",\n".join(lines))
        file.write(b"\n]}")
    print(f"{larger.name}: {times * len(events):,} events", flush=True)


def _document(trace: Path) -> dict[str, Any]:
    content = trace.read_bytes()
    document: dict[str, Any] = json.loads(
        gzip.decompress(content) if trace.suffix == ".gz" else content
    )
    return document


def _split(event: dict[str, Any]) -> tuple[bytes, float, bytes]:
    """Return an event's JSON before and after its time."""
    time_us = event.pop("ts", 0)
    rest = json.dumps(event, separators=(",", ":")).encode()
    return b'{"ts":', time_us, b"," + rest[1:]


def _shifted(before: bytes, time_us: float, after: bytes, shift: int, number: int) -> bytes:
    if number:
        after = IDS.sub(lambda m: b'"%s":%d' % (m[1], int(m[2]) + number * ID_STEP), after)
    return before + repr(time_us + shift).encode() + after


MEASURES = {"read": measure, "store": measure_import, "page": measure_page}

if __name__ == "__main__":
    main()
