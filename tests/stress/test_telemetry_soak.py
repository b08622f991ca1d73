"""The real daemon through hangs, lost GPUs, full disks and kills: everything is counted.

The short one is a round of each; the long one takes SOAK_S seconds (ten minutes unless set).
Both say how soon what happens is known, which needs a machine that is not busy otherwise.
"""

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress
from itertools import pairwise

import psutil
import pytest

from gpuadvisor.daemon.daemon import GAP_S
from gpuadvisor.domain.telemetry import HOST, SILENT, State
from gpuadvisor.storage.telemetry.reader import TelemetryReader
from tests.integration.test_daemon import Machine

LOOK_S = 0.1
ROW_S = 4.0
"""The most between two rows: a silence is known after two to three seconds."""
BACK_S = 9.0
"""The most from the driver's answer to its values: five until another child is begun, its start,
and what two busy cores take."""
TOLD = ("driver", "gpu_lost", "store", "gap", "sampler")


class Disk:
    """A small disk of the store's own, which can be full; without root there is none."""

    def __init__(self, folder):
        self._folder = folder
        folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(folder)]
        self.is_there = subprocess.run(mount, capture_output=True, check=False).returncode == 0

    def fill(self):
        with suppress(OSError), (self._folder / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))

    def free(self):
        (self._folder / "filler").unlink()

    def close(self):
        if self.is_there:
            subprocess.run(["umount", "-l", str(self._folder)], check=True)


class Soak:
    """A machine, and what was done to it."""

    def __init__(self, machine, disk, seed):
        self.machine, self.disk, self.random = machine, disk, random.Random(seed)
        self.hangs, self.losses, self.fillings = [], [], []
        """The Unix times of each's begin and end."""
        self.kills = 0
        self.pid = machine.start()
        self.began_s = time.time()

    def hang(self, hold_s):
        self.machine.control("HANG=nvmlDeviceGetUtilizationRates")
        began_s = time.time()
        self.wait("the hang", lambda: self.up() == 0)
        time.sleep(hold_s)
        self.machine.control()
        self.hangs.append((began_s, time.time()))
        self.wait("its end", lambda: self.up() == 1 and len(self.powers()) == 2)
        assert time.time() - self.hangs[-1][1] < BACK_S

    def lose(self, hold_s):
        self.machine.control("FAULTS=*@1=15")
        began_s = time.time()
        self.wait("the loss", lambda: len(self.powers()) == 1)
        time.sleep(hold_s)
        self.machine.control()
        self.losses.append((began_s, time.time()))
        self.wait("its return", lambda: len(self.powers()) == 2)

    def fill(self, hold_s):
        before = self.stored()
        self.disk.fill()
        began_s = time.time()
        self.wait("the full disk", lambda: self.stored() > before)
        time.sleep(hold_s)
        self.disk.free()
        self.fillings.append((began_s, time.time()))
        self.wait("room", self.is_filling_stored)

    def is_filling_stored(self):
        """Whether all fillings are in the store, with their ends: what a full disk had no room for
        is stored when it has, and a daemon that is killed before that takes it with it."""
        events = self.machine.events("store")
        return len(events) >= len(self.fillings) and all(e.ended_s for e in events)

    def kill(self, hold_s):
        os.kill(self.pid, signal.SIGKILL)
        psutil.wait_procs([psutil.Process(self.pid)], timeout=10)
        time.sleep(hold_s)
        self.pid = self.machine.start()
        self.kills += 1

    def wait(self, what, see):
        self.machine.wait(what, see)

    def up(self):
        return self.machine.scrape()["gpuadvisor_driver_up"][""]

    def powers(self):
        return self.machine.scrape().get("gpuadvisor_power_watts", {})

    def stored(self):
        """How many events of the store the daemon of now has seen begin."""
        return self.machine.scrape()["gpuadvisor_events_total"]["store"]

    def one_round(self, hold_s, down_s):
        """One of each, in any order, held for up to so long; the daemon is down for `down_s`."""
        steps = [self.hang, self.lose, self.kill, *([self.fill] if self.disk.is_there else [])]
        for step in self.random.sample(steps, len(steps)):
            step(down_s if step == self.kill else self.random.uniform(0.2, 1) * hold_s)


