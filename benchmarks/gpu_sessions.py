"""Run what still has to be measured on GPUs, packed for a machine that is had for minutes.

    python benchmarks/gpu_sessions.py smoke --seconds 120 && \\
    python benchmarks/gpu_sessions.py NAME [--set script=vae] --kept /tmp/kept [--seconds 560]
    python benchmarks/gpu_sessions.py --list

`gpu_sessions.toml` names the sessions; `smoke` says first whether anything would fail at once. The
jobs of one run side by side, each on GPUs and cores of its own, and append what they measure to
files in the folder that is kept, so that the same command goes on where it was cut off. Each job's
output is a file in `--out`, and `NAME.tar.gz` there, in parts of 15 MB, all that was kept but
stores, caches and data; the last lines of each job are printed. On another machine put the parts
together and unpack them into the folder that is kept, to go on there.

Jobs that are not done when the time is up are told to end, as Ctrl-C would. Status 1 if a job ended
by itself with another status than 0. Where each command may find another machine, give it as long
as one may last, and what the one before kept with `--from`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from string import Formatter
from typing import Any

ROOT = Path(__file__).parents[1]
SESSIONS = Path(__file__).with_suffix(".toml")
PATIENCE_S = 25.0
"""Time that a job has to end when it is told to: a gate removes its folders and children first."""
LAST_LINES = 12
"""Of each job's output, printed when a session ends, where its table names no other number."""
PART_BYTES = 15_000_000
"""Of an archive: who fetches files may be limited in how large one is."""
MOST_BYTES = 55_000_000
"""Of an archive, beyond which nothing is added: what is smallest comes first."""
PACKED = 0.6
"""Size of a store of profiles in an archive, over its own: one of three profiles came to 0.57."""
LEFT_BEHIND = ("home*", "public", "cache*")
"""Of what was kept, not packed: stores, caches, and code and data that can be had again."""


@dataclass(frozen=True)
class Job:
    """One command of a session, with what it has to itself."""

    name: str
    command: str
    """A line of bash; names in braces stand for what the session gives it."""
    cores: int
    gpus: tuple[int, ...] = ()
    seconds: float | None = None
    """Longest time, where that is less than the session's."""
    lines: int = LAST_LINES
    """Of its output, printed in the end."""


@dataclass(frozen=True)
class Session:
    """Jobs that run side by side."""

    name: str
    about: str
    """What it measures, and how often it has to be run."""
    jobs: tuple[Job, ...]
    starts_from: tuple[str, ...] = ()
    """Files of the repository that it goes on with, where nothing was kept yet."""

    @property
    def gpus(self) -> int:
        """How many GPUs a machine must have."""
        return max((gpu + 1 for job in self.jobs for gpu in job.gpus), default=0)

    @property
    def asks(self) -> set[str]:
        """The names that its commands have in braces and that somebody has to give."""
        names = {
            name for job in self.jobs for _, name, *_ in Formatter().parse(job.command) if name
        }
        return names - {"kept", "seconds", "python"}

    @property
    def cores(self) -> int:
        """How many cores it was made for; with fewer each job has its share."""
        return sum(job.cores for job in self.jobs)


def sessions() -> dict[str, Session]:
    """Return the sessions by name, in the order of the file."""
    found = {}
    for name, table in tomllib.loads(SESSIONS.read_text("utf-8")).items():
        jobs = tuple(_job(**each) for each in table["job"])
        found[name] = Session(name, table["about"], jobs, tuple(table.get("starts_from", ())))
    return found


def _job(gpus: Sequence[int] = (), **fields: Any) -> Job:
    return Job(gpus=tuple(gpus), **fields)


def shares(jobs: Sequence[Job], cores: Sequence[int]) -> list[list[int]]:
    """Return the cores of each job: as many as it wants, or in proportion where there are fewer.

    Jobs get at least one core each; where there are fewer cores than jobs, they share.
    """
    wanted = sum(job.cores for job in jobs)
    scale = min(1.0, len(cores) / wanted)
    found, begin = [], 0.0
    for job in jobs:
        end = begin + job.cores * scale
        place = min(int(begin), len(cores) - 1)
        found.append(list(cores[place : max(int(end), place + 1)]))
        begin = end
    return found


