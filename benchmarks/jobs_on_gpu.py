"""Five jobs on a real GPU under a daemon: is the cause that telemetry alone names the right one?

    python benchmarks/jobs_on_gpu.py [--seconds 75] [--jobs loader launches idle healthy capped]

Starts a daemon with a store of its own, then each job by itself for so many seconds, and prints for
each the causes that `gpuadvisor jobs` names with their share of its time, what it says could be
gained, and what telemetry saw; before a job ends, what `watch --once` says of it, and what a
profile of a few of its steps (`profile --attach`) says. Each job is this file with `--job NAME`, so
that the same can be profiled or tuned: `gpuadvisor diagnose benchmarks/jobs_on_gpu.py -- --job
loader`. Targets: the expected cause holds for most of the time of each, "cannot tell" for two of
the five at most, and neither `watch` nor the profile contradicts it. Takes 5 x (seconds + 15) s.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

EXPECTED = {
    "loader": ("waiting_for_input",),
    "launches": ("launch_bound", "waits_for_host"),
    "idle": ("idle",),
    "healthy": ("healthy",),
    "capped": ("clocks_held",),
}
"""The causes that are true of each. At a low utilization telemetry cannot tell short launches from
batches that the same thread makes, and says that one of the two is waited for."""
UNTOLD = "untold"
MOST_UNTOLD = 2
PAUSE_S = 6.0
"""Between two jobs, so that the list of processes is without the one before."""
HOLD_BYTES = 20 << 30
LOOK_S = 30.0
"""Before a job's end, when it is looked at and profiled."""


# -- the jobs --------------------------------------------------------------------------------------


def loader(until_s: float) -> None:
    """Train a small network on pictures that two workers take 15 ms each to make."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Slow(Dataset):
        def __len__(self) -> int:
            return 1 << 20

        def __getitem__(self, index: int) -> Any:
            end_s = time.thread_time() + 0.015
            picture = torch.rand(3, 224, 224)
            while time.thread_time() < end_s:
                picture = picture.roll(1, 2)
            return picture, index % 10

    network = _convolutions(64, 4)
    batches = DataLoader(Slow(), batch_size=64, num_workers=2)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    for pictures, labels in batches:
        loss = torch.nn.functional.cross_entropy(network(pictures.cuda()), labels.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() > until_s:
            return


def launches(until_s: float) -> None:
    """Train a deep network of tiny layers: hundreds of kernels of some microseconds a step."""
    import torch

    layers = [m for _ in range(200) for m in (torch.nn.Linear(64, 64), torch.nn.ReLU())]
    network = torch.nn.Sequential(*layers, torch.nn.Linear(64, 10)).cuda()
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    batch, labels = torch.rand(16, 64).cuda(), torch.randint(0, 10, (16,)).cuda()
    while time.time() < until_s:
        loss = torch.nn.functional.cross_entropy(network(batch), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def idle(until_s: float) -> None:
    """Hold memory and do nothing, as a notebook over lunch."""
    import torch

    held = torch.empty(HOLD_BYTES, dtype=torch.uint8, device="cuda")
    while time.time() < until_s and held.numel():
        time.sleep(1)


def healthy(until_s: float) -> None:
    """Train a convolutional network on batches that are there already."""
    import torch

    network = _convolutions(128, 16).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    pictures = torch.rand(128, 3, 224, 224).cuda().to(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (128,)).cuda()
    while time.time() < until_s:
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(network(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def capped(until_s: float) -> None:
    """Multiply large matrices of random numbers: more power than the limit allows."""
    import torch

    a = torch.randn(16384, 16384, device="cuda", dtype=torch.bfloat16)
    b = torch.randn_like(a)
    while time.time() < until_s:
        for _ in range(20):
            torch.mm(a, b)
        torch.cuda.synchronize()


def _convolutions(channels: int, layers: int) -> Any:
    import torch

    parts: list[Any] = [torch.nn.Conv2d(3, channels, 7, stride=4, padding=3)]
    for _ in range(layers):
        parts += [
            torch.nn.Conv2d(channels, channels, 3, padding=1),
            torch.nn.BatchNorm2d(channels),
            torch.nn.ReLU(),
        ]
    ends = [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(channels, 10)]
    return torch.nn.Sequential(*parts, *ends).cuda()


JOBS: dict[str, Callable[[float], None]] = {
    "loader": loader, "launches": launches, "idle": idle, "healthy": healthy, "capped": capped,
}  # fmt: skip


# -- the daemon ------------------------------------------------------------------------------------


def main() -> int:
    """Run all jobs under a daemon and print what is said of them; or run one."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=75.0)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--job", choices=JOBS, help="be this job")
    args = parser.parse_args()
    if args.job:
        import gpuadvisor

        gpuadvisor.profile_on_demand()
        JOBS[args.job](time.time() + args.seconds)
        return 0
    with tempfile.TemporaryDirectory() as home:
        environ = {**os.environ, "GPUADVISOR_HOME": home}
        _advisor(environ, "daemon", "start")
        try:
            for name in args.jobs:
                time.sleep(PAUSE_S)
                command = [sys.executable, __file__, "--job", name, "--seconds", str(args.seconds)]
                job = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)
                time.sleep(max(1.0, args.seconds - LOOK_S))
                _look(environ, name, job.pid)
                _, error = job.communicate()
                if job.returncode:
                    print(f"{name}: failed\n{error[-2000:]}")
        finally:
            _advisor(environ, "daemon", "stop")
        told = json.loads(_advisor(environ, "jobs", "--json", "--since", "2h"))
        print(_advisor(environ, "jobs", "--all"))
    return _print(told["jobs"], args.jobs)


