"""How long a chart takes of a minute, of two hours at 1 s, of a day and of 30 days, and how long
what was at a moment: one metric of eight GPUs.

python benchmarks/telemetry_chart.py
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gpuadvisor.domain.metrics import GPU_METRICS, HOST_METRICS, Metric
from gpuadvisor.domain.telemetry import HOST, Frame, Gpu, Sample
from gpuadvisor.storage.telemetry.reader import TelemetryReader
from gpuadvisor.storage.telemetry.retention import Retention
from gpuadvisor.storage.telemetry.writer import TelemetryWriter

GPUS = tuple(Gpu(f"GPU-{number}", number, "NVIDIA H100 80GB HBM3") for number in range(8))
DAY_S = 86400
DAYS = 30
BEGIN_S = 1_700_006_400.0
END_S = BEGIN_S + DAYS * DAY_S
RAW_S = 2 * 3600
"""The last hours are of sweeps a second apart."""
EVERY_S = 60
"""Minutes are as many and as large whether they are made of one sweep or of sixty."""
TIMES = 21
COLUMNS = 160


def main() -> None:
    """Fill a store and read charts from it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder)
        print(f"{DAYS} days of 8 GPUs, all metrics, values that change with every sweep")
        print(f"index.db: {(folder / 'index.db').stat().st_size / 1e6:.1f} MB")
        for what, span_s in (
            ("1 minute", 60),
            ("10 minutes", 600),
            ("2 hours, by sweeps a second apart", RAW_S),
            ("24 hours", DAY_S),
            ("7 days", 7 * DAY_S),
            ("30 days", 30 * DAY_S),
        ):
            measure(folder, f"{what}, 8 GPUs", None, span_s)
            measure(folder, f"{what}, 1 GPU", [GPUS[3].uuid], span_s)
        reader = TelemetryReader(folder)
        timed("what was at a moment of the last hours", lambda: reader.moment(END_S - 3600))
        timed("what was at a moment of last week", lambda: reader.moment(END_S - 7 * DAY_S))


def fill(folder: Path) -> None:
    """Write the days, and some of the next hour so that the last one is rolled up."""
    now = [BEGIN_S]
    kept = Retention(raw_s=DAY_S)
    with TelemetryWriter(folder, clock=lambda: now[0], kept=kept) as writer:
        waiting: list[Frame] = []
        for frame in frames():
            now[0] = frame.time_s
            waiting.append(frame)
            if len(waiting) >= 60:
                writer.append(waiting)
                writer.tend()
                waiting = []
        writer.append(waiting)
        writer.tend()


def frames() -> Iterator[Frame]:
    """Yield the frames of all days."""
    time_s = BEGIN_S
    while time_s < END_S + 60:
        samples = {gpu.uuid: Sample(values(GPU_METRICS)) for gpu in GPUS}
        samples[HOST] = Sample(values(HOST_METRICS))
        yield Frame(time_s, samples, gpus=GPUS if time_s == BEGIN_S else None)
        time_s += EVERY_S if time_s < END_S - RAW_S else 1


def values(metrics: tuple[Metric, ...]) -> dict[str, int | float]:
    """Return values that compress badly."""
    return {m.name: random.randrange(100) if m.whole else random.random() * 100 for m in metrics}


def measure(folder: Path, what: str, gpus: list[str] | None, span_s: int) -> None:
    """Print how long a chart takes, from opening the store to the columns."""
    since_s = END_S - span_s

    def chart() -> None:
        TelemetryReader(folder).timelines("power_w", gpus, since_s, END_S, COLUMNS, now_s=END_S)

    timed(what, chart)


def timed(what: str, work: Callable[[], object]) -> None:
    """Print how long the work takes, and how much of a core: the former is longer where others
    work beside it."""
    took_ms, cpu_ms = [], []
    for _ in range(TIMES):
        began, cpu = time.perf_counter(), time.process_time()
        work()
        took_ms.append((time.perf_counter() - began) * 1e3)
        cpu_ms.append((time.process_time() - cpu) * 1e3)
    print(
        f"{what}: {statistics.median(took_ms):.1f} ms (best of {TIMES}: {min(took_ms):.1f}),"
        f" {statistics.median(cpu_ms):.1f} ms of a core"
    )


if __name__ == "__main__":
    sys.exit(main())
