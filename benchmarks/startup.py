"""How long `gpuadvisor --help` takes, beside a Python that does nothing.

    python benchmarks/startup.py [--rounds 20]

Both run in turns, so that a change of the machine's speed meets both. Target: under 150 ms.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "gpuadvisor --help": [sys.executable, "-m", "gpuadvisor", "--help"],
}


def main() -> None:
    """Measure, and print the median and the range of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    times_ms: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for place in range(rounds + 1):
        for name, command in COMMANDS.items():
            began = time.perf_counter()
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            if place:  # the first round fills the disk's and the bytecode's caches
                times_ms[name].append(1e3 * (time.perf_counter() - began))
    for name, values in times_ms.items():
        low, middle, high = min(values), statistics.median(values), max(values)
        print(f"{name:20} {middle:6.1f} ms in the median of {rounds} ({low:.1f} to {high:.1f})")


if __name__ == "__main__":
    main()
