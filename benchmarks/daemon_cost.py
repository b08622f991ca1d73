"""What the daemon costs a machine with 8 GPUs: CPU time and memory, at 1 Hz and at 10 Hz.

    python benchmarks/daemon_cost.py [--seconds 60] [--gpus 8] [--without-scrapes]

Runs the real daemon on the fake NVML of the tests, with eight processes on each GPU. Its calls take
no time: on a GPU the driver's own comes on top, most of which is not this machine's CPU. Targets:
at 1 Hz at most 0.4 % of a core for 8 GPUs and 2 % for 64, at 10 Hz at most 3 %, and 50 MB for 8.
That is the proportional memory (PSS) of the daemon and its sampler, what the machine would have
again without them: their RSS counts what both share twice. Needs a C compiler.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

FAKE = Path(__file__).parents[1] / "tests" / "fake_nvml" / "fake_nvml.c"
SETTLE_S = 70.0
"""After the start, whose imports are no part of what it costs all day; the rules are loaded after
ten seconds, when they are asked first, and after a minute the garbage collector looks no more at
what is there to stay."""
LOOK_S = 0.5
CONFIGURATION = """\
[daemon]
fast = {fast}
[prometheus]
address = "127.0.0.1:{port}"
processes = true
"""
PROCESSES = 8
"""On each GPU."""
SCRAPE_S = 15.0
"""Prometheus' usual rhythm in production."""


@dataclass(frozen=True)
class Cost:
    """Of the daemon and its sampler together, unless it says otherwise."""

    cpu_pct: float
    """Of one core."""
    cpu_by_process: dict[str, float]
    peak_rss_mb: float
    peak_pss_mb: float
    """Proportional: pages that both share count once."""


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--port", type=int, default=9467)
    parser.add_argument("--without-scrapes", action="store_true")
    chosen = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):  # else the daemon would go on
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    with tempfile.TemporaryDirectory() as folder:
        library = build_fake(Path(folder))
        print("rate   CPU of a core                          peak RSS   peak PSS")
        for name, fast in (("1 Hz", False), ("10 Hz", True)):
            cost = measure(Path(folder) / name, library, fast, chosen)
            parts = ", ".join(f"{p} {pct:.2f} %" for p, pct in cost.cpu_by_process.items())
            print(
                f"{name:6} {cost.cpu_pct:.2f} % ({parts})"
                f"   {cost.peak_rss_mb:.1f} MB   {cost.peak_pss_mb:.1f} MB"
            )


def build_fake(folder: Path) -> Path:
    """Compile the fake library and return its folder."""
    flags = ["-std=c11", "-D_DEFAULT_SOURCE", "-O2", "-shared", "-fPIC", "-pthread"]
    subprocess.run(["cc", *flags, "-o", folder / "libnvidia-ml.so.1", FAKE], check=True)
    return folder


def measure(home: Path, library: Path, fast: bool, chosen: argparse.Namespace) -> Cost:
    """Return what a daemon of its own costs over the time that was chosen."""
    with daemon(home, library, fast, chosen) as process:
        time.sleep(SETTLE_S)
        before, began = cpu_s(process), time.monotonic()
        rss, pss = 0, 0
        scraped_s = 0.0
        while time.monotonic() - began < chosen.seconds:
            if time.monotonic() - scraped_s > SCRAPE_S and not chosen.without_scrapes:
                scraped_s = time.monotonic()
                threading.Thread(target=_scrape, args=(chosen.port,)).start()
            memory = [each.memory_full_info() for each in family(process)]
            rss = max(rss, sum(each.rss for each in memory))
            pss = max(pss, sum(each.pss for each in memory))
            time.sleep(LOOK_S)
        after, passed_s = cpu_s(process), time.monotonic() - began
    shares = {name: 100 * (after[name] - before.get(name, 0.0)) / passed_s for name in after}
    return Cost(sum(shares.values()), shares, rss / 1e6, pss / 1e6)


def _scrape(port: int) -> None:
    from urllib.request import urlopen

    urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read()


def family(process: psutil.Process) -> list[psutil.Process]:
    """Return the daemon and its sampler."""
    return [process, *process.children(recursive=True)]


def cpu_s(process: psutil.Process) -> dict[str, float]:
    """Return the CPU time of each so far, in seconds."""
    children = process.children(recursive=True)
    named = [("daemon", process), *(("sampler", each) for each in children)]
    return {name: time.clock_gettime(_clock(each.pid)) for name, each in named}


def _clock(pid: int) -> int:
    """Return the clock of a process's CPU time (clock_getcpuclockid(3)); ps counts 10 ms."""
    return (~pid << 3) | 2


@contextmanager
def daemon(
    home: Path, library: Path, fast: bool, chosen: argparse.Namespace
) -> Iterator[psutil.Process]:
    """Run the daemon while the block runs."""
    home.mkdir()
    configuration = home / "gpuadvisor.toml"
    configuration.write_text(CONFIGURATION.format(fast=str(fast).lower(), port=chosen.port))
    command = [sys.executable, "-m", "gpuadvisor", "daemon", "run", "--config", str(configuration)]
    with ExitStack() as running:
        others = [running.enter_context(_running(["sleep", "infinity"])) for _ in range(PROCESSES)]
        environment = {
            **os.environ,
            "GPUADVISOR_HOME": str(home / "store"),
            "LD_LIBRARY_PATH": str(library),
            "FAKE_NVML_MODELS": ",".join(["h100"] * chosen.gpus),
            "FAKE_NVML_LOAD": "wave",
            "FAKE_NVML_PIDS": ",".join(str(each.pid) for each in others),
        }
        log = running.enter_context((home / "log").open("w"))
        process = running.enter_context(_running(command, env=environment, stderr=log))
        yield psutil.Process(process.pid)


@contextmanager
def _running(command: list[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process while the block runs."""
    process = subprocess.Popen(command, **options)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


if __name__ == "__main__":
    main()
