"""What the daemon costs the work that it watches: step time on a GPU, without and with it.

    python benchmarks/telemetry_overhead.py [--pairs 8] [--seconds 8]

One process trains all the time, and blocks of steps with the daemon at 10 Hz take turns with
blocks without any (ABBA), so that drift of the GPU cancels. Needs a GPU and torch. Target: the
two step times differ by less than 0.3 %.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from gpuadvisor.collectors.devices import list_gpus
from gpuadvisor.tuners.statistics import paired_ratio

CONFIGURATION = "[daemon]\nfast = true\n"
SETTLE_S = 1.0
"""After the daemon was started or stopped, before steps count."""


def main() -> None:
    """Measure, and print the ratio with its interval."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=8.0, help="of one block")
    chosen = parser.parse_args()
    if not list_gpus():
        raise SystemExit("this needs an NVIDIA GPU")
    step = _training_step()
    pairs = []
    with tempfile.TemporaryDirectory() as home:
        _block_ms(step, chosen.seconds)  # warms up
        for number in range(chosen.pairs):
            if number % 2:
                bare_ms = _block_ms(step, chosen.seconds)
                with_ms = _watched_ms(step, chosen.seconds, home)
            else:
                with_ms = _watched_ms(step, chosen.seconds, home)
                bare_ms = _block_ms(step, chosen.seconds)
            pairs.append((with_ms, bare_ms))
            print(f"{number:3}  without {bare_ms:8.4f} ms  with the daemon {with_ms:8.4f} ms")
    cost = paired_ratio(pairs)
    low, high = 100 * (cost.ci99_low - 1), 100 * (cost.ci99_high - 1)
    print(
        f"the daemon at 10 Hz changes a step by {100 * (cost.ratio - 1):+.2f} % "
        f"(99 % interval {low:+.2f} to {high:+.2f}, {cost.pairs} pairs) on {list_gpus()[0].name}"
    )


def _training_step() -> Callable[[], Any]:
    """Return a step of a small network: many short kernels, which the host launches in time."""
    import torch

    layers = [torch.nn.Sequential(torch.nn.Linear(2048, 2048), torch.nn.GELU()) for _ in range(8)]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    batch = torch.randn(256, 2048, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    return step


def _block_ms(step: Callable[[], Any], seconds: float) -> float:
    """Return the median step's time in milliseconds, by CUDA events."""
    import torch

    began = time.monotonic()
    marks: list[torch.cuda.Event | None] = []
    while time.monotonic() - began < seconds:
        for _ in range(50):
            mark = torch.cuda.Event(enable_timing=True)
            mark.record()
            marks.append(mark)
            step()
        torch.cuda.synchronize()  # bounds the queue; the interval across it is left out below
        marks.append(None)
    pairs = pairwise(marks)
    return median(a.elapsed_time(b) for a, b in pairs if a is not None and b is not None)


def _watched_ms(step: Callable[[], Any], seconds: float, home: str) -> float:
    with _daemon(home):
        return _block_ms(step, seconds)


@contextmanager
def _daemon(home: str) -> Iterator[None]:
    configuration = Path(home) / "gpuadvisor.toml"
    configuration.write_text(CONFIGURATION)
    command = [sys.executable, "-m", "gpuadvisor", "daemon"]
    environment = {**os.environ, "GPUADVISOR_HOME": home}
    start = [*command, "start", "--config", str(configuration)]
    subprocess.run(start, env=environment, check=True)
    try:
        time.sleep(SETTLE_S)
        yield
    finally:
        subprocess.run([*command, "stop"], env=environment, check=True)
        time.sleep(SETTLE_S)


if __name__ == "__main__":
    main()
