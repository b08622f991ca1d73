"""What the harness costs: the step time of a script, with its hooks and without them.

    python benchmarks/harness_overhead.py [--pairs 24] [--steps 300] [--width N]

Two runs of a process differ by several percent, more than is looked for here. So one process under
the harness takes the hooks out of torch and puts them back, block by block, in turns (ABBA).
The step is a small one on purpose: a larger one hides the cost. On a GPU where there is one,
else on one thread of the CPU. Target: under 0.5 %.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from pathlib import Path

from gpuadvisor.collectors.devices import cpu_device, list_gpus
from gpuadvisor.collectors.script.request import Command, RunRequest
from gpuadvisor.collectors.script.runner import run_script
from gpuadvisor.collectors.script.specification import Schedule, Specification
from gpuadvisor.tuners.statistics import paired_ratio

SCHEDULE = Schedule(warmup_s=0.2, window_s=0.2, measure_s=3600.0, max_measure_s=3600.0)
"""Windows as short as in a study, and a measurement that the script's own end cuts off."""

SCRIPT = """
import json
import sys
import time

import torch
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

pairs, steps, width = map(int, sys.argv[1:])
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_num_threads(1)
torch.manual_seed(0)
layers = [torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU()) for _ in range(8)]
model = torch.nn.Sequential(*layers, torch.nn.Linear(width, 10)).to(device)
optimizer = torch.optim.Adam(model.parameters())
data = TensorDataset(torch.randn(32 * 64, width), torch.randint(10, (32 * 64,)))
loader = DataLoader(data, batch_size=64)


def batches():
    while True:
        yield from loader


def block(batches, steps):
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
        places = [(torch.Tensor, "backward"), (torch.autograd, "backward")]
        places.append((_BaseDataLoaderIter, "__next__"))
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


given = batches()
block(given, 200)
harness, found = Harness(), []
for pair in range(pairs):
    took = {}
    for hooked in ((True, False), (False, True))[pair % 2]:
        if not hooked:
            harness.leave()
        took[hooked] = block(given, steps)
        if not hooked:
            harness.come()
    found.append((took[True], took[False]))
print("found:", json.dumps(found))
"""


def main() -> None:
    """Measure, and print the ratio with its interval."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--steps", type=int, default=300, help="of a block")
    parser.add_argument("--width", type=int, help="of the layers; 2048 on a GPU, 256 on a CPU")
    parser.add_argument("--python", default=sys.executable)
    chosen = parser.parse_args()
    device = next(iter(list_gpus()), None) or cpu_device()
    width = chosen.width or (2048 if device.is_gpu else 256)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(SCRIPT)
        args = (str(chosen.pairs), str(chosen.steps), str(width))
        command = Command(chosen.python, str(script), args)
        outcome = run_script(RunRequest(command, Specification(seed=0, schedule=SCHEDULE), device))
    found = re.search(r"found: (.+)", outcome.output)
    if found is None:
        raise SystemExit(f"the script did not tell its step times:\n{outcome.output}")
    pairs = [(with_ms, bare_ms) for with_ms, bare_ms in json.loads(found[1])]
    for number, (with_ms, bare_ms) in enumerate(pairs):
        print(f"{number:3}  bare {bare_ms:8.4f} ms  with the harness {with_ms:8.4f} ms")
    cost = paired_ratio(pairs, looks=1)
    low, high = 100 * (cost.ci99_low - 1), 100 * (cost.ci99_high - 1)
    print(
        f"the harness costs {100 * (cost.ratio - 1):+.2f} % of a step "
        f"(99 % interval {low:+.2f} to {high:+.2f}, {cost.pairs} pairs) on {device.name}"
    )


if __name__ == "__main__":
    main()
