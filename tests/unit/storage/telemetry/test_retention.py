"""What the telemetry store removes, and when: neither later nor, for a wrong clock, sooner."""

from dataclasses import replace

import pytest

from gpuadvisor.domain.telemetry import Frame, GpuProcess, Sample
from gpuadvisor.storage.telemetry.reader import TelemetryReader
from gpuadvisor.storage.telemetry.retention import BELIEVED_AFTER_S, LEAP_S, Retention, Today
from gpuadvisor.storage.telemetry.writer import TelemetryWriter
from gpuadvisor.storage.telemetry.written import FAST_KEPT_S
from tests.telemetry import START_S, frame, h100, sample
from tests.telemetry_store import Clock, stored

DAY_S = 86400.0
HOUR_BEGIN = 3600 - START_S % 3600


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "telemetry"


def fast(at_s, **values):
    return Frame(START_S + at_s, {h100(0).uuid: Sample(values)}, full=False)


def program(pid, command):
    return GpuProcess("GPU-0", pid, "compute", 5 << 30, "python", "ann", command)


def test_old_rows_go_and_newer_stay(folder):
    clock = Clock()
    kept = Retention(raw_s=DAY_S, minutes_s=3 * DAY_S)
    with TelemetryWriter(folder, clock=clock, kept=kept) as writer:
        for day in range(8):
            for at in (0, 30, 60):
                clock.now_s = START_S + day * DAY_S + at
                made = frame(day * DAY_S + at, sample())
                writer.append([replace(made, processes=(program(7, "python"),))])
            writer.tend()
    for kind in ("samples", "processes"):
        assert len(list(folder.glob(f"{kind}-*.db"))) == 2
    times = [row[0] for row in TelemetryReader(folder).table(0, 2e9, "minute").rows]
    assert min(times) >= clock.now_s - 3 * DAY_S
    assert len(times) == 2 + 2 + 1  # the last minute is not over
    hours = [row[0] for row in TelemetryReader(folder).table(0, 2e9, "hour").rows]
    assert len(hours) == 7  # for ever; the last hour is not over


def test_a_clock_that_is_far_ahead_does_not_empty_the_store(folder):
    stored(folder, *(frame(day * DAY_S, sample()) for day in range(3)))
    stored(folder, frame(0, sample()), clock=Clock(START_S + 5000 * DAY_S))
    assert len(list(folder.glob("samples-*.db"))) == 3


def test_fast_rows_stay_for_a_quarter_of_an_hour(folder):
    reader = stored(folder, frame(0, sample()), fast(0.5, power_w=1.0))
    assert [f.full for f in reader.frames(0)] == [True, False]
    stored(folder, frame(FAST_KEPT_S + 1, sample()))
    assert [f.full for f in reader.frames(0)] == [True, True]


def test_an_hour_is_kept_for_an_hour_with_its_command_lines(folder):
    """Three days stayed, whatever was asked for."""
    clock = Clock()
    secret = program(7, "python train.py --token=hunter2")
    with TelemetryWriter(folder, clock=clock, kept=Retention(raw_s=3600.0)) as writer:
        for begin in range(0, 3 * 3600, 300):  # over midnight
            some = range(begin, begin + 300, 60)
            listed = (program(8, "python serve.py"), *((secret,) if begin < 600 else ()))
            clock.now_s = START_S + HOUR_BEGIN + some[-1]
            made = [frame(HOUR_BEGIN + at, sample(power_w=float(at % 3600))) for at in some]
            writer.append([replace(each, processes=listed) for each in made])
            writer.tend()
            oldest_s = next(iter(TelemetryReader(folder).frames(0))).time_s
            assert clock.now_s - oldest_s <= 3600 + 60
    reader = TelemetryReader(folder)
    assert clock.now_s - next(iter(reader.frames(0))).time_s > 3500
    assert {row[4] for row in reader.processes(0, 2e9).rows} == {"python"}
    assert {f.processes[0].command for f in reader.frames(0)} == {"python serve.py"}
    assert all(b"hunter2" not in path.read_bytes() for path in folder.iterdir())
    table = reader.table(0, 2e9, "hour", metrics=["power_w"])
    place = table.columns.index("p95_power_w")
    assert {row[place] for row in table.rows} == {3360.0}  # of all of the hour's seconds


def test_shortened_retention_removes_days_at_once(folder):
    stored(folder, *(frame(at, sample()) for at in range(0, round(2.5 * DAY_S), 1800)))
    end = 2.5 * DAY_S
    stored(folder, frame(end, sample()), frame(end + 60, sample()), kept=Retention(raw_s=3600.0))
    times = [f.time_s - START_S for f in TelemetryReader(folder).frames(0)]
    assert len(times) <= 4
    assert min(times) >= end - 3600


def test_a_leap_of_the_clock_is_believed_after_an_hour():
    passed = Clock(0.0)
    today = Today(START_S, passed)
    today.see(START_S + 60)
    assert today.now_s() == START_S + 60
    for wrong_s in (START_S + 60 + LEAP_S + 1, START_S + 9 * LEAP_S):
        today.see(wrong_s)
        assert today.now_s() == START_S + 60
    passed.now_s = BELIEVED_AFTER_S + 1
    assert today.now_s() == START_S + 9 * LEAP_S
    today.see(START_S)  # it was wrong after all
    assert today.now_s() == START_S


def test_rows_stay_for_an_hour_after_a_leap(folder):
    stored(folder, *(frame(day * DAY_S, sample()) for day in range(3)))
    stored(folder, *(frame(500 * DAY_S + at, sample()) for at in (0, 60, 120)))
    assert len(list(folder.glob("samples-*.db"))) == 4


@pytest.mark.parametrize(
    ("kept", "command"), [("full", "python train.py"), ("program", "python"), ("none", None)]
)
def test_command_lines_can_be_shortened_or_left_out(folder, kept, command):
    made = replace(frame(0, sample()), processes=(program(7, "python train.py"),))
    reader = stored(folder, made, kept=Retention(command_lines=kept))
    (found,) = reader.frames(0)
    assert [each.command for each in found.processes] == [command]
    assert [each.name for each in found.processes] == ["python"]
