"""A quarter of an hour of mixed use of a GPU with the daemon on its own: is what it tells true?

    python benchmarks/mixed_use.py [--minutes 15]

One after the other there are: nothing, a training, a training beside an idle notebook, jobs that
end badly (killed, out of memory), a training while the store's disk is full (a tmpfs, which takes
root's rights), and nothing again. Which events may come of that, and when, is written down below.
Printed are all events, each with what went on, and which are superfluous or missing; seconds
without a row; and the processes that were seen. Exit status 1 if anything is wrong. Needs a GPU and
torch. What the daemon costs the training is another benchmark: `telemetry_overhead.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from gpuadvisor.collectors.devices import list_gpus
from gpuadvisor.daemon.daemon import GAP_S
from gpuadvisor.domain.telemetry import Event
from gpuadvisor.storage.telemetry.reader import TelemetryReader

DISK = "48m"
"""Size of the store's disk: enough for a quarter of an hour of eight GPUs."""
GRACE_S = 65.0
"""Most by which an event may outlast its cause: throttling ends after a minute without."""
TOLD_S = 15.0
"""Most by which an event may begin after its cause: findings wait for ten seconds."""

TRAINING = """
import torch
net = torch.nn.Sequential(*[torch.nn.Conv2d(64, 64, 3, padding=1) for _ in range(6)]).cuda()
optimizer = torch.optim.AdamW(net.parameters())
batch = torch.randn(64, 64, 64, 64, device="cuda")
while True:
    optimizer.zero_grad()
    net(batch).square().mean().backward()
    optimizer.step()
    torch.cuda.synchronize()
"""
NOTEBOOK = """
import time, torch
kept = torch.zeros(1 << 30, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
time.sleep(1e6)
"""
GREEDY = """
import time, torch
kept = [torch.zeros(1 << 30, dtype=torch.uint8, device="cuda")]
time.sleep(20)
while True:
    kept.append(torch.zeros(1 << 30, dtype=torch.uint8, device="cuda"))
"""
"""It lives longer than two listings of the processes: what ends between them nobody sees."""


@dataclass(frozen=True)
class Phase:
    """Something that goes on for a part of the time."""

    name: str
    share: float
    """Part of the whole time."""
    jobs: tuple[str, ...] = ()
    """Programs that run meanwhile, and are killed at its end."""
    full: bool = False
    """Whether the store's disk is full."""
    may: frozenset[str] = frozenset()
    """Kinds of events, or keys of findings, that may be true meanwhile."""
    must: frozenset[str] = frozenset()
    """Those that have to come."""


# A training may be held by its power limit, and two programs share a GPU: that depends on the GPU.
LOADED = frozenset({"throttling"})
PHASES = (
    Phase("nothing", 0.08),
    Phase("a training", 0.26, (TRAINING,), may=LOADED),
    Phase(
        "a training beside a notebook",
        0.2,
        (TRAINING, NOTEBOOK),
        may=LOADED | {"shared_gpu"},
    ),
    Phase("nothing, after jobs were killed", 0.1),
    Phase("a job that runs out of memory", 0.1, (GREEDY,), may=frozenset({"memory_full"})),
    Phase(
        "a training, and a full disk",
        0.16,
        (TRAINING,),
        full=True,
        may=LOADED | {"store"},
        must=frozenset({"store"}),
    ),
    Phase("nothing, at the end", 0.1),
)


