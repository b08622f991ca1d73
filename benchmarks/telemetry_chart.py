"""How long a chart of a day takes: one metric of eight GPUs, from the roll-ups.

python benchmarks/telemetry_chart.py
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from gpuadvisor.domain.metrics import GPU_METRICS, HOST_METRICS, Metric
from gpuadvisor.domain.telemetry import HOST, Frame, Gpu, Sample
from gpuadvisor.storage.telemetry.reader import TelemetryReader
from gpuadvisor.storage.telemetry.writer import TelemetryWriter

GPUS = tuple(Gpu(f"GPU-{number}", number, "NVIDIA H100 80GB HBM3") for number in range(8))
BEGIN_S = 1_700_006_400.0
DAY_S = 86400
EVERY_S = 15
"""Minutes are as many and as large whether they are made of four sweeps or of sixty."""
TIMES = 21


def main() -> None:
    """Fill a store and read charts from it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder)
        print("a day of 8 GPUs, all metrics, values that change with every sweep")
        print(f"index.db: {(folder / 'index.db').stat().st_size / 1e6:.1f} MB")
        for what, since_s, points in (
            ("24 h by minutes", BEGIN_S, 1440),
            ("24 h for a page of 160 columns", BEGIN_S, 160),
            ("the last hour, by sweeps", BEGIN_S + DAY_S - 3600, 240),
        ):
            measure(folder, what, since_s, points)


def fill(folder: Path) -> None:
    """Write a day, and some of the next hour so that the last hour is rolled up."""
    now = [BEGIN_S]
    with TelemetryWriter(folder, clock=lambda: now[0]) as writer:
        for number, frame in enumerate(frames()):
            now[0] = frame.time_s
            writer.append([frame])
            if number % 4 == 3:
                writer.tend()


def frames() -> Iterator[Frame]:
    """Yield the frames of a day."""
    for at in range(0, DAY_S + 60, EVERY_S):
        samples = {gpu.uuid: Sample(values(GPU_METRICS)) for gpu in GPUS}
        samples[HOST] = Sample(values(HOST_METRICS))
        yield Frame(BEGIN_S + at, samples, gpus=GPUS if at == 0 else None)


def values(metrics: tuple[Metric, ...]) -> dict[str, int | float]:
    """Return values that compress badly."""
    return {m.name: random.randrange(100) if m.whole else random.random() * 100 for m in metrics}


def measure(folder: Path, what: str, since_s: float, points: int) -> None:
    """Print how long a chart takes, from opening the store to the points."""
    took_ms = []
    for _ in range(TIMES):
        began = time.perf_counter()
        chart = TelemetryReader(folder).chart("power_w", None, since_s, BEGIN_S + DAY_S, points)
        took_ms.append((time.perf_counter() - began) * 1e3)
    number = sum(len(each) for each in chart.values())
    middle = statistics.median(took_ms)
    print(f"{what}: {number} points in {middle:.1f} ms (worst of {TIMES}: {max(took_ms):.1f})")


if __name__ == "__main__":
    sys.exit(main())
