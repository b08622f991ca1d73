"""The training that `gate_on_processes.py` gates: steps of some 50 ms, most of it units of work.

python gated_script.py               trains until it is ended, as settings.json beside it says
python gated_script.py --calibrate   prints what a step and a unit of work take here
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

STEP_MS = 50.0
BLOCKS, BLOCK_STEPS = 12, 10
"""Of steps with few and with many units, in turns, by which both are timed."""
WARM_S = 2.0
"""Time until threads, caches and clocks are as they stay."""
SIZES = {"cpu": (128, 256), "cuda": (1536, 4096)}
"""Rows of a unit's matrices, and width of the model."""


def main() -> None:
    """Train, or time what a step takes."""
    path = Path(__file__).with_name("settings.json")
    settings = json.loads(path.read_text("utf-8"))
    device = torch.device(settings["device"])
    torch.manual_seed(0)
    rows, width = SIZES[device.type]
    layers = [torch.nn.Linear(width, width), torch.nn.Tanh(), torch.nn.Linear(width, width)]
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs = torch.randn(64, width, device=device)
    matrix = torch.randn(rows, rows, device=device) / rows**0.5

    def work(units: int) -> None:
        result = matrix
        for _ in range(units):
            result = result @ matrix

    def loss_of(outputs: torch.Tensor) -> torch.Tensor:
        scaled = outputs * 0.5
        if settings.get("graph_break"):
            torch._dynamo.graph_break()
        return (scaled + 1.0).square().mean()

    loss_fn = torch.compile(loss_of, backend="eager") if settings.get("compile") else loss_of

    def step(units: int) -> None:
        optimizer.zero_grad()
        work(units)
        if settings.get("kernel"):
            torch.cumsum(inputs, 0)
        loss_fn(model(inputs)).backward()
        optimizer.step()

    if "--calibrate" in sys.argv:
        print(json.dumps(calibrated(device, step)))
        return
    while True:
        step(settings["units"])


def calibrated(device: torch.device, step: Callable[[int], None]) -> dict[str, float]:
    """Return how many units make a step of `STEP_MS`, and what a unit takes, in ms."""

    def took_ms(units: int, steps: int = BLOCK_STEPS) -> float:
        began = time.perf_counter()
        for _ in range(steps):
            step(units)
        if device.type == "cuda":
            torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - began) / steps

    few, began = 10, time.perf_counter()
    while took_ms(few) < STEP_MS / 2 or time.perf_counter() - began < WARM_S:
        few = few * 2 if took_ms(few) < STEP_MS / 2 else few
    pairs = [(took_ms(few), took_ms(2 * few)) for _ in range(BLOCKS)]
    unit_ms = median(more - less for less, more in pairs) / few
    rest_ms = median(less for less, _ in pairs) - few * unit_ms
    units = max(1, round((STEP_MS - rest_ms) / unit_ms))
    return {"units": units, "unit_ms": unit_ms, "step_ms": rest_ms + units * unit_ms}


if __name__ == "__main__":
    main()
