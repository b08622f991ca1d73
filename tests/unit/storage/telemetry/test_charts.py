"""A thinned chart against the plain readings that were stored: no spike and no gap is hidden."""

import math
import random
from bisect import bisect_left
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuadvisor.domain.telemetry import Frame, Sample, State, Unavailable
from gpuadvisor.domain.timeline import TimelineRequest
from gpuadvisor.storage.telemetry.reader import TelemetryReader
from gpuadvisor.storage.telemetry.writer import TelemetryWriter
from tests.telemetry import h100
from tests.telemetry_store import Clock

BEGIN_S = 1_700_002_800.0
"""A whole hour."""
LENGTH_S = 3 * 3600 + 1234
GAPS = ((1000, 1007), (2000, 2071), (4000, 4600), (7300, 10890))
"""Seconds without any sweep: short, over a minute, ten minutes, and most of an hour and its end."""
STALE = (5000, 5400)
"""Seconds in which GPU 1 was read, but not its power."""
PATIENCE_S = 3.0


class Plain:
    """The readings of one GPU, and the spans without one that are longer than a late one takes."""

    def __init__(self, readings, is_steady):
        self.is_steady = is_steady
        self.readings = readings
        self.times = times = [time_s for time_s, _ in readings]
        self.silences = [(a + 1, b) for a, b in pairwise(times) if b - a > PATIENCE_S]

    def __repr__(self):
        return "readings"

    def silent(self, since_s, until_s, end_s):
        """Spans of silence that are in this one, when the newest reading was awaited at `end_s`."""
        silences = [(-math.inf, self.times[0]), *self.silences, (self.times[-1] + 1, end_s)]
        if end_s - self.times[-1] <= PATIENCE_S:
            silences.pop()
        return [
            (max(a, since_s), min(b, until_s)) for a, b in silences if b > since_s and a < until_s
        ]


@pytest.fixture(scope="module")
def plain():
    """Readings of the power by GPU, as (time, watts)."""
    random.seed(7)
    found = {"GPU-0": [], "GPU-1": []}
    for at in range(LENGTH_S):
        if any(since < at < until for since, until in GAPS):
            continue
        for uuid, readings in found.items():
            if uuid == "GPU-1" and STALE[0] < at < STALE[1]:
                continue
            watts = random.choice((0.0, 700.0)) if random.random() < 0.002 else random.gauss(400, 9)
            readings.append((BEGIN_S + at, watts))
    return {uuid: Plain(readings, uuid == "GPU-0") for uuid, readings in found.items()}


@pytest.fixture(scope="module")
def reader(plain, tmp_path_factory):
    """A store with these readings: hours and minutes are rolled up as far as they are over."""
    folder = tmp_path_factory.mktemp("charts")
    watts = {uuid: dict(each.readings) for uuid, each in plain.items()}
    times = sorted(set(watts["GPU-0"]) | set(watts["GPU-1"]))
    clock = Clock(BEGIN_S)
    lost = {"power_w": Unavailable(State.STALE, BEGIN_S + STALE[0])}
    with TelemetryWriter(folder, clock=clock) as writer:
        for begin in range(0, len(times), 60):
            part = times[begin : begin + 60]
            clock.now_s = part[-1]
            writer.append(
                [
                    Frame(
                        time_s,
                        {
                            uuid: Sample({"temperature_c": 50, "power_w": each[time_s]})
                            if time_s in each
                            else Sample({"temperature_c": 50}, lost)
                            for uuid, each in watts.items()
                        },
                        gpus=(h100(0), h100(1)) if begin == 0 else None,
                    )
                    for time_s in part
                ]
            )
            writer.tend()
    return TelemetryReader(folder)


