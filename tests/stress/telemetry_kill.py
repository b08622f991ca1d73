"""What `kill -9` does to the telemetry store under load, and what readers do to its writer.

    python tests/stress/telemetry_kill.py [--kills 50] [--readers 8]

A writer appends eight GPUs' frames and events as fast as it can and says so after each append.
It is killed at random moments, 50 times over the same store, while others read it and a study
writes its own database beside it; then comes the next store. They pause while it is checked. After
each kill everything that was acknowledged must be there, once, and the next writer must begin.
The frames' clock is simulated: a second for each append, so that minutes, hours and a midnight go
by. The last line says all of it; before it are the first failures, with which the status is 1.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import random
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from multiprocessing.synchronize import Event as Stop
from pathlib import Path
from typing import Any

from gpuadvisor.domain.device import Device, Environment
from gpuadvisor.domain.knobs import Level
from gpuadvisor.domain.metrics import (
    BY_NAME,
    GPU_METRICS,
    HOST_METRICS,
    Kind,
    Metric,
    SamplingInterval,
)
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.study import Objective, Trial, TrialState
from gpuadvisor.domain.telemetry import (
    HOST,
    Event,
    Frame,
    Gpu,
    GpuProcess,
    Number,
    Sample,
    State,
    Unavailable,
)
from gpuadvisor.domain.timeline import TimelineRequest
from gpuadvisor.storage.telemetry.files import day_begin
from gpuadvisor.storage.telemetry.lock import writer_process
from gpuadvisor.storage.telemetry.reader import TelemetryReader
from gpuadvisor.storage.telemetry.writer import TelemetryWriter
from gpuadvisor.storage.telemetry.written import FAST_KEPT_S

BEGIN_S = 1_700_000_000.0 // 86400 * 86400 + 82800
"""An hour before midnight (UTC)."""
EARLIER_S = (-0.75, -0.5, -0.25)
"""When the fast frames of an append were, before its full one."""
TEND_EVERY = 23
LIFE_S = 2.0
"""A writer lives for up to so long after its first append."""
OPENING_S = 0.3
"""Every fifth is killed so soon after its start, perhaps while it opens the store."""
PAUSE_S = 0.02
"""Between a reader's queries."""
AFTER_S = 0.1
"""Readers go on for so long after a kill, and are the first to open what it left."""
KILLS_OF_A_STORE = 50
"""Looking at every page of a store takes longer with each kill."""
GIVEN_UP_S = 60.0
ROWS_OF_AN_APPEND = 33
"""Eight GPUs in four frames, and the machine in the full one."""


# -- what is written ---------------------------------------------------------------------------


def time_of(number: int) -> float:
    """Return when the full frame of this append was."""
    return BEGIN_S + number


def gpus_of(number: int) -> tuple[Gpu, ...]:
    """Return seven GPUs and an instance of a partitioned one, which is made anew at times."""
    made = Gpu(f"MIG-{number // 300}", 7, "NVIDIA H100 80GB HBM3 MIG 3g.40gb")
    return (*(Gpu(f"GPU-{index}", index, "NVIDIA H100 80GB HBM3") for index in range(7)), made)


def due(metric: Metric, number: int, whole: bool) -> bool:
    """Return whether a collector would have read it then."""
    return metric.interval is SamplingInterval.FAST or (
        whole and number % round(metric.interval.value) == 0
    )


def values(metrics: Sequence[Metric], number: int, quarter: int, gpu: int) -> dict[str, Number]:
    """Return values that tell this sweep and this GPU from all others."""
    found: dict[str, Number] = {}
    for place, metric in enumerate(metrics):
        if not due(metric, number, quarter == 0):
            continue
        if metric.kind is Kind.COUNTER:
            value = number * 10.0 + gpu
        elif metric.kind is Kind.BITMASK:
            value = 1 << (number + gpu) % 9
        else:
            value = (number * 7919 + quarter * 1299 + gpu * 104729 + place * 31) % 100_003 / 7
        found[metric.name] = int(value) if metric.whole else value
    return found


