"""Run what still has to be measured on GPUs, packed for a machine that is had for minutes.

    python benchmarks/gpu_sessions.py smoke --seconds 120 && \\
    python benchmarks/gpu_sessions.py NAME [--set scripts=vae] --kept /tmp/kept [--seconds 560]
    python benchmarks/gpu_sessions.py --list
    python benchmarks/gpu_sessions.py NAME --dry --gpus 1

`gpu_sessions.toml` names the sessions; `smoke` says first whether anything would fail at once. The
jobs of one are spread over the GPUs that are there, each GPU with an equal part of the cores: side
by side where there are enough, else one after the other, each with a fair share of the time. They
append what they measure to files in the folder that is kept, so that the same command goes on where
it was cut off, and `turns.json` there remembers whose turn is next: first who had least time of
those that did not end well. Each job's output is a file in `--out`, and `NAME.tar.gz` there, in
parts of 15 MB, all that was kept but stores, caches and data; the last lines of each job are
printed. On another machine put the parts together and unpack them into the folder that is kept, to
go on there.

Jobs that are not done when their time is up are told to end, as Ctrl-C would. Status 1 if a job
ended by itself with another status than 0. Where each command may find another machine, give it as
long as one may last, and what the one before kept with `--from`. `--dry` needs no GPU: it says in
which order jobs would run, and has each command line read by its program, up to where it begins.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from string import Formatter

ROOT = Path(__file__).parents[1]
SESSIONS = Path(__file__).with_suffix(".toml")
PATIENCE_S = 25.0
"""Time that a job has to end when it is told to: a gate removes its folders and children first."""
LEAST_S = 180.0
"""A turn's least time, where a job names no other: to start torch takes some 20 s of it."""
WORTH_S = 60.0
"""Time below which no further job begins: it would hardly do more than start."""
POLL_S = 0.2
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
_READS_ONLY = """import argparse, gc, os, sys
gc.disable()  # torch is imported in less, and need not be taken down
parser, whole = argparse.ArgumentParser, []
read, read_known = parser.parse_args, parser.parse_known_args
def parse_args(self, *given, **known):
    whole.append(self)
    found = read(self, *given, **known)
    return found if "pytest" in sys.modules else os._exit(0)
def parse_known_args(self, *given, **known):
    found, left = read_known(self, *given, **known)
    if whole or "pytest" in sys.modules:
        return found, left
    sys.exit("unrecognized arguments: " + " ".join(left)) if left else os._exit(0)
parser.parse_args, parser.parse_known_args = parse_args, parse_known_args
"""
"""A `sitecustomize` with which a program ends as soon as it has read its command line."""


@dataclass(frozen=True)
class Job:
    """One command of a session, with what it has to itself."""

    name: str
    command: str
    """A line of bash; names in braces stand for what the session gives it."""
    gpus: int = 1
    at_least: int = 0
    """GPUs that it can do with where there are fewer; 0 for all of them."""
    least: float = LEAST_S
    """Seconds below which a turn of it is worth little: what cannot go on where it was cut off."""
    lines: int = LAST_LINES
    """Of its output, printed in the end."""

    @property
    def wanted(self) -> str:
        """How many GPUs it can use, in words."""
        few = self.at_least or self.gpus
        return f"{few} to {self.gpus}" if few < self.gpus else str(self.gpus)


@dataclass(frozen=True)
class Session:
    """Jobs that do not depend on each other."""

    name: str
    about: str
    """What it measures, and how often it has to be run."""
    jobs: tuple[Job, ...]

    @property
    def asks(self) -> set[str]:
        """The names that its commands have in braces and that somebody has to give."""
        names = {
            name for job in self.jobs for _, name, *_ in Formatter().parse(job.command) if name
        }
        return names - {"kept", "seconds", "python", "gpus"}


@dataclass
class Turn:
    """What a job had so far, in all calls."""

    used: float = 0.0
    """Seconds."""
    cut: float = 0.0
    """Seconds after which it was told to end, the last time; 0 if it ended by itself."""
    ended_well: bool = False