def start(
    job: Job, cores: Sequence[int], places: Mapping[str, str], out: Path
) -> subprocess.Popen[bytes]:
    """Start a job in a process group of its own."""
    visible = ",".join(map(str, job.gpus))
    environment = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": visible,
        "GPUADVISOR_HOME": f"{places['kept']}/home-{job.name}",
        "PYTHONUNBUFFERED": "1",
    }
    line = job.command.format(**places)
    words = ["taskset", "-c", ",".join(map(str, cores)), "bash", "-uo", "pipefail", "-c", line]
    with (out / f"{job.name}.log").open("ab") as log:
        return subprocess.Popen(
            words,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def end(running: Sequence[subprocess.Popen[bytes]]) -> None:
    """End what still runs: first as Ctrl-C does, then for good, children included."""
    for process in running:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
    until_s = time.monotonic() + PATIENCE_S
    for process in running:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(until_s - time.monotonic(), 0.0))
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run(session: Session, kept: Path, out: Path, seconds: float, given: Mapping[str, str]) -> int:
    """Run a session's jobs side by side until all are done or the time is up; return how many of
    them failed by themselves.

    What is `given` stands in commands for its name in braces, as do the folder and the time.
    """
    until_s = time.monotonic() + seconds
    kept.mkdir(parents=True, exist_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    for name in session.starts_from:
        if (ROOT / name).exists() and not (kept / Path(name).name).exists():
            shutil.copy(ROOT / name, kept)
    cores_of = shares(session.jobs, sorted(os.sched_getaffinity(0)))
    running: dict[Job, subprocess.Popen[bytes]] = {}
    limits, failed = {}, 0
    try:
        for job, cores in zip(session.jobs, cores_of, strict=True):
            longest = min(job.seconds or seconds, seconds)
            limits[job] = time.monotonic() + longest
            places = {
                "kept": str(kept.absolute()),
                "seconds": str(max(1, int(longest - PATIENCE_S))),
                **given,
            }
            running[job] = start(job, cores, places, out)
        while time.monotonic() < until_s and any(p.poll() is None for p in running.values()):
            over = [p for job, p in running.items() if time.monotonic() > limits[job]]
            end([process for process in over if process.poll() is None])
            time.sleep(0.2)
        failed = sum(bool(process.poll()) for process in running.values())
    finally:
        end(list(running.values()))
        _report(running, out)
        pack(session.name, kept, out)
    return failed


def _report(running: Mapping[Job, subprocess.Popen[bytes]], out: Path) -> None:
    for job, process in running.items():
        lines = (out / f"{job.name}.log").read_text("utf-8", "replace").splitlines()
        print(f"\n== {job.name}: status {process.returncode}")
        print("\n".join(lines[-job.lines :]))


def pack(name: str, kept: Path, out: Path) -> None:
    """Pack what was kept into `NAME.tar.gz.00` and so on in another folder; nothing if there is
    nothing. `cat NAME.tar.gz.* | tar xz -C KEPT` unpacks it. Tables come first, and what an archive
    has no room for is named.
    """
    for old in out.glob(f"{name}.tar.gz.*"):
        old.unlink()
    there = (each for each in kept.iterdir() if each.resolve() != out.resolve())
    found = sorted(filter(_is_packed, there), key=lambda each: (_size(each), each))
    if not found:
        return
    whole = out / f"{name}.tar.gz"
    left = []
    with whole.open("wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for each in found:
            if file.tell() + _size(each) * PACKED > MOST_BYTES:
                left.append(each.name)
                continue
            archive.add(each, each.name, filter=lambda about: about if _is_packed(about) else None)
    if left:
        print(f"\nnot packed, as there is no room: {', '.join(left)}")
    with whole.open("rb") as file:
        parts = iter(lambda: file.read(PART_BYTES), b"")
        for number, part in enumerate(parts):
            (out / f"{whole.name}.{number:02}").write_bytes(part)
    whole.unlink()


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(each.stat().st_size for each in files if each.is_file())


def _is_packed(file: Path | tarfile.TarInfo) -> bool:
    name = Path(file.name).name
    return not any(fnmatch(name, pattern) for pattern in LEFT_BEHIND)


def main() -> int:
    """List the sessions, or run one; 1 where one of its jobs failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", nargs="?", choices=list(sessions()))
    parser.add_argument("--list", action="store_true", help="say what there is")
    parser.add_argument("--kept", type=Path, default=Path("/tmp/kept"), help="goes on from there")
    parser.add_argument(
        "--from", type=Path, dest="seed", help="copied there first, where it is new"
    )
    parser.add_argument(
        "--out", type=Path, help="logs and results (default: the kept folder's out)"
    )
    parser.add_argument("--seconds", type=float, default=560.0, help="for all (default: 560)")
    parser.add_argument("--python", default=sys.executable, help="that has torch")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="of commands")
    chosen = parser.parse_args()
    if chosen.list or chosen.name is None:
        for session in sessions().values():
            print(f"{session.name}: {session.gpus} GPUs, {session.cores} cores\n  {session.about}")
        return 0
    session = sessions()[chosen.name]
    out = chosen.out or chosen.kept / "out"
    given = {"python": chosen.python, **dict(each.split("=", 1) for each in chosen.set)}
    if lacking := sorted(session.asks - given.keys()):
        parser.error(
            f"{session.name} asks for --set " + " ".join(f"{each}=..." for each in lacking)
        )
    if chosen.seed and not chosen.kept.exists():
        shutil.copytree(chosen.seed, chosen.kept)
    return int(run(session, chosen.kept, out, chosen.seconds, given) > 0)


if __name__ == "__main__":
    sys.exit(main())
