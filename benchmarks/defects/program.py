"""One program of a pair, as a script that `gpuadvisor diagnose` can run.

    python benchmarks/defects/program.py transformer-values_read-3 [--cured] [--device cpu]

With `--serve` it takes steps whenever a line says for how many seconds, and answers with the
milliseconds of one. Where $DEFECTS_TOKEN names a file, it uses the GPU only while it alone holds
that file's lock, so that many may start while one is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._dynamo  # optimizers would import it in the first step, and so while others wait
from pairs import pair_named
from programs import steps
from recipes import Recipe
from turns import BUSY, keep_to_cores, take_turn

WARM_UP_S = 0.3
"""Before anything is timed; and at least so many steps, in which memory and kernels are chosen."""
WARM_UP_STEPS = 4
UNTIMED_S = 0.05
"""Before each timing, and at least as many steps as batches lie ready of a loader: each worker has
made two ahead."""


def main() -> None:
    """Take steps for ever, or as asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pair")
    parser.add_argument("--cured", action="store_true")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--serve", action="store_true")
    chosen = parser.parse_args()
    recipe = pair_named(chosen.pair).recipe(chosen.cured)
    if chosen.device == "cpu":
        torch.set_num_threads(1)  # so that it is not the machine's other work that is timed
    if chosen.serve:
        serve(recipe, chosen.device)
    held = take_turn()
    for _ in steps(recipe, chosen.device):
        pass
    del held


def serve(recipe: Recipe, device: str) -> None:
    """Answer with the time of a step of a whole batch, whenever a line says for how long, and with
    how much of one the GPU works, where it asks that."""
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed
    print(json.dumps("ready"), file=told, flush=True)
    if not sys.stdin.readline():  # who asked has ended
        os._exit(0)
    keep_to_cores()
    taken = steps(recipe, device)
    workers = max(recipe.workers, 1) if recipe.data == "loader" else 1
    ready = 2 * workers if recipe.data == "loader" and recipe.workers else 1
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    began = time.perf_counter()
    for _ in range(WARM_UP_STEPS):
        next(taken)
    while time.perf_counter() - began < WARM_UP_S:
        timed(taken, 1, wait)
    step_s = timed(taken, 2, wait)
    print(json.dumps(described(device)), file=told, flush=True)
    for line in sys.stdin:
        if line.strip() == BUSY:
            busy_ms = gpu_ms(taken, 2 * workers, wait) if device == "cuda" else None
            print(json.dumps(busy_ms and busy_ms * recipe.batch_divisor), file=told, flush=True)
            continue
        timed(taken, max(ready, int(UNTIMED_S / step_s)), wait)
        # Workers started alike deliver alike, several batches at once: whole turns of them count.
        turns = max(-(-2 // workers), int(float(line) / step_s / workers))
        step_s = timed(taken, turns * workers, wait)
        print(json.dumps(1e3 * step_s * recipe.batch_divisor), file=told, flush=True)
    os._exit(0)  # at once: workers and contexts need not be taken down one by one


def timed(taken: Iterator[None], count: int, wait: Callable[[], None]) -> float:
    """Return the seconds of a step."""
    wait()
    began = time.perf_counter()
    for _ in range(count):
        next(taken)
    wait()
    return (time.perf_counter() - began) / count


def gpu_ms(taken: Iterator[None], count: int, wait: Callable[[], None]) -> float:
    """Return for how many milliseconds of a step some kernel or copy runs on the GPU."""
    kinds = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profile:
        timed(taken, count, wait)
    on_gpu = torch.profiler.DeviceType.CUDA
    ran = [each.time_range for each in profile.events() if each.device_type == on_gpu]
    busy_us = end_us = 0.0
    for span in sorted(ran, key=lambda span: span.start):
        busy_us += max(0.0, span.end - max(span.start, end_us))
        end_us = max(end_us, span.end)
    return busy_us / 1e3 / count


def described(device: str) -> dict[str, Any]:
    """Return on what it runs."""
    found = {
        "gpu": "",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }
    if device == "cuda":
        found["gpu"] = torch.cuda.get_device_name()
        found["cudnn"] = torch.backends.cudnn.version()
        found["peak_bytes"] = torch.cuda.max_memory_allocated()
    return found


if __name__ == "__main__":
    main()