def frame(number: int, quarter: int, gpus: tuple[Gpu, ...]) -> Frame:
    """Return one of an append's frames; quarter 0 is the full one."""
    whole = quarter == 0
    at_s = time_of(number) + (0.0 if whole else EARLIER_S[quarter - 1])
    samples = {
        gpu.uuid: Sample(values(GPU_METRICS, number, quarter, index))
        for index, gpu in enumerate(gpus)
    }
    if not whole:
        return Frame(at_s, samples, full=False)
    if number % 40 < 10:
        stale = Unavailable(
            State.STALE, time_of(number - number % 40), "the driver does not answer"
        )
        without = {n: v for n, v in samples["GPU-3"].values.items() if n != "fan_pct"}
        samples["GPU-3"] = Sample(without, {"fan_pct": stale})
    samples[HOST] = Sample(values(HOST_METRICS, number, 0, 8))
    processes = None
    if number % 5 == 0:
        processes = tuple(
            GpuProcess(f"GPU-{index}", 100 + number // 50, "compute", number << 20, "python", "ann")
            for index in range(2)
        )
    collected = tuple(event for event in events_of(number) if event.kind == "xid")
    return Frame(at_s, samples, processes=processes, events=collected)


def frames_of(number: int) -> list[Frame]:
    """Return an append's frames, in order of time."""
    gpus = gpus_of(number)
    return [frame(number, quarter, gpus) for quarter in (1, 2, 3, 0)]


def events_of(number: int) -> list[Event]:
    """Return an append's events: one with no length, and the begin or end of one that lasts."""
    found, now_s = list[Event](), time_of(number)
    if number % 5 == 0:
        found.append(
            Event("xid", now_s, "Xid 79", Severity.ERROR, "GPU-1", now_s, data={"xid": number})
        )
    if number % 20 in (0, 10):
        began_s = now_s - number % 20
        over_s = now_s if number % 20 else None
        found.append(Event("throttling", began_s, "power", Severity.WARNING, "GPU-0", over_s))
    return found


def write(folder: Path, first: int) -> None:
    """Append until the end, which is a kill; print each append's number."""
    clock = [time_of(first)]
    with TelemetryWriter(folder, clock=lambda: clock[0]) as writer:
        number = first
        while True:
            frames, events = frames_of(number), events_of(number)
            if number == first or gpus_of(number) != gpus_of(number - 1):
                frames[-1] = replace(frames[-1], gpus=gpus_of(number))
            clock[0] = time_of(number)
            writer.append(frames, events)
            print(number, flush=True)
            if number % TEND_EVERY == 0:
                writer.tend()
            number += 1


# -- one writer's life -------------------------------------------------------------------------


@dataclass
class Life:
    """What one writer did before it was killed."""

    first: int
    last: int
    """The last append that was acknowledged; `first - 1` where none was."""
    halfway: list[Frame] = field(default_factory=list)
    """Frames of the append that was not acknowledged, and are there."""

    @property
    def numbers(self) -> range:
        return range(self.first, self.last + 1)


def live(folder: Path, first: int, seconds: float, *, after_first: bool) -> Life:
    """Start a writer and kill it `seconds` after its start, or after its first append."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--write", folder, "--first", str(first)],
        stdout=subprocess.PIPE,
        text=True,
    )
    life = Life(first, first - 1)
    killer = threading.Timer(GIVEN_UP_S if after_first else seconds, process.kill)
    killer.start()
    assert process.stdout is not None
    for line in process.stdout:
        if not line.endswith("\n"):
            break
        if after_first and not life.numbers:
            killer.cancel()
            killer = threading.Timer(seconds, process.kill)
            killer.start()
        life.last = int(line)
    killer.cancel()
    if process.wait() != -signal.SIGKILL:
        raise SystemExit(f"the writer ended by itself, with status {process.returncode}")
    return life


# -- what must be there ------------------------------------------------------------------------


@dataclass
class Found:
    """What was wrong."""

    lost: int = 0
    """Rows and events that were acknowledged and are not there, or not as they were."""
    twice: int = 0
    """Rows and events that are there and should not be."""
    torn: int = 0
    """Transactions of which a part is there."""
    damaged: list[str] = field(default_factory=list)
    """What the integrity check says."""
    rolled_wrong: int = 0
    """Minutes and hours that are not what their rows say."""
    minutes: int = 0
    hours: int = 0

    def is_wrong(self) -> bool:
        """Return whether anything was."""
        wrong = self.lost + self.twice + self.torn + self.rolled_wrong + len(self.damaged)
        return wrong > 0


def check_files(folder: Path, found: Found) -> None:
    """Let SQLite look at every page, and leave the write-ahead logs to the next writer."""
    for path in sorted(folder.rglob("*.db")):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            said = [row[0] for row in connection.execute("PRAGMA integrity_check")]
        if said != ["ok"]:
            found.damaged.append(f"{path.name}: {said[0]}")


def check_frames(folder: Path, life: Life, found: Found, *, with_fast: bool) -> None:
    """Compare what is there with what was appended."""
    following = time_of(life.last + 1)
    there = {
        each.time_s: each
        for each in TelemetryReader(folder).frames(time_of(life.first) - 0.9, following + 0.01)
    }
    for number in life.numbers:
        for wanted in frames_of(number):
            is_old = wanted.time_s <= following - FAST_KEPT_S or not with_fast
            got = there.pop(wanted.time_s, None)
            if got is None and is_old and not wanted.full:
                continue
            found.lost += differing(wanted, got)
            found.twice += len(got.samples.keys() - wanted.samples.keys()) if got else 0
    if with_fast:
        check_halfway(life, there, found)
    for each in life.halfway:
        there.pop(each.time_s, None)
    found.twice += sum(len(each.samples) for each in there.values())


def differing(wanted: Frame, got: Frame | None) -> int:
    """Return how many of a frame's rows are not there as they were."""
    if got is None:
        return len(wanted.samples)
    missed = sum(got.samples.get(device) != each for device, each in wanted.samples.items())
    return missed + (got.processes != wanted.processes or got.full != wanted.full)


def check_halfway(life: Life, there: dict[float, Frame], found: Found) -> None:
    """Take the append that was not acknowledged from `there`: each file has all of it, or none.

    Only its numbers count: its states are in another file, and the next frame has them too.
    """
    for _, part in groupby(frames_of(life.last + 1), lambda each: day_begin(each.time_s)):
        wanted = list(part)
        got = [there.pop(each.time_s, None) for each in wanted]
        whole = [
            one is not None and numbers_of(one) == numbers_of(other)
            for one, other in zip(got, wanted, strict=True)
        ]
        if all(whole):
            life.halfway += wanted
        elif any(got):
            found.torn += 1


def numbers_of(each: Frame) -> Any:
    """Return a frame without what is kept elsewhere."""
    return {d: sample.values for d, sample in each.samples.items()}, each.processes


def check_events(folder: Path, lives: Sequence[Life], found: Found) -> None:
    """Compare the events, each of which is there once and with its end."""
    wanted: dict[Any, Event] = {}
    perhaps: dict[Any, Event] = {}
    for life in lives:
        for number in life.numbers:
            wanted |= {each.identity: each for each in events_of(number)}
        perhaps |= {each.identity: each for each in events_of(life.last + 1)}
    for got in TelemetryReader(folder).events(0):
        expected = wanted.pop(got.identity, None)
        if expected is None and got.identity not in perhaps:
            found.twice += 1
        elif got not in (expected, perhaps.get(got.identity)):
            found.lost += 1
    found.lost += len(wanted)


def check_rollups(folder: Path, lives: Sequence[Life], found: Found) -> None:
    """Compare every minute and hour with the rows that it was made of."""
    with TelemetryWriter(folder, clock=lambda: now_s) as writer:
        now_s = time_of(lives[-1].last + 2 * 3600)
        writer.append(frames_of(lives[-1].last + 2 * 3600)[-1:])
        writer.tend()
    hours: dict[tuple[float, str], int] = {}
    minutes, stored = table(folder, "minute"), table(folder, "hour")
    for begin_s, frames in groupby(all_frames(lives), lambda each: each.time_s // 60 * 60):
        for device, sweeps in by_device(frames).items():
            found.minutes += 1
            key = (begin_s, device)
            found.rolled_wrong += not agrees(minutes.pop(key, {}), sweeps)
            hour = (begin_s // 3600 * 3600, device)
            hours[hour] = hours.get(hour, 0) + len(sweeps)
    found.rolled_wrong += len(minutes)
    for key, number in hours.items():
        found.hours += 1
        found.rolled_wrong += stored.get(key, {}).get("polls") != number


def all_frames(lives: Sequence[Life]) -> Iterator[Frame]:
    """Yield every frame that was stored, in order of time."""
    for life in lives:
        for number in life.numbers:
            yield from frames_of(number)
        yield from life.halfway


def by_device(frames: Iterator[Frame]) -> dict[str, list[Mapping[str, Number]]]:
    """Return each device's sweeps."""
    found: dict[str, list[Mapping[str, Number]]] = {}
    for each in frames:
        for device, sample in each.samples.items():
            found.setdefault(device, []).append(sample.values)
    return found


def table(folder: Path, resolution: str) -> dict[tuple[float, str], dict[str, Any]]:
    """Return all roll-ups by their begin and device, straight from the file."""
    with closing(sqlite3.connect(folder / "index.db")) as connection:
        connection.row_factory = sqlite3.Row
        names = {0: HOST, **dict(connection.execute("SELECT id, uuid FROM gpus").fetchall())}
        return {
            (row["ts"], names[row["gpu"]]): dict(row)
            for kind in ("gpu", "host")
            for row in connection.execute(f"SELECT * FROM {kind}_{resolution}s")
        }


def agrees(row: Mapping[str, Any], sweeps: Sequence[Mapping[str, Number]]) -> bool:
    """Return whether a minute has the statistics of its sweeps."""
    wanted: dict[str, Number] = {"polls": len(sweeps)}
    for name in {name for each in sweeps for name in each}:
        numbers = [each[name] for each in sweeps if name in each]
        kind = BY_NAME[name].kind
        if kind is Kind.COUNTER:
            wanted |= {name: numbers[-1], f"first_{name}": numbers[0]}
        elif kind is Kind.BITMASK:
            wanted[name] = sum({int(number) for number in numbers})  # each is one bit
        else:
            rank = math.ceil(0.95 * len(numbers)) - 1
            wanted |= {name: statistics.fmean(numbers), f"p95_{name}": sorted(numbers)[rank]}
            wanted |= {f"min_{name}": min(numbers), f"max_{name}": max(numbers)}
    got = {name: value for name, value in row.items() if value is not None}
    keys = wanted.keys() | {"ts", "gpu"}
    return got.keys() == keys and all(math.isclose(got[n], v) for n, v in wanted.items())


# -- those beside the writer -------------------------------------------------------------------


@dataclass
class Done:
    """What one beside the writer did."""

    who: str
    times: int = 0
    failed: int = 0
    first_failure: str = ""
    seen: list[int] = field(default_factory=list)
    """Appends whose full frame a follower got."""

    def fail(self, reason: str) -> None:
        self.failed += 1
        self.first_failure = self.first_failure or reason


def read(
    folder: Path, stop: Stop, go_on: Stop, answers: multiprocessing.Queue[Done], number: int
) -> None:
    """Ask everything that can be asked, again and again."""
    reader, chance, done = TelemetryReader(folder), random.Random(number), Done("reader")
    follower = reader.follow(0.0)
    while not stop.is_set():
        question = chance.randrange(7)
        try:
            if question == 0:
                for each in follower.read():
                    done.seen += follow(each, done)
            else:
                ask(reader, question, done)
        except Exception as error:  # whatever it is, it is what is to be counted
            done.fail(f"question {question}: {error!r}")
        done.times += 1
        time.sleep(PAUSE_S)
        go_on.wait()
    answers.put(done)


def follow(each: Frame, done: Done) -> Iterator[int]:
    """Yield the append's number of a full frame; one with rows missing is a failure."""
    if each.full:
        number = round(each.time_s - BEGIN_S)
        devices = {HOST, *(gpu.uuid for gpu in gpus_of(number))}
        if each.samples.keys() != devices or (each.processes is None) == (number % 5 == 0):
            done.fail(f"append {number} was read in part")
        yield number


def ask(reader: TelemetryReader, question: int, done: Done) -> None:
    """Ask one question."""
    newest_s = reader.newest_s()
    if newest_s is None:
        return
    if question == 1:
        for each in reader.frames(newest_s - 20):
            list(follow(each, done))
    elif question == 2:
        reader.timelines(TimelineRequest("power_w", None, newest_s - 3600, newest_s + 1, 240))
    elif question == 3:
        reader.timelines(
            TimelineRequest("temperature_c", None, newest_s - 86400, newest_s + 1, 1440)
        )
    elif question == 4:
        list(reader.table(newest_s - 60, newest_s + 1).rows)
    elif question == 5:
        list(reader.table(newest_s - 3600, newest_s + 1, "minute", host=True).rows)
    else:
        reader.events(newest_s - 600)
        reader.gpus()
        writer_process(reader.folder)


def tune(path: Path, stop: Stop, go_on: Stop, answers: multiprocessing.Queue[Done]) -> None:
    """Write to the database of studies, beside the telemetry."""
    from gpuadvisor.storage.database import open_store  # SQLAlchemy would delay the writer's start

    done = Done("study")
    machine = Environment(Device("cpu", 0, "CPU"), "3.12", None, None, None, None, "Linux", "0")
    with open_store(path) as store:
        name = store.create_study(
            None, "train.py", (), machine, Level.BALANCED, Objective.THROUGHPUT
        )
        while not stop.is_set():
            try:
                store.add_trial(name, Trial(done.times, {}, "search", TrialState.COMPLETE))
                assert store.trials(name)[-1].number == done.times
            except Exception as error:
                done.fail(repr(error))
            done.times += 1
            time.sleep(PAUSE_S)
            go_on.wait()
    answers.put(done)


class Company:
    """Readers and a study, while the block runs."""

    def __init__(self, home: Path, readers: int) -> None:
        spawned = multiprocessing.get_context("spawn")
        self._stop, self._go_on = spawned.Event(), spawned.Event()
        self._go_on.set()
        self._answers: multiprocessing.Queue[Done] = spawned.Queue()
        said = (self._stop, self._go_on, self._answers)
        self._processes = [
            spawned.Process(target=read, args=(home / "telemetry", *said, number))
            for number in range(readers)
        ]
        self._processes.append(spawned.Process(target=tune, args=(home / "gpuadvisor.db", *said)))
        self.done: list[Done] = []

    def __enter__(self) -> Company:
        for process in self._processes:
            process.start()
        return self

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Have them wait while the block runs."""
        time.sleep(AFTER_S)
        self._go_on.clear()
        yield
        self._go_on.set()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._go_on.set()
        self.done = [self._answers.get(timeout=GIVEN_UP_S) for _ in self._processes]
        for process in self._processes:
            process.join()


def check_followers(readers: Sequence[Done], lives: Sequence[Life]) -> None:
    """Count as failures what a follower did not get, or got twice."""
    acknowledged = {number for life in lives for number in life.numbers}
    for each in readers:
        seen = set(each.seen)
        # One that had no time to read any frame has missed none, not even append 0.
        wanted = {number for number in acknowledged if number <= max(seen, default=-1)}
        twice = [number for number, times in Counter(each.seen).items() if times > 1]
        if wanted - seen or twice:
            each.fail(
                f"a follower missed appends {sorted(wanted - seen)} and got {twice} twice;"
                f" lives: {[(life.first, life.last) for life in lives]}"
            )


# -- all of it ---------------------------------------------------------------------------------


def main(arguments: argparse.Namespace) -> int:
    """Kill writers and say what came of it."""
    began_s, found, chance = time.monotonic(), Found(), random.Random(arguments.seed)
    stores: list[list[Life]] = []
    done: list[Done] = []
    with tempfile.TemporaryDirectory() as name:
        for first in range(0, arguments.kills, KILLS_OF_A_STORE):
            home = Path(name) / f"home{first}"
            times = min(KILLS_OF_A_STORE, arguments.kills - first)
            with Company(home, arguments.readers) as company:
                time.sleep(1)  # they have begun, on a store that does not exist
                lives = kill(home / "telemetry", times, chance, found, company)
                check_files(home, found)
            check_rollups(home / "telemetry", lives, found)
            for life in lives:
                check_frames(home / "telemetry", life, found, with_fast=False)
            check_followers([each for each in company.done if each.who == "reader"], lives)
            stores.append(lives)
            done += company.done
            shutil.rmtree(home)
            if sys.stderr.isatty():
                print(f"\r{first + times} kills", end="", file=sys.stderr)
    is_wrong = found.is_wrong() or any(each.failed for each in done)
    print(*found.damaged, *(each.first_failure for each in done if each.failed), sep="\n")
    print(summary(stores, found, done, time.monotonic() - began_s, is_wrong))
    return int(is_wrong)


def kill(
    folder: Path, times: int, chance: random.Random, found: Found, company: Company
) -> list[Life]:
    """Let writers live one after the other, and look at the store after each."""
    lives, first = list[Life](), 0
    for place in range(times):
        early = place % 5 == 4
        seconds = chance.uniform(0, OPENING_S if early else LIFE_S)
        life = live(folder, first, seconds, after_first=not early)
        lives.append(life)
        with company.paused():
            check_files(folder, found)
            check_frames(folder, life, found, with_fast=True)
            check_events(folder, lives, found)
        # It is away for seconds, for minutes, or for longer.
        first = life.last + 2 + chance.choice((0, 1, 20, 100, 1000))
    return lives


def summary(
    stores: Sequence[Sequence[Life]],
    found: Found,
    done: Sequence[Done],
    took_s: float,
    is_wrong: bool,
) -> str:
    """Say all of it in one line."""
    lives = [life for each in stores for life in each]
    rows = sum(len(life.numbers) for life in lives) * ROWS_OF_AN_APPEND
    events = sum(len(events_of(number)) for life in lives for number in life.numbers)
    right = found.minutes + found.hours - found.rolled_wrong
    damage = f"{len(found.damaged)} files damaged" if found.damaged else "integrity ok"
    times, failed = sum(each.times for each in done), sum(each.failed for each in done)
    return (
        f"{'FAILED' if is_wrong else 'PASSED'} in {took_s / 60:.1f} min: {len(lives)} kills over"
        f" {len(stores)} stores, {found.lost} of {rows:,} rows and {events:,} events lost,"
        f" {found.twice} twice, {found.torn} torn, {damage}, {right:,} roll-ups right and"
        f" {found.rolled_wrong} wrong, {times:,} queries and trials beside it of which {failed}"
        " failed"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--readers", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.write:
        write(chosen.write, chosen.first)
    sys.exit(main(chosen))
