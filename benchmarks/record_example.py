"""Make the recording that is shown without a GPU: idle, training, waiting for data, full power.

    python benchmarks/record_example.py examples/h100.gpr [--seconds 20]

Runs itself under `gpuadvisor record`, one phase after the other, on the GPU of this machine.
Needs torch.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any


def main() -> None:
    """Record, or (with --work) be what is recorded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("recording", nargs="?", default="examples/h100.gpr")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each phase")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.work:
        work(chosen.seconds)
        return
    me = [sys.executable, __file__, "--work", "--seconds", str(chosen.seconds)]
    record = [sys.executable, "-m", "gpuadvisor", "record", "--force", "-o", chosen.recording]
    raise SystemExit(subprocess.run([*record, "--", *me]).returncode)


def work(seconds: float) -> None:
    """Be idle, train, wait for data, and draw as much power as the GPU is allowed to."""
    time.sleep(seconds)
    import torch

    layers = [torch.nn.Sequential(torch.nn.Linear(4096, 4096), torch.nn.GELU()) for _ in range(6)]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    batch = torch.randn(1024, 4096)

    def train(pause_s: float = 0.0) -> None:
        time.sleep(pause_s)
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            model(batch.cuda()).square().mean().backward()
        optimizer.step()
        torch.cuda.synchronize()

    repeat(train, seconds)
    repeat(lambda: train(pause_s=0.1), seconds)
    left = torch.randn(16384, 16384, device="cuda", dtype=torch.bfloat16)

    def multiply() -> None:
        for _ in range(20):
            left @ left
        torch.cuda.synchronize()

    repeat(multiply, seconds)
    time.sleep(seconds / 4)


def repeat(step: Callable[[], Any], seconds: float) -> None:
    """Call it until the time is over."""
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        step()


if __name__ == "__main__":
    main()
