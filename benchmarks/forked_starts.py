"""Time from a run's start to its first step, in fresh processes and forked ones, in turns.

    python benchmarks/forked_starts.py [--pairs 8] [--script train.py]

Beside it, the CPU time of the whole run, which others that use the machine change less, and what
the whole run took. Without a script, one is run that does next to nothing but import torch, numpy
and what AdamW imports when it is built; on a GPU where there is one. There all is told twice: the
second time while another process holds a context on that GPU, as a driver without its persistence
daemon sets a GPU up anew for the first process that opens it.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from gpuadvisor.collectors.devices import cpu_device, list_gpus
from gpuadvisor.collectors.script.request import Command, RunRequest
from gpuadvisor.collectors.script.runner import run_script, start_template
from gpuadvisor.collectors.script.specification import Schedule, Specification

SCHEDULE = Schedule(warmup_s=0.1, window_s=0.05, measure_s=0.2, min_steps=8)
SCRIPT = """
import numpy
import torch

torch.set_num_threads(1)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Linear(64, 64, device=device)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(100_000):
    model(torch.rand(64, 64, device=device)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
HOLDER = """
import sys, torch
torch.zeros(1, device="cuda")
print("held", flush=True)
sys.stdin.read()
"""
WHAT = ("to the first step", "CPU time of the run", "the whole run")
Seconds = tuple[float, float, float]


def run(request: RunRequest) -> Seconds:
    """Return the time to the first step, the CPU time and the time of a run, in seconds."""
    began_s = time.monotonic()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    outcome = run_script(request)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if outcome.measurement is None or outcome.forked != (request.template is not None):
        raise SystemExit(f"it could not be measured: {outcome.reason}")
    used = (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)
    return outcome.measurement.startup_s, used, time.monotonic() - began_s


def tell(where: str, pairs: Sequence[tuple[Seconds, Seconds]]) -> None:
    """Print the medians and ranges of runs in turns."""
    for place, name in enumerate(WHAT):
        for kind, side in (("fresh", 0), ("forked", 1)):
            values = [pair[side][place] for pair in pairs]
            print(
                f"{where}{name}, {kind:6} {median(values):6.2f} s in the median of {len(values)}"
                f" ({min(values):.2f} to {max(values):.2f})"
            )


def main() -> None:
    """Measure, and print the medians and their ranges."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--script")
    options = parser.parse_args()
    device = next(iter(list_gpus()), None) or cpu_device()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(options.script or Path(folder, "train.py")).absolute()
        if not options.script:
            script.write_text(SCRIPT)
        command = Command(sys.executable, str(script), folder=str(script.parent))
        specification = Specification(seed=0, schedule=SCHEDULE)
        notes = Path(folder, "imports.json")
        fresh = RunRequest(command, specification, device)
        run(replace(fresh, specification=replace(specification, notes=str(notes))))
        template = start_template(fresh, notes)
        try:
            forked = replace(fresh, template=template)

            def in_turns() -> list[tuple[Seconds, Seconds]]:
                return [(run(fresh), run(forked)) for _ in range(options.pairs)]

            tell("", in_turns())
            if device.is_gpu:
                holder = [sys.executable, "-c", HOLDER]
                pipe = subprocess.PIPE
                with subprocess.Popen(holder, stdin=pipe, stdout=pipe) as other:
                    if other.stdout and other.stdout.readline():
                        tell("while a process holds the GPU, ", in_turns())
                    other.kill()
        finally:
            template.close()
    print(f"the template imported for {template.import_s:.1f} s")


if __name__ == "__main__":
    main()
