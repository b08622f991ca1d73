"""The past is the same whoever kept it: a store, the memory of a sampler, a recording."""

from dataclasses import replace

import pytest

from gpuadvisor.collectors.telemetry.recording import Recorder
from gpuadvisor.daemon.past import Memory, StoreAndMemory, of_recording
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import (
    HOST,
    PROCESSES,
    SILENT,
    Event,
    GpuProcess,
    State,
    Unavailable,
)
from gpuadvisor.domain.timeline import TimelineRequest
from gpuadvisor.errors import StoreError, UsageError
from gpuadvisor.storage.telemetry.reader import TelemetryReader
from gpuadvisor.storage.telemetry.retention import Retention
from gpuadvisor.storage.telemetry.writer import TelemetryWriter
from gpuadvisor.tui.watch.table import text_of
from gpuadvisor.tui.watch.then import document, lines, printed
from tests.telemetry import START_S, frame, sample
from tests.telemetry_store import Clock, stored

HOT = Event("temperature", START_S + 40, "GPU 0 is hot.", Severity.WARNING, "GPU-0", START_S + 55)
LOST = {"power_w": Unavailable(State.LOST, START_S + 30, "gone")}
TRAINING = GpuProcess("GPU-0", 4711, "compute", 2**30, "python", "anna", "python train.py")


def frames():
    """A minute and a half: a spike, a gap of ten seconds, a GPU that is lost for a while."""
    made = []
    for at in range(90):
        if 60 < at < 70:
            continue
        watts = 700.0 if at == 17 else 400.0
        lost = LOST if 30 <= at < 50 else None
        each = frame(at, sample(power_w=watts), sample(lost))
        listed = (TRAINING,) if at % 5 == 0 and at < 50 else () if at % 5 == 0 else None
        made.append(replace(each, processes=listed))
    return made


def remembered(found=None):
    memory = Memory()
    for each in frames() if found is None else found:
        memory.take(each, [HOT] if each.time_s == HOT.began_s else [])
    return memory


@pytest.fixture(scope="module")
def pasts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("past")
    return {"memory": remembered(), "store": stored(folder, *frames(), events=[HOT])}


@pytest.mark.parametrize("kind", ["memory", "store"])
def test_a_chart_has_the_spike_and_the_gap(pasts, kind):
    past = pasts[kind]
    end_s = START_S + 90
    found = past.timelines(TimelineRequest("power_w", None, START_S, end_s, 30, now_s=end_s))
    first = found["GPU-0"]
    spikes = [place for place, c in enumerate(first.columns) if c and c.high == 700.0]
    at = first.begin_s + first.step_s * spikes[0] - START_S
    assert len(spikes) == 1 and at <= 17 < at + first.step_s
    missing_s = sum(first.step_s if c is None else c.missing_s for c in first.columns[1:])
    assert missing_s == pytest.approx(9, abs=0.1)
    assert found["GPU-1"].columns[12] is None


@pytest.mark.parametrize("metric", ["power_w", "throttle_reasons", "energy_j", "cpu_pct"])
def test_a_store_and_a_memory_draw_the_same(pasts, metric):
    asked = TimelineRequest(metric, None, START_S + 3, START_S + 88, 20, now_s=START_S + 90)
    one, other = (past.timelines(asked) for past in pasts.values())
    assert one == other


@pytest.mark.parametrize("at", [0, 17.5, 33, 45, 65, 89])
def test_a_store_and_a_memory_know_the_same_of_a_moment(pasts, at):
    one, other = (past.moment(START_S + at) for past in pasts.values())
    assert one.readings["GPU-0"]["power_w"] == other.readings["GPU-0"]["power_w"]
    assert one.readings == other.readings
    assert (one.processes, one.listed_s) == (other.processes, other.listed_s)
    assert one.events == other.events


def test_a_moment_has_the_values_processes_and_events_of_then(pasts):
    then = pasts["store"].moment(START_S + 45.5)
    assert then.readings["GPU-0"]["power_w"].value == 400.0
    assert then.readings["GPU-1"]["power_w"].state is State.LOST
    assert then.readings[HOST]["cpu_pct"].is_ok
    assert then.processes == (TRAINING,)
    assert then.listed_s == START_S + 45
    assert then.events == (HOT,)
    assert then.row_s == 0


def test_in_a_gap_values_are_stale_and_no_list_is_taken_for_it(pasts):
    then = pasts["store"].moment(START_S + 66)
    assert then.readings["GPU-0"]["power_w"].state is State.STALE
    assert pasts["store"].moment(START_S + 3600).is_known is False
    assert pasts["store"].moment(START_S - 60).is_known is False
    assert pasts["memory"].moment(START_S - 60).is_known is False


