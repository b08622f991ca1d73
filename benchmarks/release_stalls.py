"""For how long other threads of Python stand still while a pinned batch's shared memory is freed.

    python benchmarks/release_stalls.py [--batches 20] [--pictures 256]

A worker sends batches of 224 x 224 pictures; they are freed as the DataLoader's pinning thread does
it, in turns as torch has it and with the knob `release_without_gil`, while another thread looks at
the clock without pause. What is said are medians of the longest time between two of its looks.
There need not be a GPU: pinning itself is played by a copy.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data._utils import pin_memory as module

from gpuadvisor.tuners.knobs import release_without_gil

LOOK_S = 1e-4
"""Longest time that a thread keeps the lock while another one wants it and it runs Python."""


class Pictures(Dataset[torch.Tensor]):
    """Pictures that cost a worker little."""

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((3, 224, 224), float(index))


class Watch(threading.Thread):
    """Looks at the clock, and keeps each time between two looks that is longer than `LOOK_S`."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.stalls: list[tuple[float, float]] = []

    def run(self) -> None:
        last = time.perf_counter()
        while True:
            now = time.perf_counter()
            if now - last > LOOK_S:
                self.stalls.append((last, now))
            last = now

    def longest_ms(self, begin: float, end: float) -> float:
        """Return the longest part of a stall that lies between two times."""
        time.sleep(10 * LOOK_S)  # for the look after the last stall
        parts = [min(after, end) - max(before, begin) for before, after in self.stalls]
        self.stalls.clear()
        return 1e3 * max(0.0, *parts) if parts else 0.0


def pinned(data: Any, device: Any = None) -> Any:
    """Play torch's pinning of a tensor."""
    return data.clone() if isinstance(data, torch.Tensor) else data


def freed_ms(batches: list[torch.Tensor], pin: Callable[[Any], Any], watch: Watch) -> float:
    """Return the longest stall while a batch that was pinned is freed."""
    pin(batches[0])
    begin = time.perf_counter()
    batches.clear()
    pin(torch.ones(1))  # of the next batch, which frees what is left
    return watch.longest_ms(begin, time.perf_counter())


def main() -> None:
    """Compare the two."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batches", type=int, default=20, help="of each kind")
    parser.add_argument("--pictures", type=int, default=256, help="in a batch")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    sys.setswitchinterval(LOOK_S)
    module.pin_memory = pinned
    release_without_gil.install()
    unlocked = module.pin_memory
    watch = Watch()
    watch.start()
    arrive = iter(DataLoader(Pictures(), batch_size=arguments.pictures, num_workers=1))
    stalls: dict[str, list[float]] = {"as torch has it": [], "release_without_gil": []}
    for _ in range(arguments.batches):
        for (name, found), pin in zip(stalls.items(), (pinned, unlocked), strict=True):
            found.append(freed_ms([next(arrive)], pin, watch))
            print(f"{name:20} {found[-1]:6.1f} ms", file=sys.stderr)
    usual, without = (median(found) for found in stalls.values())
    size = arguments.pictures * 3 * 224 * 224 * 4 / 2**20
    print(
        f"{size:.0f} MiB a batch: other threads stand still for {usual:.1f} ms,"
        f" with release_without_gil for {without:.1f} ms ({usual / without:.0f}x less)"
    )


if __name__ == "__main__":
    main()
