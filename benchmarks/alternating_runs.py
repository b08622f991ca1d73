"""How far two runs of the same work differ: one after the other, and in turns while both live.

    python benchmarks/alternating_runs.py [--pairs 12] [--seconds 4] [--period 4 30 120]

A gate runs its two versions one after the other: whatever else the machine does in one run and not
in the other passes for a difference. Here both processes live at the same time and wait in turns,
so that a block of the one has a block of the other beside it, within a fraction of a second. Beside
them a process comes and goes for half of each period, as in `gate_on_processes.py`. Printed is the
standard deviation of the logarithm of a pair's ratio, which is 0 for perfect pairs: the smaller it
is, the fewer pairs a gate needs, by its square. Nothing of gpuadvisor runs: this tells whether
taking turns is worth building.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean, median, stdev

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.gate_on_processes import NEIGHBOUR

WINDOW_S = 0.5
"""Of a run that is alone, as a gate has them."""
DUTY = 0.5
UNITS = 800
"""Work of a step: 6 to 10 ms on the machines that were tried."""
WORKER = f"""
import json, sys, time, numpy
size = {UNITS} * 1024
values = numpy.random.default_rng(0).random(size)
results = numpy.empty_like(values)
for _ in range(50):
    numpy.tanh(values, out=results)
print("ready", flush=True)
for line in sys.stdin:
    end, steps = time.perf_counter() + float(line), []
    while time.perf_counter() < end or not steps:
        began = time.perf_counter()
        numpy.tanh(values, out=results)
        steps.append(time.perf_counter() - began)
    print(json.dumps(sorted(steps)[len(steps) // 2]), flush=True)
"""


class Worker:
    """A process that works when it is told to."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()

    def works(self, seconds: float) -> float:
        """Return the median step of so many seconds, in seconds."""
        assert self._process.stdin is not None
        print(seconds, file=self._process.stdin, flush=True)
        return float(json.loads(self._answer()))

    def end(self) -> None:
        """End the process."""
        self._process.communicate()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def one_after_the_other(seconds: float) -> float:
    """Return the logarithm of the ratio of two runs."""
    found = []
    for _ in range(2):
        worker = Worker()
        found.append(median(worker.works(WINDOW_S) for _ in range(round(seconds / WINDOW_S))))
        worker.end()
    return math.log(found[1] / found[0])


def in_turns(seconds: float, block_s: float, chance: random.Random) -> float:
    """Return the median logarithm of the ratios of blocks beside each other."""
    workers = Worker(), Worker()
    found = []
    for _ in range(round(seconds / block_s)):
        first = chance.randrange(2)
        took = {first: workers[first].works(block_s), 1 - first: workers[1 - first].works(block_s)}
        found.append(math.log(took[1] / took[0]))
    for worker in workers:
        worker.end()
    return median(found)


@contextmanager
def neighbour(period_s: float) -> Iterator[None]:
    """Have a process come and go meanwhile."""
    words = [str(period_s), str(DUTY), str(time.monotonic() % period_s)]
    process = subprocess.Popen([sys.executable, "-c", NEIGHBOUR, *words])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def main() -> None:
    """Measure all designs in turns, and print a row for each neighbour."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=4.0, help="that each run is measured")
    parser.add_argument("--period", type=float, nargs="+", default=[4.0, 30.0, 120.0])
    parser.add_argument("--blocks", type=float, nargs="+", default=[0.1, 0.5])
    chosen = parser.parse_args()
    chance = random.Random(0)
    names = ["one after the other", *(f"in turns of {each:g} s" for each in chosen.blocks)]
    print("| a process comes and goes every |", " | ".join(names), "|")
    for period_s in chosen.period:
        found: list[list[float]] = [[] for _ in names]
        with neighbour(period_s):
            for _ in range(chosen.pairs):
                found[0].append(one_after_the_other(chosen.seconds))
                for place, block_s in enumerate(chosen.blocks, 1):
                    found[place].append(in_turns(chosen.seconds, block_s, chance))
        cells = (f"{stdev(each):.2%} (mean {mean(each):+.2%})" for each in found)
        print(f"| {period_s:g} s |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