def test_while_the_driver_hangs_and_after_the_end_nobody_knows_the_processes(tmp_path):
    """A list of before is not one of then, also an empty one: "no process" would be invented."""
    silent = {name: Unavailable(State.STALE, START_S + 4, SILENT) for name in sample().values}
    frames = [
        replace(frame(0, sample()), processes=()),
        frame(4, sample()),
        replace(frame(6, sample(silent), problem=SILENT), gpus=None),
        replace(frame(20, sample()), gpus=None, processes=()),
    ]
    memory = Memory()
    with TelemetryWriter(tmp_path, clock=Clock()) as writer:
        for each in frames:
            writer.append([each])
            memory.take(each, [])
    for past in (StoreAndMemory(tmp_path, memory), memory):
        in_hang, after, just_after = (past.moment(START_S + at) for at in (7, 21, 27))
        assert (in_hang.processes, after.processes, just_after.processes) == (None, (), None)
        assert not just_after.is_measured
        assert "not known" in in_hang.why_no_processes
        assert not past.moment(START_S + 400).is_measured
        assert after.is_measured


def test_of_one_gpu_whose_processes_were_not_listed_nobody_says_that_it_had_none(tmp_path):
    untold = replace(
        sample(), unavailable={PROCESSES: Unavailable(State.STALE, START_S + 4, "no list")}
    )
    frames = [
        replace(frame(at, sample(), untold if at else sample()), processes=()) for at in range(6)
    ]
    memory = Memory()
    with TelemetryWriter(tmp_path, clock=Clock()) as writer:
        writer.append(frames)
    for each in frames:
        memory.take(each, [])
    for past in (StoreAndMemory(tmp_path, memory), memory, TelemetryReader(tmp_path)):
        before, then = (past.moment(START_S + at) for at in (0, 5))
        assert (before.unlisted, then.unlisted) == ((), ("GPU-1",))
        assert then.untold == "The driver did not list the processes on GPU 1 then."
        said = [list(printed(each, 80, START_S + 9, is_current=True)) for each in (before, then)]
        assert "No process was on a GPU." in said[0]
        assert said[1][-1] == then.untold and "No process was on a GPU." not in said[1]
        assert document(then)["processes_withheld"] == then.untold
        names = {"GPU-0": "GPU 0", "GPU-1": "GPU 1"}
        made = lines(then, "GPU-1", names, 80, 20, START_S + 9, lambda _: True)
        of_gpu = [text_of(each) for each in made]
        assert then.untold in of_gpu and "No process on GPU 1" not in of_gpu


def test_a_moment_whose_sweeps_are_gone_has_the_minute_and_then_the_hour(tmp_path):
    clock, begin_s = Clock(), START_S // 3600 * 3600
    kept = Retention(raw_s=3600.0, minutes_s=7200.0)
    with TelemetryWriter(tmp_path, clock=clock, kept=kept) as writer:
        for begin in range(0, 5 * 3600, 600):
            times = [begin_s + begin + at for at in range(0, 600, 30)]
            clock.now_s = times[-1]
            watts = [100.0 if at % 60 else 300.0 for at in times]
            writer.append(
                [
                    frame(at - START_S, sample(power_w=each))
                    for at, each in zip(times, watts, strict=True)
                ]
            )
            writer.tend()
    reader = TelemetryReader(tmp_path)
    minute = reader.moment(begin_s + 3 * 3600 + 90)
    assert (minute.row_s, minute.readings["GPU-0"]["power_w"].value) == (60, 200.0)
    assert minute.ranges["GPU-0"]["power_w"] == (100.0, 300.0)
    assert minute.readings["GPU-0"]["power_w"].since_s == begin_s + 3 * 3600 + 60
    assert minute.processes is None and "48 h" in minute.why_no_processes
    hour = reader.moment(begin_s + 1800)
    assert (hour.row_s, hour.readings["GPU-0"]["power_w"].since_s) == (3600, begin_s)
    sweep = reader.moment(begin_s + 5 * 3600 - 40)
    assert (sweep.row_s, sweep.readings["GPU-0"]["power_w"].value) == (0, 300.0)