def check(timeline, plain, now_s):
    """Compare each column with the readings of its time."""
    # A row tells how many seconds of it were read, and a late sweep is not a gap.
    shortest_s = max(PATIENCE_S, 5.0 if timeline.row_s else 0.0)
    for place, column in enumerate(timeline.columns):
        begin_s = timeline.begin_s + place * timeline.step_s
        end_s = min(begin_s + timeline.step_s, now_s)
        last = bisect_left(plain.times, begin_s + timeline.step_s)
        first = bisect_left(plain.times, begin_s)
        values = [value for _, value in plain.readings[first:last]]
        silent_s = sum(b - a for a, b in plain.silent(begin_s, end_s, now_s))
        where = (place, begin_s - BEGIN_S, end_s - BEGIN_S, column)
        if column is None:
            assert silent_s >= end_s - begin_s - 1e-3 or end_s <= plain.times[0], where
            continue
        if values:
            assert (column.low, column.high) == (min(values), max(values)), where
            # A row counts its sweeps, also those that did not read this metric.
            rel = 1e-9 if plain.is_steady or not timeline.row_s else 0.1
            assert column.readings >= len(values), where
            assert column.readings == len(values) or rel == 0.1, where
            assert column.mean == pytest.approx(math.fsum(values) / len(values), rel=rel), where
        else:  # between two readings: the one before still holds
            assert column.readings == 0, where
            assert column[:3] == (plain.readings[first - 1][1],) * 3, where
        slack_s = 0.01 if not timeline.row_s else shortest_s * (1 + timeline.step_s // 60)
        assert column.missing_s == pytest.approx(silent_s, abs=slack_s), where
        if silent_s > shortest_s:
            assert column.missing_s > 0, where


@settings(max_examples=60, deadline=None)
@given(
    since=st.integers(0, LENGTH_S - 60),
    length=st.integers(60, LENGTH_S),
    columns=st.integers(1, 400),
)
def test_each_column_has_what_was_read_in_its_time(reader, plain, since, length, columns):
    since_s, until_s = BEGIN_S + since, BEGIN_S + min(since + length, LENGTH_S)
    now_s = BEGIN_S + LENGTH_S
    found = reader.timelines(TimelineRequest("power_w", None, since_s, until_s, columns, now_s))
    assert set(found) == set(plain)
    for uuid, timeline in found.items():
        assert timeline.begin_s <= since_s
        assert timeline.end_s >= until_s
        assert len(timeline.columns) <= columns + 1
        check(timeline, plain[uuid], BEGIN_S + LENGTH_S)


def three_hours(reader, metric, device):
    wanted = TimelineRequest(metric, [device], BEGIN_S, BEGIN_S + 3 * 3600, 3)
    return reader.timelines(wanted)[device]


def test_hours_show_a_minute_that_is_missing(reader, plain):
    timeline = three_hours(reader, "power_w", "GPU-0")
    assert (timeline.row_s, timeline.step_s) == (3600, 3600)
    assert [round(column.missing_s) for column in timeline.columns] == [6 + 70, 599, 3499]


def test_a_metric_that_was_not_read_while_others_were_is_a_gap(reader):
    hours = three_hours(reader, "power_w", "GPU-1")
    assert hours.columns[1].missing_s == pytest.approx(599 + 399, abs=2)
    other = three_hours(reader, "temperature_c", "GPU-1")
    assert other.columns[1].missing_s == pytest.approx(599, abs=2)


def test_a_chart_and_a_table_say_the_same(reader, plain):
    """What `gpuadvisor.telemetry()` and `db export` read, and what is drawn."""
    span = (BEGIN_S, BEGIN_S + LENGTH_S)
    asked = TimelineRequest("power_w", ["GPU-0"], *span, 80, now_s=span[1])
    chart = reader.timelines(asked)["GPU-0"]
    known = [column for column in chart.columns if column is not None]
    for resolution, low, high in (("raw", 2, 2), ("minute", 3, 4)):
        rows = list(reader.table(*span, resolution, gpus=["GPU-0"], metrics=["power_w"]).rows)
        if resolution == "minute":  # the last minute is not rolled up yet
            asked = replace(asked, until_s=rows[-1][0] + 60, now_s=None)
            chart = reader.timelines(asked)["GPU-0"]
            known = [column for column in chart.columns if column is not None]
        assert min(row[low] for row in rows) == min(column.low for column in known)
        assert max(row[high] for row in rows) == max(column.high for column in known)