def main() -> int:
    """Go through the phases, and judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=15.0)
    whole_s = 60 * parser.parse_args().minutes
    gpus = list_gpus()
    if not gpus:
        raise SystemExit("this needs an NVIDIA GPU")
    with tempfile.TemporaryDirectory() as folder, _small_disk(Path(folder)) as has_disk:
        home = Path(folder) / "home"
        environment = {**os.environ, "GPUADVISOR_HOME": str(home)}
        _daemon("start", environment)
        try:
            spans, pids = _live(whole_s, home, has_disk)
        finally:
            _daemon("stop", environment)
        reader = TelemetryReader(home / "telemetry")
        wrong = _judge(reader, spans, has_disk, gpus[0].uuid) + _judge_rows(reader, spans)
        rows = reader.processes(spans[0][1], spans[-1][2])
        place = rows.columns.index("pid")
        seen = {row[place] for row in rows.rows}
        for pid in pids - seen:
            wrong.append(f"process {pid} was never seen")
    print(f"{gpus[0].name}, {whole_s / 60:.1f} minutes, {len(pids)} jobs: ", end="")
    print("all true, none missing" if not wrong else "; ".join(wrong))
    return bool(wrong)


@contextlib.contextmanager
def _small_disk(folder: Path) -> Iterator[bool]:
    """Give the daemon a disk of its own, where this user may mount one."""
    home = folder / "home"
    home.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", str(home)]
    has_disk = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    if not has_disk:
        print("no tmpfs can be mounted here: the full disk is left out")
    try:
        yield has_disk
    finally:
        if has_disk:
            subprocess.run(["umount", "-l", str(home)], check=True)


def _daemon(action: str, environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "gpuadvisor", "daemon", action]
    subprocess.run(command, env=environment, check=True)


Span = tuple[Phase, float, float]


def _live(whole_s: float, home: Path, has_disk: bool) -> tuple[list[Span], set[int]]:
    """Go through the phases; return when each began and ended, and the processes of all."""
    spans, pids = [], set()
    filler = home / "filler"
    for phase in PHASES:
        began_s = time.time()
        jobs = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
                for code in phase.jobs]  # fmt: skip
        if phase.full and has_disk:
            with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(1 << 16))
        time.sleep(phase.share * whole_s)
        for job in jobs:
            with contextlib.suppress(ProcessLookupError):
                job.send_signal(signal.SIGKILL)
            job.wait()
        pids |= {job.pid for job in jobs}
        filler.unlink(missing_ok=True)
        spans.append((phase, began_s, time.time()))
        print(f"{phase.name}: {spans[-1][2] - began_s:.0f} s", flush=True)
    return spans, pids


def _judge(
    reader: TelemetryReader, spans: list[Span], has_disk: bool, uuid: str | None
) -> list[str]:
    """Print all events but those of other GPUs than this, and return what is wrong with them."""
    wrong: list[str] = []
    came: set[tuple[str, str]] = set()
    for event in reader.events(spans[0][1]):
        if event.gpu not in (None, uuid):  # others may use them
            continue
        what = event.key if event.kind == "finding" else event.kind
        cause = next((p for p, a, b in spans if what in p.may and _fits(event, a, b)), None)
        meanwhile = next((p.name for p, a, b in spans if a <= event.began_s <= b), "the end")
        lasted = f"{event.ended_s - event.began_s:.0f} s" if event.ended_s else "not ended"
        print(f"  {what}, {lasted}, in: {meanwhile}: {event.message}")
        if cause is None:
            wrong.append(f"superfluous: {what} in: {meanwhile}")
        else:
            if what == "store" and (cause.name, what) in came:
                wrong.append(f"a second {what} in: {cause.name}")
            came.add((cause.name, what))
    for phase, _, _ in spans:
        for what in phase.must:
            if (phase.name, what) not in came and (has_disk or not phase.full):
                wrong.append(f"missing: {what} in: {phase.name}")
    return wrong


def _fits(event: Event, began_s: float, ended_s: float) -> bool:
    """Say whether an event can come of what went on from one time to the other."""
    over_s = ended_s if event.ended_s is None else event.ended_s
    return began_s - 1 <= event.began_s <= ended_s + TOLD_S and over_s <= ended_s + GRACE_S


def _judge_rows(reader: TelemetryReader, spans: list[Span]) -> list[str]:
    """Return the seconds without a row, also those of the full disk: they are kept meanwhile."""
    times = [frame.time_s for frame in reader.frames(0) if frame.full]
    print(f"  {len(times):,} rows in {times[-1] - times[0]:.0f} s")
    holes = [(a, b) for a, b in pairwise(times) if b - a > GAP_S]
    return [f"no row for {b - a:.0f} s from {a - spans[0][1]:.0f} s on" for a, b in holes]


if __name__ == "__main__":
    raise SystemExit(main())
