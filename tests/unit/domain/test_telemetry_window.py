"""Telemetry summed up: as it comes, from a recording, and from the store."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuadvisor.daemon.sources import window_of_recording, window_of_store
from gpuadvisor.domain.telemetry import (
    HOST,
    PROCESSES,
    SILENT,
    Event,
    Frame,
    Sample,
    State,
    Unavailable,
)
from gpuadvisor.domain.telemetry_window import (
    MOST_EVENTS,
    RollingWindow,
    WindowAccumulator,
    window_of_frames,
)
from gpuadvisor.errors import UsageError
from gpuadvisor.storage.telemetry.writer import TelemetryWriter
from tests.telemetry import START_S, frame, h100, sample

H100 = Path(__file__).parents[3] / "examples" / "h100.gpr"
UUIDS = [h100(0).uuid, h100(1).uuid]
VALUES = st.dictionaries(
    st.sampled_from(["gpu_utilization_pct", "power_w", "energy_j", "power_limit_w"]),
    st.integers(0, 100),
)
MASKS = st.dictionaries(st.just("throttle_reasons"), st.integers(0, 0x1FF))
SAMPLES = st.builds(lambda values, mask: Sample({**values, **mask}), VALUES, MASKS)
SWEEPS = st.lists(st.dictionaries(st.sampled_from([*UUIDS, HOST]), SAMPLES), max_size=30)


def frames_of(sweeps):
    gpus = (h100(0), h100(1))
    return [
        Frame(START_S + at_s, samples, full=at_s % 3 == 0, gpus=gpus if at_s == 0 else None)
        for at_s, samples in enumerate(sweeps)
    ]


def summed(frames):
    made = WindowAccumulator()
    for each in frames:
        made.add(each)
    return made


def rounded(window):
    """The same, with means that do not depend on the order of their sum."""
    return replace(
        window,
        gpus=tuple(
            replace(
                gpu,
                series={n: replace(s, mean=round(s.mean, 9)) for n, s in gpu.series.items()},
                busy={n: replace(s, mean=round(s.mean, 9)) for n, s in gpu.busy.items()},
            )
            for gpu in window.gpus
        ),
    )


@given(SWEEPS)
def test_it_says_what_a_plain_sum_says(sweeps):
    frames = frames_of(sweeps)
    for gpu in summed(frames).window(0, 1).gpus:
        samples = [f.samples[gpu.gpu.uuid].values for f in frames if gpu.gpu.uuid in f.samples]
        power = [each["power_w"] for each in samples if "power_w" in each]
        assert ("power_w" in gpu.series) == bool(power)
        if power:
            series = gpu.series["power_w"]
            assert series.mean == pytest.approx(sum(power) / len(power))
            assert (series.count, series.low, series.high) == (len(power), min(power), max(power))
            assert (series.first, series.last) == (power[0], power[-1])
        busy = [each for each in samples if each.get("gpu_utilization_pct", 0) >= 50]
        masks = [each["throttle_reasons"] for each in busy if "throttle_reasons" in each]
        capped = gpu.busy_shares.get("throttle_reasons/sw_power_cap")
        assert capped == (
            pytest.approx(sum(bool(mask & 4) for mask in masks) / len(masks)) if masks else None
        )


@given(SWEEPS)
def test_a_rolling_window_that_is_long_enough_has_everything(sweeps):
    frames = frames_of(sweeps)
    rolling = RollingWindow(60.0)
    for each in frames:
        rolling.add(each)
    whole = window_of_frames(frames)
    if whole is not None:
        assert rounded(rolling.window()) == rounded(whole)


@given(SWEEPS)
def test_a_rolling_window_says_what_a_sum_of_the_last_minute_says(sweeps):
    frames = [replace(f, time_s=START_S + 9.0 * at) for at, f in enumerate(frames_of(sweeps))]
    last_s = frames[-1].time_s if frames else 0.0
    whole = window_of_frames(frames, last_s - 60.0)
    if whole is not None:
        assert rounded(rolled(frames)) == rounded(whole)


def rolled(frames):
    rolling = RollingWindow(60.0)
    for each in frames:
        rolling.add(each)
    return rolling.window()


def test_a_rolling_window_forgets():
    window = rolled(frame(at_s, sample(power_w=at_s)) for at_s in range(600))
    assert 60 <= window.seconds <= 70
    (gpu,) = window.gpus
    assert gpu.series["power_w"].low >= 530
    assert gpu.series["power_w"].last == 599


def test_what_is_read_rarely_holds_for_three_readings():
    def frames(seconds):
        for at_s in range(seconds):
            yield frame(at_s, sample(power_limit_w=700.0 if at_s == 0 else None))

    assert rolled(frames(200)).gpus[0].series["power_limit_w"].last == 700.0
    assert "power_limit_w" not in rolled(frames(300)).gpus[0].series


def test_a_frame_that_comes_a_little_late_changes_nothing():
    frames = [frame(at_s, sample()) for at_s in range(20)]
    silent = Frame(frames[10].time_s + 0.004, full=False)
    assert rolled([*frames[:10], silent, *frames[10:]]) == rolled(frames)


def test_a_clock_that_was_set_back_begins_anew():
    frames = [frame(at_s, sample(power_w=600.0)) for at_s in range(100, 130)]
    window = rolled([*frames, frame(0, sample(power_w=100.0)), frame(1, sample(power_w=100.0))])
    assert window.seconds == 1.0
    assert window.gpus[0].series["power_w"].high == 100.0


def test_events_do_not_grow_without_end():
    def error(at_s, number):
        return Event("xid", START_S + at_s, "", gpu="GPU-0", key=str(number))

    frames = [frame(s, sample(), events=tuple(error(s, n) for n in range(100))) for s in range(30)]
    events = rolled(frames).events
    assert len(events) == MOST_EVENTS
    assert events[-1].began_s == START_S + 29


@pytest.mark.parametrize(
    ("values", "grown"),
    [((5,), 0), ((5, 5), 0), ((5, 8), 3), ((5, 0, 2), 2), ((5, 7, 1, 1, 4), 6), ((5, 0), 0)],
)
def test_a_counter_that_began_anew_has_counted_what_it_says_since(values, grown):
    name = "ecc_uncorrected_volatile"
    frames = [frame(at_s, Sample({name: value})) for at_s, value in enumerate(values)]
    rolling = RollingWindow()
    for each in frames:
        rolling.add(each)
    for window in (window_of_frames(frames), rolling.window()):
        (gpu,) = window.gpus
        assert gpu.series[name].grown == grown


def test_processes_that_are_not_listed_are_not_none():
    untold = Sample({}, {PROCESSES: Unavailable(State.STALE, START_S)})
    frames = [replace(frame(0, sample(), untold), processes=())]
    rolling = RollingWindow()
    rolling.add(frames[0])
    for window in (window_of_frames(frames), rolling.window()):
        assert [gpu.processes for gpu in window.gpus] == [(), None]


def test_a_recording_of_an_h100():
    (gpu,) = window_of_recording(H100).gpus
    assert gpu.gpu.name == "NVIDIA H100 80GB HBM3"
    assert gpu.busy_share == pytest.approx(22 / 57)
    assert gpu.busy_shares["throttle_reasons/sw_power_cap"] == pytest.approx(12 / 22)
    assert gpu.busy["sm_clock_mhz"].low == 1305
    assert gpu.series["sm_clock_mhz"].low == 345


def test_a_recording_without_values(tmp_path):
    with pytest.raises(UsageError, match="is not a recording"):
        window_of_recording(Path(__file__))


@pytest.fixture
def stored(tmp_path):
    """Two minutes, of which the second is capped; limits are read at the begin alone."""
    folder = tmp_path / "telemetry"
    frames = [
        frame(
            at_s,
            sample(
                throttle_reasons=0x4 if at_s >= 60 else 0,
                power_limit_w=700.0 if at_s == 0 else None,
            ),
            gpus=(h100(0),) if at_s == 0 else None,
        )
        for at_s in range(120)
    ]
    lasting = Event("throttling", START_S + 60, "It is capped.", gpu="GPU-0", key="sw_power_cap")
    with TelemetryWriter(folder, clock=lambda: START_S + 120) as writer:
        writer.append(frames, [lasting])
    return folder


def test_the_store_tells_of_the_time_that_was_asked_for(stored):
    window = window_of_store(START_S + 70, START_S + 80, stored)
    assert window.seconds == 9.0
    (gpu,) = window.gpus
    assert gpu.series["power_w"].count == 10
    assert gpu.busy_shares["throttle_reasons/sw_power_cap"] == 1.0
    assert gpu.series["power_limit_w"].last == 700.0
    assert [event.kind for event in window.events] == ["throttling"]


def test_the_store_tells_nothing_of_other_times(stored):
    assert window_of_store(START_S + 200, START_S + 300, stored) is None
    before = window_of_store(START_S, START_S + 50, stored)
    assert before.events == ()
    assert before.gpus[0].busy_shares["throttle_reasons/sw_power_cap"] == 0.0


def test_without_a_store_there_is_no_window(tmp_path):
    assert window_of_store(START_S, START_S + 50, tmp_path / "none") is None


def test_what_the_clocks_cost_is_a_part_of_the_time_that_was_measured():
    """The GPU worked for a minute, of which 8 h of sleep and a silent driver are no part."""
    silent = [Frame(START_S + at, problem=SILENT) for at in range(60, 120)]
    slept_s = 8 * 3600
    frames = [
        *(frame(at, sample(), gpus=(h100(0),) if at == 0 else None) for at in range(60)),
        *silent,
        *(frame(slept_s + at, sample(gpu_utilization_pct=0)) for at in range(60)),
    ]
    window = window_of_frames(frames)
    assert window.seconds == slept_s + 59
    assert window.measured_s == pytest.approx(118, abs=2)