def lasted(events, kind, spans, begin_s, end_s):
    """Whether there is one event for each span, that begins and ends at most so long after it."""
    found = sorted((e.began_s, e.ended_s) for e in events if e.kind == kind)
    assert len(found) == len(spans), (kind, found, spans)
    for (began_s, ended_s), span in zip(found, spans, strict=True):
        assert -0.1 <= began_s - span[0] <= begin_s, (kind, began_s - span[0])
        assert -0.1 <= ended_s - span[1] <= end_s, (kind, ended_s - span[1])


def check(soak, notices):
    """Rows, notices, events and ages are those of what was done, and nothing else."""
    reader = TelemetryReader(soak.machine.telemetry)
    events = reader.events(soak.began_s)
    rounds = soak.kills
    kinds = Counter(event.kind for event in events)
    assert set(kinds) <= {"driver", "gpu_lost", "store", "gap"}, kinds
    lasted(events, "driver", soak.hangs, 5.0, BACK_S)
    lasted(events, "gpu_lost", soak.losses, 3.0, 62.0)
    lasted(events, "store", soak.fillings, 5.0, 9.0)
    lost = [event for event in events if event.kind == "gpu_lost"]
    assert {event.gpu for event in lost} == {reader.gpus()[1].uuid}
    assert {e.message for e in events if e.kind == "driver"} == {SILENT}

    # A row each second, but where an event says why there is none.
    frames = [frame for frame in reader.frames(0) if frame.full]
    times = [frame.time_s for frame in frames]
    assert times == sorted(set(times))
    excused = [(e.began_s, e.ended_s) for e in events if e.kind in ("gap", "store")]
    holes = [(a, b) for a, b in pairwise(times) if b - a > GAP_S]
    for a, b in holes:
        assert any(begin - 2 <= a and b <= end + 2 for begin, end in excused), (a, b, excused)
    gaps = [event for event in events if event.kind == "gap"]
    assert len(gaps) == sum(1 for gap in gaps if any(abs(gap.began_s - a) < 2 for a, _ in holes))
    missing_s = sum(b - a - 1 for a, b in pairwise(times) if b - a > 1.5)
    excused_s = sum(end - begin for begin, end in excused)
    assert missing_s <= excused_s + rounds * (ROW_S + GAP_S)
    span_s = times[-1] - times[0]
    assert abs(span_s - missing_s - len(times)) <= 0.02 * span_s + 2 * rounds + 2

    # What is stale is so since it was read last, and is stored once for each hang.
    gpu = reader.gpus()[0].uuid
    since = {}
    for frame in frames:
        absence = frame.samples.get(gpu) and frame.samples[gpu].unavailable.get("power_w")
        if absence and absence.state is State.STALE:
            since.setdefault(absence.since_s, []).append(frame.time_s)
    assert len(since) == len(soak.hangs), (since, soak.hangs)
    for (read_s, seen), (began_s, _) in zip(sorted(since.items()), soak.hangs, strict=True):
        assert -1.5 <= read_s - began_s <= 0.5
        assert min(seen) - read_s <= ROW_S
    assert all(HOST in frame.samples for frame in frames)

    # One notice as it begins and one as it ends, of each event that was told.
    told = Counter((notice["event"]["kind"], notice["status"]) for notice in notices)
    assert told == Counter(
        {
            (kind, status): kinds[kind]
            for kind in ("driver", "gpu_lost", "store")
            for status in ("firing", "recovered")
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("length_s", "hold_s", "down_s"),
    [
        pytest.param(0, 0.5, 0, id="a round"),
        pytest.param(float(os.environ.get("SOAK_S", "600")), 20, 7, id="long"),
    ],
)
def test_all_that_happens_is_counted_once(tmp_path, fake_nvml, length_s, hold_s, down_s):
    disk = Disk(tmp_path / "store")
    machine = Machine(tmp_path, fake_nvml)
    told = tmp_path / "told"
    machine.control()
    machine.configure(
        f'[[alert]]\nkinds = {json.dumps(TOLD)}\nagain_after = "1s"\n'
        f'command = ["sh", "-c", "cat >> {told}; echo >> {told}"]'
    )
    try:
        soak = Soak(machine, disk, seed=16)
        until_s = time.monotonic() + length_s
        while not soak.kills or time.monotonic() < until_s:
            soak.one_round(hold_s, down_s)
        time.sleep(1)
        machine.end()
        notices = [json.loads(line) for line in told.read_text().splitlines()]
        shown = [notice for notice in notices if notice["event"]["kind"] != "gap"]
        check(soak, shown)
    finally:
        machine.end()
        disk.close()
