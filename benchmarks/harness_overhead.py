"""What the harness costs: the step time of a script that times itself, without and with it.

    python benchmarks/harness_overhead.py [--pairs 10] [--steps 300] [--width N]

Bare and harnessed runs are fresh processes in turns (ABBA), so that drift of the machine cancels.
The step is a small one on purpose: a larger one hides the cost. On a GPU where there is one,
else on one thread of the CPU. Target: under 0.5 %.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from gpuadvisor.collectors.devices import cpu_device, list_gpus
from gpuadvisor.collectors.script.request import Command, RunRequest
from gpuadvisor.collectors.script.runner import run_script
from gpuadvisor.collectors.script.specification import Schedule, Specification
from gpuadvisor.domain.device import Device
from gpuadvisor.tuners.statistics import paired_ratio

SCHEDULE = Schedule(warmup_s=0.2, window_s=0.2, measure_s=3600.0)
"""Windows as short as in a study, and a measurement that the script's own end cuts off."""

SCRIPT = """
import sys
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

steps, width = map(int, sys.argv[1:])
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_num_threads(1)
torch.manual_seed(0)
layers = [torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU()) for _ in range(8)]
model = torch.nn.Sequential(*layers, torch.nn.Linear(width, 10)).to(device)
optimizer = torch.optim.Adam(model.parameters())
warm_up = 50
data = TensorDataset(torch.randn(32 * 64, width), torch.randint(10, (32 * 64,)))
loader = DataLoader(data, batch_size=64)


def wait():
    if device == "cuda":
        torch.cuda.synchronize()


step = 0
while step < warm_up + steps:
    for batch, labels in loader:
        if step == warm_up:
            wait()
            began = time.perf_counter()
        optimizer.zero_grad()
        output = model(batch.to(device))
        torch.nn.functional.cross_entropy(output, labels.to(device)).backward()
        optimizer.step()
        step += 1
        if step == warm_up + steps:
            wait()
            print("ms a step:", 1e3 * (time.perf_counter() - began) / steps)
            break
"""


def main() -> None:
    """Measure, and print the ratio with its interval."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--width", type=int, help="of the layers; 2048 on a GPU, 256 on a CPU")
    parser.add_argument("--python", default=sys.executable)
    chosen = parser.parse_args()
    device = next(iter(list_gpus()), None) or cpu_device()
    width = chosen.width or (2048 if device.is_gpu else 256)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(SCRIPT)
        command = Command(chosen.python, str(script), (str(chosen.steps), str(width)))
        pairs = []
        for number in range(chosen.pairs + 1):
            if number % 2:
                bare_ms = _bare_ms(command)
                with_ms = _harnessed_ms(command, device)
            else:
                with_ms = _harnessed_ms(command, device)
                bare_ms = _bare_ms(command)
            if number:  # the first pair fills the disk's cache
                pairs.append((with_ms, bare_ms))
                print(f"{number:3}  bare {bare_ms:8.3f} ms  with the harness {with_ms:8.3f} ms")
    cost = paired_ratio(pairs, looks=1)
    low, high = 100 * (cost.ci99_low - 1), 100 * (cost.ci99_high - 1)
    print(
        f"the harness costs {100 * (cost.ratio - 1):+.2f} % of a step "
        f"(99 % interval {low:+.2f} to {high:+.2f}, {cost.pairs} pairs) on {device.name}"
    )


def _bare_ms(command: Command) -> float:
    run = subprocess.run(command.line(), capture_output=True, text=True, check=True)
    return _own_ms(run.stdout)


def _harnessed_ms(command: Command, device: Device) -> float:
    outcome = run_script(RunRequest(command, Specification(seed=0, schedule=SCHEDULE), device))
    return _own_ms(outcome.output)


def _own_ms(output: str) -> float:
    found = re.search(r"ms a step: ([0-9.]+)", output)
    if found is None:
        raise SystemExit(f"the script did not tell its step time:\n{output}")
    return float(found[1])


if __name__ == "__main__":
    main()
