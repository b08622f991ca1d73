"""Record many runs of one unchanged script, for `benchmarks/false_claims.py` to draw from.

    python benchmarks/record_runs.py tests/data/aa_runs.json [--runs 48] [SCRIPT [ARGUMENT ...]]

Each run is a fresh process under the harness, as in a study. Kept are the step time of every
window of every run, in the order in which they ran, so that drift between runs is kept too.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from pathlib import Path

from gpuadvisor.collectors.devices import cpu_device, list_gpus
from gpuadvisor.collectors.script.request import Command, RunRequest
from gpuadvisor.collectors.script.runner import run_script
from gpuadvisor.collectors.script.specification import Schedule, Specification

SCHEDULE = Schedule(warmup_s=0.4, measure_s=1.5, window_s=0.1875, max_measure_s=6.0)
"""As a study with the default budget of 10 minutes has it, but the shortest measurement."""
SCRIPT = """
import torch

torch.set_num_threads(1)
torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(100_000):
    batch, labels = torch.randn(64, 256), torch.randint(10, (64,))
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(batch), labels).backward()
    optimizer.step()
"""


def main() -> None:
    """Run the script again and again and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--runs", type=int, default=48)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("script", nargs="*")
    chosen = parser.parse_args()
    device = next(iter(list_gpus()), None) or cpu_device()
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder) / "train.py"
        own.write_text(SCRIPT)
        script, *args = chosen.script or [str(own)]
        request = RunRequest(
            Command(chosen.python, script, tuple(args)),
            Specification(seed=0, schedule=SCHEDULE),
            device,
        )
        runs = []
        for number in range(chosen.runs):
            measurement = run_script(request).measurement
            if measurement is None:
                continue
            runs.append([round(step_ms, 4) for step_ms in measurement.window_step_ms])
            print(f"{number + 1}/{chosen.runs}: {measurement.mean_step_ms:.3f} ms", flush=True)
    name = Path(script).name
    record = {
        "device": device.name,
        "platform": platform.machine(),
        "script": " ".join([name, *args]),
        "unit": "ms a step, by window",
        "runs": runs,
    }
    lines = ",\n    ".join(json.dumps(run) for run in record.pop("runs"))
    head = json.dumps(record, indent=2).removesuffix("\n}")
    chosen.file.write_text(f'{head},\n  "runs": [\n    {lines}\n  ]\n}}\n')


if __name__ == "__main__":
    main()
