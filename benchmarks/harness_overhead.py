"""What the harness costs a step, with its hooks and without them.

    python benchmarks/harness_overhead.py [--pairs 800] [--steps 50]

Two runs of a process differ by several percent, more than is looked for here. So one process under
the harness takes the hooks out of torch and puts them back, block by block, in turns (ABBA). What
they cost does not depend on the model, so it is measured on a step that does next to nothing, where
it shows, and then said as a share of a usual step, which is measured too: nine layers of 2048 with
Adam on a GPU, of 256 on one thread of the CPU. Of many short steps in a window fewer are marked, so
windows are shortened until they have as many as those of a study have usual steps. Target: under
0.5 % of a usual step.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from gpuadvisor.collectors.devices import cpu_device, list_gpus
from gpuadvisor.collectors.script.request import Command, RunRequest
from gpuadvisor.collectors.script.runner import run_script
from gpuadvisor.collectors.script.specification import Schedule, Specification

WINDOW_S = Schedule().window_s
"""Length of a window in a study of ten minutes."""
FIRST_PAIRS = 4
"""Pairs of blocks of the run that finds out how long a step takes."""

Z_99 = 2.576
"""Standard deviations on each side of the mean that hold 99 % of a normal distribution."""

SCRIPT = """
import json
import sys
import time

import torch
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

SETTLING_STEPS = 10  # what the interpreter had specialised is void after a patch

pairs, steps, width, usual_width = map(int, sys.argv[1:])
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Linear(width, 10).to(device)
optimizer = torch.optim.SGD(model.parameters())
layers = [torch.nn.Linear(usual_width, usual_width) for _ in range(8)]
usual = torch.nn.Sequential(*layers, torch.nn.Linear(usual_width, 10)).to(device)
usual_optimizer = torch.optim.Adam(usual.parameters())


def loader(width):
    data = TensorDataset(torch.randn(32 * 64, width), torch.randint(10, (32 * 64,)))
    return DataLoader(data, batch_size=64)


def batches(width):
    while True:
        yield from loader(width)


def block(batches, steps, model=model, optimizer=optimizer):
    began = time.perf_counter()
    for _ in range(steps):
        batch, labels = next(batches)
        optimizer.zero_grad()
        output = model(batch.to(device))
        torch.nn.functional.cross_entropy(output, labels.to(device)).backward()
        optimizer.step()
    if device == "cuda":
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - began) / steps


class Harness:
    def __init__(self):
        places = [(torch.autograd, "backward"), (_BaseDataLoaderIter, "__next__")]
        self.patched = [(owner, name, getattr(owner, name)) for owner, name in places]
        self.hooks = dict(optimizers._global_optimizer_post_hooks)
        self.call = vars(model)["_compiled_call_impl"]
        assert self.hooks and self.call is not None, "this runs under the harness"

    def leave(self):
        for owner, name, patch in self.patched:
            setattr(owner, name, patch.__wrapped__)
        optimizers._global_optimizer_post_hooks.clear()
        object.__setattr__(model, "_compiled_call_impl", None)

    def come(self):
        for owner, name, patch in self.patched:
            setattr(owner, name, patch)
        optimizers._global_optimizer_post_hooks.update(self.hooks)
        object.__setattr__(model, "_compiled_call_impl", self.call)


given = batches(width)
block(given, 500)
harness, found = Harness(), []
for pair in range(pairs):
    took = {}
    for hooked in ((True, False), (False, True))[pair % 2]:
        if not hooked:
            harness.leave()
        block(given, SETTLING_STEPS)
        took[hooked] = block(given, steps)
        if not hooked:
            harness.come()
    found.append((took[True], took[False]))
harness.leave()
given = batches(usual_width)
block(given, 20, usual, usual_optimizer)
print("found:", json.dumps({"pairs": found, "usual": block(given, 60, usual, usual_optimizer)}))
"""


def main() -> None:
    """Measure, and print the ratio with its interval."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=800)
    parser.add_argument("--steps", type=int, default=50, help="of a block")
    parser.add_argument("--python", default=sys.executable)
    chosen = parser.parse_args()
    device = next(iter(list_gpus()), None) or cpu_device()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(SCRIPT)

        def told(pairs: int, window_s: float) -> dict[str, Any]:
            schedule = Schedule(
                warmup_s=0.2, measure_s=3600.0, max_measure_s=3600.0, window_s=window_s
            )
            widths = ("8", "2048" if device.is_gpu else "256")
            args = (str(pairs), str(chosen.steps), *widths)
            command = Command(chosen.python, str(script), args)
            specification = Specification(seed=0, schedule=schedule)
            outcome = run_script(RunRequest(command, specification, device))
            found = re.search(r"found: (.+)", outcome.output)
            if found is None:
                raise SystemExit(f"the script did not tell its step times:\n{outcome.output}")
            return dict(json.loads(found[1]))

        first = told(FIRST_PAIRS, WINDOW_S)
        bare_ms = median(bare for _, bare in first["pairs"])
        found = told(chosen.pairs, WINDOW_S * bare_ms / first["usual"])
    costs_us = sorted(1e3 * (with_ms - bare_ms) for with_ms, bare_ms in found["pairs"])
    low, high = median_interval(costs_us)
    cost_us, usual_us = median(costs_us), 1e3 * found["usual"]
    print(f"{len(costs_us)} pairs of blocks on {device.name}")
    print(f"the harness costs {cost_us:.1f} us a step (99 % interval {low:.1f} to {high:.1f})")
    shares = (100 * each / usual_us for each in (cost_us, low, high))
    print("of a usual step, {:.0f} us: {:.2f} % ({:.2f} to {:.2f})".format(usual_us, *shares))


def median_interval(ordered: Sequence[float]) -> tuple[float, float]:
    """Return the 99 % interval of the median, by the ranks of a binomial distribution."""
    half = Z_99 * math.sqrt(len(ordered)) / 2
    middle = len(ordered) / 2
    return ordered[max(0, math.floor(middle - half))], ordered[
        min(len(ordered) - 1, math.ceil(middle + half))
    ]


if __name__ == "__main__":
    main()