class Turns:
    """Whose turn is next in a session, remembered in the folder that is kept."""

    def __init__(self, kept: Path, session: str) -> None:
        self._file, self._session = kept / "turns.json", session
        known = json.loads(self._file.read_text("utf-8")) if self._file.is_file() else {}
        self._all: dict[str, dict[str, dict[str, object]]] = known

    def of(self, job: Job) -> Turn:
        """Return what a job had."""
        return Turn(**self._all.get(self._session, {}).get(job.name, {}))  # type: ignore[arg-type]

    def order(self, jobs: Sequence[Job]) -> list[Job]:
        """Return jobs in the order of their turns: first those that did not end well, of these the
        one with the least time.
        """
        return sorted(jobs, key=lambda job: (self.of(job).ended_well, self.of(job).used))

    def add(self, job: Job, took: float, is_cut: bool, status: int) -> None:
        """Remember a turn."""
        turn = Turn(self.of(job).used + took, took if is_cut else 0.0, not is_cut and status == 0)
        self._all.setdefault(self._session, {})[job.name] = asdict(turn)
        draft = self._file.with_suffix(".draft")
        draft.write_text(json.dumps(self._all), "utf-8")
        draft.replace(self._file)


def sessions() -> dict[str, Session]:
    """Return the sessions by name, in the order of the file."""
    found = {}
    for name, table in tomllib.loads(SESSIONS.read_text("utf-8")).items():
        jobs = tuple(Job(**each) for each in table["job"])
        found[name] = Session(name, table["about"], jobs)
    return found


def share(jobs: Sequence[Job], gpus: int, left: float, turn: Turn) -> float:
    """Return the seconds of the first of the jobs that wait, of those that are left for all.

    That is an equal part for each round that the GPUs need, but not less than its own least, nor
    than twice what was too little the last time.
    """
    rounds = math.ceil(sum(min(job.gpus, gpus) for job in jobs) / gpus)
    return min(left, max(left / rounds, jobs[0].least, 2 * turn.cut))


def cores_of(gpu: int, gpus: int, cores: Sequence[int]) -> list[int]:
    """Return the cores of a GPU: an equal part; where there are fewer than GPUs, they share."""
    each = max(1, len(cores) // gpus)
    first = gpu * each % len(cores)
    return list(cores[first : first + each])


def places(job: Job, gpus: int, seconds: float, kept: Path) -> dict[str, str]:
    """Return what stands for the names in a job's command that a session gives."""
    return {
        "kept": str(kept.absolute()),
        "seconds": str(max(1, int(seconds - PATIENCE_S))),
        "gpus": str(min(job.gpus, gpus)),
    }


@dataclass
class Running:
    """A job that was started, in a process group of its own."""

    job: Job
    process: subprocess.Popen[bytes]
    gpus: list[str]
    seconds: float
    began_s: float = field(default_factory=time.monotonic)
    told_s: float | None = None
    """When it was told to end."""

    @property
    def took(self) -> float:
        return time.monotonic() - self.began_s

    def look(self, is_over: bool = False) -> bool:
        """Say whether it runs on; where its time is up it is told to end, as by Ctrl-C, and later
        killed, with its children.
        """
        now_s = time.monotonic()
        if (
            self.process.poll() is None
            and self.told_s is None
            and (is_over or self.took > self.seconds)
        ):
            self.told_s = now_s
            self._signal(signal.SIGINT)
        is_late = self.told_s is not None and now_s > self.told_s + PATIENCE_S
        if self.process.poll() is None and not is_late:
            return True
        self._signal(signal.SIGKILL)  # what it left behind, too
        self.process.wait()
        return False

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def start(
    job: Job, gpus: Sequence[str], cores: Sequence[int], given: Mapping[str, str], out: Path
) -> subprocess.Popen[bytes]:
    """Start a job in a process group of its own."""
    environment = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": ",".join(gpus),
        "GPUADVISOR_HOME": f"{given['kept']}/home-{job.name}",
        "PYTHONUNBUFFERED": "1",
    }
    line = job.command.format(**given)
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