def _advisor(environ: dict[str, str], *words: str, may_fail: bool = False) -> str:
    command = [sys.executable, "-m", "gpuadvisor", *words]
    done = subprocess.run(command, env=environ, capture_output=True, text=True)
    if done.returncode and not may_fail:
        sys.exit(f"gpuadvisor {' '.join(words)}: {done.stderr}")
    return done.stdout + (done.stderr if done.returncode else "")


def _look(environ: dict[str, str], name: str, pid: int) -> None:
    """Print what `watch` says while a job runs, and what its profile says."""
    print(f"\n== {name}, seen by watch\n{_advisor(environ, 'watch', '--once', may_fail=True)}")
    if name == "idle":
        return
    words = ("--attach", str(pid), "--name", f"job-{name}")
    print(_advisor(environ, "profile", *words, may_fail=True))
    print(_advisor(environ, "diagnose", f"job-{name}", may_fail=True), flush=True)


def _print(jobs: list[dict[str, Any]], names: list[str]) -> int:
    untold = wrong = 0
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    ours = [job for job in jobs if not gpu.isdecimal() or int(gpu) in job["gpu_indices"]]
    ordered = sorted(ours, key=lambda job: job["start_s"])
    if not all(job["command"] for job in ordered):
        print("Processes have no names here (a container without --pid=host): jobs by their order.")
    by_name = {n: job for job in ordered for n in names if f"--job {n}" in (job["command"] or "")}
    for place, name in enumerate(names):
        job = by_name.get(name) or (ordered[place] if place < len(ordered) else None)
        if job is None:
            print(f"{name}: not seen")
            wrong += 1
            continue
        total = sum(each["gpu_hours"] for each in job["causes"].values()) or 1.0
        shares = {n: each["gpu_hours"] / total for n, each in job["causes"].items()}
        named = max(shares, key=lambda n: shares[n], default=UNTOLD)
        untold += named == UNTOLD
        wrong += named not in (UNTOLD, *EXPECTED[name])
        seen = {n: job[n] and round(job[n], 2) for n in (
            "utilization_pct", "sm_active_pct", "cpu_cores", "children_cpu_cores", "energy_kwh",
        )}  # fmt: skip
        print(
            f"{name}: {named} (expected {' or '.join(EXPECTED[name])});"
            f" { ({n: round(s, 2) for n, s in shares.items()}) }; wasted at most"
            f" {100 * job['wasted_gpu_hours'] / (job['gpu_hours'] or 1):.0f} % of its time; {seen}"
        )
    print(f"{wrong} wrong, {untold} cannot be told (at most {MOST_UNTOLD})")
    return 0 if not wrong and untold <= MOST_UNTOLD else 1


if __name__ == "__main__":
    sys.exit(main())
