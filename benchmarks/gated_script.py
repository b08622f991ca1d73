"""The training that `gate_on_processes.py` gates: steps of some 50 ms, most of it units of work.

python gated_script.py               trains until it is ended, as settings.json beside it says
python gated_script.py --calibrate   prints what a step and a unit of work take here
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

STEP_MS = 50.0
BLOCKS, BLOCK_STEPS = 12, 10
"""Of steps with few and with many units, in turns, by which both are timed."""
WARM_S = 2.0
"""Time until threads, caches and clocks are as they stay."""
WORK = {"cpu": (20, 128, 1 << 16, 256), "cuda": (200, 1 << 16, 1 << 12, 4096)}
"""Operations of a step's work, their elements a unit, most units, and the width of the model. More
units are longer operations, not more of them: what is counted stays as it was."""


def main() -> None:
    """Train, or time what a step takes."""
    path = Path(__file__).with_name("settings.json")
    settings = json.loads(path.read_text("utf-8"))
    device = torch.device(settings["device"])
    torch.manual_seed(0)
    operations, elements, most, width = WORK[device.type]
    layers = [torch.nn.Linear(width, width), torch.nn.Tanh(), torch.nn.Linear(width, width)]
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs = torch.randn(64, width, device=device)
    values = torch.randn(most * elements, device=device)
    results = torch.empty_like(values)

    def work(units: int) -> None:
        size = units * elements
        for _ in range(operations):
            torch.tanh(values[:size], out=results[:size])

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
        print(json.dumps(calibrated(device, step, most)))
        return
    while True:
        step(settings["units"])


def calibrated(device: torch.device, step: Callable[[int], None], most: int) -> dict[str, float]:
    """Return how many units make a step of `STEP_MS`, and what a unit takes, in ms."""

    def took_ms(units: int, steps: int = BLOCK_STEPS) -> float:
        began = time.perf_counter()
        for _ in range(steps):
            step(units)
        if device.type == "cuda":
            torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - began) / steps

    few, began = 10, time.perf_counter()
    while (took_ms(few) < STEP_MS / 2 and few < most // 2) or time.perf_counter() - began < WARM_S:
        few = min(most // 2, 2 * few) if took_ms(few) < STEP_MS / 2 else few
    pairs = [(took_ms(few), took_ms(2 * few)) for _ in range(BLOCKS)]
    less_ms, more_ms = map(min, zip(*pairs, strict=True))  # what else runs only adds to it
    unit_ms = (more_ms - less_ms) / few
    if unit_ms <= 0:
        raise SystemExit(f"{few} more units took no time: this machine is too busy to time them")
    rest_ms = less_ms - few * unit_ms
    units = min(most * 3 // 4, max(1, round((STEP_MS - rest_ms) / unit_ms)))
    return {"units": units, "unit_ms": unit_ms, "step_ms": rest_ms + units * unit_ms}


if __name__ == "__main__":
    main()
