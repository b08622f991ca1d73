"""What new host memory for each batch costs a DataLoader, and what the knobs for it save.

    python benchmarks/loader_memory.py [--rounds 6] [--workers 2] [--pictures 256]

Workers make pictures of 224 x 224 as torchvision's `FakeData` does. The script takes the batches as
fast as they come and copies each into one buffer, in the way and the thread of the pinning that it
stands for, so that no GPU is needed. Meanwhile another thread looks at the clock: how long it is
kept from that is how long no kernel could be launched. Each round runs every setting in a fresh
process; what is said are medians, and ratios to the unchanged script of the same round.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import threading
import time
from statistics import median
from typing import Any

from gpuadvisor.tuners.knobs import batch_memory, host_memory

SETTINGS = {
    "unchanged": (),
    "host_memory": ("host_memory",),
    "batch_memory": ("batch_memory",),
    "both": ("host_memory", "batch_memory"),
}
LOOK_S = 1e-4
"""Longest time that a thread keeps the lock while another one wants it and it runs Python."""
WARM_UP, BATCHES = 4, 16
"""A worker: batches of each that do not count, and that do."""


class Watch(threading.Thread):
    """Looks at the clock, and keeps each time between two looks that is longer than `LOOK_S`."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.stalls_ms: list[float] = []

    def run(self) -> None:
        last = time.perf_counter()
        while True:
            time.sleep(LOOK_S)
            now = time.perf_counter()
            self.stalls_ms.append(1e3 * (now - last))
            last = now


def one(setting: str, workers: int, pictures: int) -> dict[str, float]:
    """Load in this process with a setting; return what it took."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Pictures(Dataset[Any]):
        def __len__(self) -> int:
            return 1 << 20

        def __getitem__(self, index: int) -> torch.Tensor:
            drawn = torch.randn(3, 224, 224).mul(255).byte().numpy().transpose(1, 2, 0).copy()
            return torch.from_numpy(drawn).permute(2, 0, 1).contiguous().float().div(255)

    torch.set_num_threads(1)
    sys.setswitchinterval(LOOK_S)
    knobs = SETTINGS[setting]
    init = batch_memory.reuse if "batch_memory" in knobs else None
    arrive = iter(
        DataLoader(Pictures(), batch_size=pictures, num_workers=workers, worker_init_fn=init)
    )
    buffer = torch.zeros(pictures, 3, 224, 224)
    watch = Watch()
    for _ in range(WARM_UP * workers):
        buffer.copy_(next(arrive))
    watch.start()
    began = time.perf_counter()
    worst: list[float] = []
    for _ in range(BATCHES * workers):
        watch.stalls_ms.clear()
        buffer.copy_(next(arrive))
        worst.append(max(watch.stalls_ms, default=0.0))
    took_s = time.perf_counter() - began
    del arrive
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    batches = (WARM_UP + BATCHES + 1) * workers
    return {
        "ms": 1e3 * took_s / (BATCHES * workers),
        "cpu_ms": 1e3 * (used.ru_utime + used.ru_stime) / batches,
        "stall_ms": median(worst),
    }


def main() -> None:
    """Run every setting in turns, and say what it took."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pictures", type=int, default=256, help="in a batch")
    parser.add_argument("--one", choices=SETTINGS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(one(arguments.one, arguments.workers, arguments.pictures)))
        return
    found: dict[str, list[dict[str, float]]] = {name: [] for name in SETTINGS}
    own = [f"--workers={arguments.workers}", f"--pictures={arguments.pictures}"]
    for _ in range(arguments.rounds):
        for name, knobs in SETTINGS.items():
            variables = host_memory.KNOB.environment("32M") if "host_memory" in knobs else {}
            command = [sys.executable, __file__, f"--one={name}", *own]
            environment = {**os.environ, **variables}
            run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
            found[name].append(json.loads(run.stdout))
            print(name, found[name][-1], file=sys.stderr)
    unchanged = found["unchanged"]
    for name, runs in found.items():
        faster = median(a["ms"] / b["ms"] for a, b in zip(unchanged, runs, strict=True))
        ms, cpu_ms, stall_ms = (
            median(run[k] for run in runs) for k in ("ms", "cpu_ms", "stall_ms")
        )
        print(
            f"{name:13} {ms:6.0f} ms a batch, {faster:.2f}x; {cpu_ms:.0f} ms of the workers' cores;"
            f" other threads stand still for {stall_ms:.0f} ms"
        )


if __name__ == "__main__":
    main()