def run(
    session: Session,
    kept: Path,
    out: Path,
    seconds: float,
    given: Mapping[str, str],
    gpus: Sequence[str] = ("0",),
) -> int:
    """Run a session's jobs on GPUs until all are done or the time is up; return how many of them
    failed by themselves.

    What is `given` stands in commands for its name in braces, as do the folder and the time.
    """
    kept.mkdir(parents=True, exist_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    until_s = time.monotonic() + seconds
    turns = Turns(kept, session.name)
    waiting = turns.order(possible(session, len(gpus)))
    free, cores = list(gpus), sorted(os.sched_getaffinity(0))
    running: list[Running] = []
    ended: list[Running] = []

    def collect(is_over: bool = False) -> None:
        for each in [each for each in running if not each.look(is_over)]:
            running.remove(each)
            ended.append(each)
            free.extend(each.gpus)
            free.sort(key=list(gpus).index)
            is_cut = each.told_s is not None
            turns.add(each.job, each.took, is_cut, each.process.returncode)

    try:
        while (waiting or running) and (left := until_s - time.monotonic()) > 0:
            is_worth = left > WORTH_S or not (running or ended)
            if waiting and is_worth and len(free) >= (number := min(waiting[0].gpus, len(gpus))):
                own = share(waiting, len(gpus), left, turns.of(waiting[0]))
                job, taken = waiting.pop(0), free[:number]
                del free[:number]
                its_cores = sorted(
                    {c for gpu in taken for c in cores_of(list(gpus).index(gpu), len(gpus), cores)}
                )
                told = {**places(job, len(gpus), own, kept), **given}
                running.append(Running(job, start(job, taken, its_cores, told, out), taken, own))
                continue
            if not running:
                break
            time.sleep(POLL_S)
            collect()
    finally:
        while running:
            collect(is_over=True)
            time.sleep(POLL_S)
        _report(ended, waiting, out)
        pack(session.name, kept, out)
    return sum(each.told_s is None and each.process.returncode != 0 for each in ended)


def possible(session: Session, gpus: int) -> list[Job]:
    """Return the jobs that so many GPUs are enough for, and name the others."""
    for job in session.jobs:
        if (job.at_least or job.gpus) > gpus:
            print(f"{job.name}: not run, as it needs {job.wanted} GPUs, and here are {gpus}")
    return [job for job in session.jobs if (job.at_least or job.gpus) <= gpus]


def _report(ended: Sequence[Running], waiting: Sequence[Job], out: Path) -> None:
    for each in ended:
        lines = (out / f"{each.job.name}.log").read_text("utf-8", "replace").splitlines()
        cut = "" if each.told_s is None else ", cut off"
        status = each.process.returncode
        print(f"\n== {each.job.name}: status {status} after {each.took:.0f} s{cut}")
        print("\n".join(lines[-each.job.lines :]))
    if waiting:
        print(f"\nnot begun: {', '.join(job.name for job in waiting)}; the same command goes on")


def dry(
    session: Session, kept: Path, seconds: float, given: Mapping[str, str], gpus: int
) -> list[str]:
    """Print in which order jobs would run, and with what; return those whose command line a program
    does not take, each with what it says. Nothing is measured and nothing is kept.
    """
    turns, failed = Turns(kept, session.name), []
    waiting, free_at = turns.order(possible(session, gpus)), [0.0] * gpus
    with tempfile.TemporaryDirectory(prefix="dry-") as folder:
        while waiting:
            free_at.sort()
            number = min(waiting[0].gpus, gpus)
            began = free_at[number - 1]
            own = share(waiting, gpus, seconds - began, turns.of(waiting[0]))
            if began and seconds - began <= WORTH_S:
                began, own = 0.0, share(waiting, gpus, seconds, turns.of(waiting[0]))
                free_at = [0.0] * gpus
                print("in the next call:")
            free_at[:number] = [began + own] * number
            job = waiting.pop(0)
            told = {**places(job, gpus, own, Path(folder, "kept")), **given}
            said = refused(job.command.format(**told), Path(folder))
            real = job.command.format(**{**told, "kept": str(kept.absolute())})
            print(
                f"{job.name}: {number} of {gpus} GPUs, at {began:.0f} s for {own:.0f} s\n  {real}"
            )
            if said:
                print(f"  FAILED: {said}")
                failed.append(job.name)
    return failed


def refused(line: str, folder: Path) -> str:
    """Return what a program says that does not take its command line; empty where all take theirs.

    Each is started and ends when it has read its line; of pytest the tests are collected. A script
    of bash is only parsed.
    """
    (folder / "sitecustomize.py").write_text(_READS_ONLY, "utf-8")
    first = shlex.split(line)[:2]
    is_script = first[0] == "bash" and first[1].endswith(".sh")
    words = ["bash", "-n", first[1]] if is_script else ["bash", "-euo", "pipefail", "-c", line]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]),
        "PYTEST_ADDOPTS": "--collect-only -p no:syrupy",
        "GPUADVISOR_HOME": str(folder / "home"),
    }
    done = subprocess.run(
        words, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    said = (done.stdout + done.stderr).decode("utf-8", "replace").strip().splitlines()
    return "" if done.returncode == 0 else "\n".join([f"status {done.returncode}", *said[-5:]])


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
    with whole.open("rb") as packed:
        parts = iter(lambda: packed.read(PART_BYTES), b"")
        for number, part in enumerate(parts):
            (out / f"{whole.name}.{number:02}").write_bytes(part)
    whole.unlink()


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(each.stat().st_size for each in files if each.is_file())


def _is_packed(file: Path | tarfile.TarInfo) -> bool:
    name = Path(file.name).name
    return not any(fnmatch(name, pattern) for pattern in LEFT_BEHIND)


def visible_gpus() -> list[str]:
    """Return the GPUs that are there, as `CUDA_VISIBLE_DEVICES` names them."""
    from gpuadvisor.collectors.devices import list_gpus

    return [str(each.index) for each in list_gpus()]


def main() -> int:
    """List the sessions, or run one; 1 where one of its jobs failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", nargs="?", choices=list(sessions()))
    parser.add_argument("--list", action="store_true", help="say what there is")
    parser.add_argument("--dry", action="store_true", help="read command lines, run nothing")
    parser.add_argument("--only", nargs="+", metavar="JOB", help="these jobs of the session")
    parser.add_argument("--gpus", type=int, help="use so many (default: all that are there)")
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
            jobs = ", ".join(f"{job.name} ({job.wanted})" for job in session.jobs)
            print(f"{session.name}: {session.about.strip()}\n  jobs, and their GPUs: {jobs}\n")
        return 0
    session = sessions()[chosen.name]
    if chosen.only:
        names = [job.name for job in session.jobs]
        if wrong := sorted(set(chosen.only) - set(names)):
            parser.error(f"{session.name} has no job {wrong[0]}: it has {', '.join(names)}")
        session = replace(session, jobs=tuple(j for j in session.jobs if j.name in chosen.only))
    out = chosen.out or chosen.kept / "out"
    given = {"python": chosen.python, **dict(each.split("=", 1) for each in chosen.set)}
    if lacking := sorted(session.asks - given.keys()):
        parser.error(
            f"{session.name} asks for --set " + " ".join(f"{each}=..." for each in lacking)
        )
    if chosen.dry:
        return int(bool(dry(session, chosen.kept, chosen.seconds, given, chosen.gpus or 1)))
    gpus = visible_gpus()[: chosen.gpus]
    if not gpus:
        print("no GPU is visible: --dry needs none")
        return 1
    if chosen.seed and not chosen.kept.exists():
        shutil.copytree(chosen.seed, chosen.kept)
    return int(run(session, chosen.kept, out, chosen.seconds, given, gpus) > 0)


if __name__ == "__main__":
    sys.exit(main())
