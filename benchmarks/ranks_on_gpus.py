"""A rank that is late, planted in a training on several GPUs: does `diagnose FOLDER` name it?

    python benchmarks/ranks_on_gpus.py [--ranks 4] [--kept FOLDER] [--cases even host device turns]

Each case trains a network with DistributedDataParallel, a process a GPU, and records some steps of
each rank with the torch profiler as anybody would; then the real `gpuadvisor diagnose` reads the
folder. `even` has nothing planted; in `host` one rank reads its loss and sleeps before its backward
pass, in `device` one computes more on its GPU, and in `turns` another one does so in each step.
What was planted is timed by itself in the late rank, without a profiler. Prints a line a case: the
ranks' step, what was planted, what is found. Status 1 where a rule or a rank is another one than
planted. Takes about a minute with four GPUs. `--device cpu` tries the whole way without a GPU
(gloo), whose recordings have nothing to match.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

LATE = {"even": None, "host": 1, "device": 0, "turns": None}
"""Which rank is late in each case; None where none is, or another one in each step."""
EXPECTED = {
    "even": None,
    "host": "straggler_rank",
    "device": "straggler_rank",
    "turns": "uneven_ranks",
}
"""Which rule must say so; `uneven_ranks` speaks of ranks that take turns."""
ABOUT_RANKS = ("straggler_rank", "uneven_ranks")
STEPS, WARM_STEPS = 12, 20
LIMIT_S = 150.0
"""For the ranks of a case."""
SLEEP_S = 0.004
WORK = {"cuda": (4096, 12, 512), "cpu": (256, 4, 32)}
"""Width and number of layers, and rows of a batch."""
MORE = {"cuda": 3, "cpu": 8}
"""Products of the size of a layer that a late GPU computes in addition."""


def train(case: str, rank: int, ranks: int, device: str, trace: Path) -> dict[str, Any]:
    """Be one rank; return what a step takes, and by how much what is planted makes it longer."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.profiler import ProfilerActivity, profile, schedule

    place = torch.device(device, rank if device == "cuda" else None)
    if device == "cuda":
        torch.cuda.set_device(place)
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if device == "cuda" else "gloo", rank=rank, world_size=ranks)
    width, depth, rows = WORK[device]
    torch.manual_seed(0)
    layers = [torch.nn.Linear(width, width) for _ in range(depth)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers).to(place))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    inputs = torch.randn(rows, width, device=place)
    large = torch.randn(width, width, device=place)

    def delay() -> None:
        if case == "host":
            time.sleep(SLEEP_S)
        elif case in ("device", "turns"):
            for _ in range(MORE[device]):
                torch.mm(large, large)

    def is_late(step: int) -> bool:
        return rank == (step % ranks if case == "turns" else LATE[case])

    def step(number: int) -> None:
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        if is_late(number):
            if case == "host":
                loss.item()  # as who logs does: else the queue of the GPU hides what comes now
            delay()
        loss.backward()
        optimizer.step()

    def took_ms(work: Callable[[int], None], count: int) -> float:
        _wait(device)
        began_s = time.perf_counter()
        for number in range(count):
            work(number)
        _wait(device)
        return 1e3 * (time.perf_counter() - began_s) / count

    took_ms(step, WARM_STEPS)
    dist.barrier()
    step_ms = took_ms(step, STEPS)
    delay_ms = took_ms(lambda _: delay(), STEPS)
    dist.barrier()
    activities = [ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(ProfilerActivity.CUDA)
    plan = schedule(wait=2, warmup=2, active=STEPS)
    with profile(activities=activities, schedule=plan) as recorded:
        for number in range(STEPS + 4):
            step(number)
            recorded.step()
    _wait(device)
    recorded.export_chrome_trace(str(trace))
    dist.barrier()
    dist.destroy_process_group()
    return {"rank": rank, "step_ms": step_ms, "delay_ms": delay_ms}


def _wait(device: str) -> None:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def record(case: str, ranks: int, device: str, folder: Path) -> list[dict[str, Any]]:
    """Run all ranks of a case; return what each says. RuntimeError where one fails."""
    folder.mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    running = []
    for rank in range(ranks):
        words = [sys.executable, __file__, "--case", case, "--rank", str(rank)]
        words += ["--ranks", str(ranks), "--device", device]
        words += ["--trace", str(folder / f"rank{rank}.json")]
        pipe = subprocess.PIPE
        running.append(
            subprocess.Popen(words, env=environment, text=True, stdout=pipe, stderr=pipe)
        )
    until_s, said = time.monotonic() + LIMIT_S, []
    try:
        for process in running:
            out, error = process.communicate(timeout=max(1.0, until_s - time.monotonic()))
            if process.returncode:
                raise RuntimeError(f"{case}: a rank failed: {error[-800:]}")
            said.append(json.loads(out.splitlines()[-1]))
    finally:
        for process in running:
            process.kill()
            process.wait()
    return said


def diagnosed(folder: Path) -> Mapping[str, Any]:
    """Return what the real program says of the folder; RuntimeError where it says nothing."""
    environment = {**os.environ, "GPUADVISOR_HOME": str(folder.parent / "home")}
    words = [sys.executable, "-m", "gpuadvisor", "diagnose", str(folder), "--json", "--all"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if not done.stdout.strip():
        raise RuntimeError(f"diagnose says nothing: {done.stderr[-500:]}")
    found: Mapping[str, Any] = json.loads(done.stdout)
    return found


def judged(
    case: str, said: Sequence[Mapping[str, Any]], found: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what was planted beside what was found."""
    about = [each for each in found["findings"] if each["rule"] in ABOUT_RANKS]
    first = about[0] if about else None
    planted = LATE[case]
    right = (first and first["rule"]) == EXPECTED[case]
    if first and planted is not None:
        right = right and str(planted) in first["summary"].partition("comes last")[0]
    return {
        "case": case,
        "right": right,
        "late": planted,
        "delay_ms": said[planted or 0]["delay_ms"] if case != "even" else 0.0,
        "step_ms": [round(each["step_ms"], 3) for each in said],
        "rule": first and first["rule"],
        "says": first and first["summary"],
        "worth_pct": first and first["improvement_pct"],
        "figures": first and first["evidence"],
        "first_finding": found["findings"][0]["summary"] if found["findings"] else None,
    }


def main() -> int:
    """Record and judge the cases, or be one rank."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=4, help="one a GPU (default: 4)")
    parser.add_argument("--cases", nargs="+", choices=tuple(LATE), default=list(LATE))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--kept", type=Path, help="keep the recordings in this folder")
    parser.add_argument("--case", choices=tuple(LATE), help="be a rank of this case")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--trace", type=Path)
    chosen = parser.parse_args()
    if chosen.case:
        print(
            json.dumps(train(chosen.case, chosen.rank, chosen.ranks, chosen.device, chosen.trace))
        )
        return 0
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="ranks-") as temporary:
        above = (chosen.kept or Path(temporary)).absolute()
        for case in chosen.cases:
            said = record(case, chosen.ranks, chosen.device, above / case)
            row = judged(case, said, diagnosed(above / case))
            wrong += not row["right"]
            print(json.dumps(row), flush=True)
    print(f"{len(chosen.cases) - wrong} of {len(chosen.cases)} cases are right")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