@pytest.mark.parametrize(
    ("before_s", "what"), [(20, "minute"), (1500, "hour"), (4000, "nothing at all")]
)
def test_what_was_before_the_first_reading_was_not_measured(tmp_path, before_s, what):
    first_s = START_S // 3600 * 3600 + 1830.0 - START_S
    times = [first_s + at for at in range(3600)]
    clock = Clock(START_S + times[-1])
    with TelemetryWriter(tmp_path, clock=clock) as writer:
        writer.append([frame(at, sample()) for at in times])
        writer.tend()
    past = TelemetryReader(tmp_path)
    assert past.moment(START_S + first_s).is_known
    assert not past.moment(START_S + first_s - before_s).is_known, what


def test_a_mean_says_how_much_of_its_hour_was_measured(tmp_path):
    clock, begin_s = Clock(), START_S // 3600 * 3600
    kept = Retention(raw_s=3600.0, minutes_s=7200.0)
    with TelemetryWriter(tmp_path, clock=clock, kept=kept) as writer:
        for begin in (1800, 3600, 5 * 3600):
            times = range(begin, begin + 1800)
            clock.now_s = begin_s + times[-1]
            writer.append([frame(begin_s + at - START_S, sample()) for at in times])
            writer.tend()
    hour = TelemetryReader(tmp_path).moment(begin_s + 600)
    assert (hour.row_s, hour.measured_s) == (3600, 1800)
    assert "of which there are 30 min" in next(
        iter(printed(hour, 120, clock.now_s, is_current=True))
    )


@pytest.mark.parametrize(("at_s", "is_told"), [(39.9, False), (40, True), (90, True), (101, False)])
def test_what_does_not_last_is_told_in_its_second_and_the_minute_after(tmp_path, at_s, is_told):
    xid = Event("xid", START_S + 40.7, "Xid 94.", Severity.ERROR, "GPU-0", START_S + 40.7)
    every = [frame(at, sample()) for at in range(120)]
    memory = Memory()
    for each in every:
        memory.take(each, [xid] if each.time_s == START_S + 41 else [])
    for past in (stored(tmp_path, *every, events=[xid]), memory):
        assert (past.moment(START_S + at_s).events == (xid,)) is is_told


def test_a_live_sampler_goes_on_where_the_store_of_a_daemon_ended(tmp_path):
    found = frames()
    store = stored(tmp_path, *found[:40], events=[HOT])
    past = StoreAndMemory(store, remembered(found[40:]))
    asked = TimelineRequest("power_w", ["GPU-0"], START_S, START_S + 90, 30, now_s=START_S + 90)
    whole = remembered().timelines(asked)["GPU-0"]
    made = past.timelines(asked)["GPU-0"]
    assert [c and c[:2] for c in made.columns] == [c and c[:2] for c in whole.columns]
    assert past.span() == (START_S, START_S + 89)
    assert past.moment(START_S + 20).readings["GPU-0"]["power_w"].value == 400.0
    assert past.events(START_S) == [HOT]


def test_a_damaged_store_does_not_hide_the_last_minutes(tmp_path):
    (tmp_path / "index.db").write_text("no database, and long enough to be taken for one" * 30)
    past = StoreAndMemory(TelemetryReader(tmp_path), remembered())
    made = past.timelines(TimelineRequest("power_w", ["GPU-0"], START_S, START_S + 60, 20))["GPU-0"]
    assert not made.is_empty
    with pytest.raises(StoreError, match="is not a SQLite database"):
        past.timelines(TimelineRequest("power_w", ["GPU-0"], START_S - 3600, START_S, 20))


def test_memory_is_of_the_last_minutes_and_forgets_when_the_clock_is_set_back():
    memory = Memory(kept_s=20)
    for each in frames():
        memory.take(each, ())
    assert memory.span() == (START_S + 69, START_S + 89)
    kept = memory.devices["GPU-0"].series["power_w"].times
    assert START_S + 66 <= kept[0] <= START_S + 70
    memory.take(frame(88.9, sample()), ())  # as NTP sets it, a little
    assert memory.span() == (START_S + 69, START_S + 89)
    asked = TimelineRequest("power_w", None, START_S + 80, START_S + 90, 5)
    assert memory.timelines(asked)["GPU-0"].columns
    memory.take(frame(-3600, sample()), ())
    assert memory.span() == (START_S - 3600, START_S - 3600)


def test_a_recording_has_the_events_that_its_frames_make(tmp_path):
    path = tmp_path / "night.gpr"
    with Recorder(path, "test") as recorder:
        for at in range(20):
            hot = sample(temperature_c=86 if at > 5 else 60)
            recorder.write(frame(at, hot))
    memory = of_recording(path)
    assert memory.span() == (START_S, START_S + 19)
    assert [event.kind for event in memory.events(START_S)] == ["temperature"]
    with pytest.raises(UsageError):
        of_recording(tmp_path / "none.gpr")
