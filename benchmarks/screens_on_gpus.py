"""What `gpuadvisor watch` says of GPUs whose load is known: is the sentence on each line true?

    python benchmarks/screens_on_gpus.py RECORDING.gpr [--seconds 70] [--other-user nobody]

Records four GPUs, or as many as there are, while jobs of `jobs_on_gpu.py` run on them: a training
that has all it needs, a notebook that holds memory and does nothing, two users' processes on one
GPU, and a training that waits for its batches. Then it prints what the page says, live and out of
the recording, below what is known of each GPU: a person judges. The recording is the example that
is kept. The other user must be able to read this repository, and it takes root to be two users.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

JOBS = Path(__file__).with_name("jobs_on_gpu.py")
LOADS = (
    ("trains, and has all it needs", (("healthy", False),)),
    ("20 GiB held, nothing done", (("idle", False),)),
    ("two users share it: one trains a large network, one many tiny layers",
     (("healthy", False), ("launches", True))),
    ("waits for its batches most of the time", (("loader", False),)),
)  # fmt: skip
"""Of each GPU what is known, and the jobs on it: name, and whether the other user runs it."""
BEFORE_S, AFTER_S = 8.0, 6.0
"""Recorded before the jobs begin, and after they end."""


def main() -> int:
    """Run the jobs, and print what is said of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("recording", type=Path)
    parser.add_argument("--seconds", type=float, default=70.0, help="of the jobs (default: 70)")
    parser.add_argument("--gpus", type=int, default=len(LOADS), help="to use (default: 4)")
    parser.add_argument("--other-user", default="nobody")
    chosen = parser.parse_args()
    advisor = [sys.executable, "-m", "gpuadvisor"]
    lasts = f"{BEFORE_S + chosen.seconds + AFTER_S:.0f}s"
    record = [*advisor, "record", "--force", "-o", str(chosen.recording), "--duration", lasts]
    running = [subprocess.Popen(record)]
    try:
        time.sleep(BEFORE_S)
        for gpu, (_, jobs) in enumerate(LOADS[: chosen.gpus]):
            for name, is_other in jobs:
                words = [sys.executable, str(JOBS), "--job", name, "--seconds", str(chosen.seconds)]
                environment = {**os.environ, "CUDA_VISIBLE_DEVICES": str(gpu), "HOME": "/tmp"}
                user = chosen.other_user if is_other else None
                running.append(subprocess.Popen(words, env=environment, user=user))
        time.sleep(chosen.seconds - BEFORE_S)
        for gpu, (known, _) in enumerate(LOADS[: chosen.gpus]):
            print(f"known of GPU {gpu}: {known}")
        print("\n== live\n", flush=True)
        subprocess.run([*advisor, "watch", "--once"], check=False)
        at = time.strftime("%H:%M:%S", time.localtime(time.time() - 2))
        failed = sum(bool(each.wait()) for each in running[1:])
        running[0].wait()
    finally:
        for each in running:
            each.terminate()
            each.wait()
    print(f"\n== out of the recording, {failed} jobs failed\n", flush=True)
    replay = [*advisor, "watch", "--replay", str(chosen.recording), "--once", "--at", at]
    return subprocess.run(replay, check=False).returncode or failed


if __name__ == "__main__":
    sys.exit(main())
