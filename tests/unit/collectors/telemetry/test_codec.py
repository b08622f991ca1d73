"""A frame survives the pipe and a recording, and nonsense is refused."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuadvisor.collectors.telemetry.decoding import decode
from gpuadvisor.collectors.telemetry.encoding import encode
from gpuadvisor.domain.metrics import BY_NAME
from gpuadvisor.domain.severity import EVENT_SEVERITIES, Severity
from gpuadvisor.domain.telemetry import (
    Event,
    Frame,
    Gpu,
    GpuProcess,
    Sample,
    State,
    Unavailable,
)

whole_number = st.integers(0, 2**63 - 1)
number = st.floats(allow_nan=False, allow_infinity=False)
metric = st.sampled_from(sorted(BY_NAME))
uuid = st.sampled_from(["GPU-1", "GPU-2", "MIG-1", "host"])
words = st.text(max_size=20)
absence = st.builds(
    Unavailable, st.sampled_from([state for state in State if state is not State.OK]), number, words
)
sample = st.builds(
    Sample,
    st.dictionaries(metric, whole_number | number, max_size=4),
    st.dictionaries(metric, absence, max_size=3),
)
gpu = st.builds(
    Gpu,
    uuid,
    st.integers(0, 15),
    words,
    st.none() | whole_number,
    st.none() | words,
    st.none() | st.tuples(st.integers(5, 12), st.integers(0, 9)),
    st.none() | words,
)
process = st.builds(
    GpuProcess,
    uuid,
    whole_number,
    st.sampled_from(["compute", "graphics"]),
    st.none() | whole_number,
    st.none() | words,
    user=st.none() | words,
    is_host_pid=st.booleans(),
    cpu_pct=st.none() | number,
)
event = st.builds(
    Event,
    words,
    number,
    words,
    st.sampled_from(EVENT_SEVERITIES),
    st.none() | uuid,
    st.none() | number,
    words,
    st.dictionaries(words, words | whole_number, max_size=2),
)
frames = st.builds(
    Frame,
    number,
    st.dictionaries(uuid, sample, max_size=3),
    st.booleans(),
    st.none() | st.lists(gpu, max_size=2).map(tuple),
    st.none() | st.lists(process, max_size=2).map(tuple),
    st.lists(event, max_size=2).map(tuple),
    st.none() | words,
)


@given(frames)
def test_what_is_written_is_read(frame):
    line = encode(frame)
    assert b"\n" not in line
    assert decode(line) == frame


NAN, INFINITE = float("nan"), float("inf")
NO_NUMBERS = {
    "a time": Frame(NAN),
    "a value": Frame(1.0, {"GPU-1": Sample({"power_w": NAN})}),
    "an infinite value": Frame(1.0, {"GPU-1": Sample({"power_w": -INFINITE})}),
    "a time of failure": Frame(
        1.0, {"GPU-1": Sample({}, {"power_w": Unavailable(State.STALE, INFINITE)})}
    ),
    "of a process": Frame(1.0, processes=(GpuProcess("GPU-1", 1, "", 1, "", cpu_pct=NAN),)),
    "of an event": Frame(1.0, events=(Event("gap", 1.0, "", ended_s=INFINITE),)),
    "data of an event": Frame(1.0, events=(Event("gap", 1.0, "", data={"seconds": NAN}),)),
}


@pytest.mark.parametrize("frame", NO_NUMBERS.values(), ids=NO_NUMBERS)
def test_a_value_that_is_no_number_is_not_written(frame):
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode(frame)


def test_a_command_line_that_is_not_utf_8_is_written_and_read():
    process = GpuProcess("GPU-1", 1, "compute", None, "python", command="a\udce4b")
    (read,) = decode(encode(Frame(1.0, processes=(process,)))).processes
    assert read.command == "a?b"


def test_what_a_newer_version_adds_is_ignored():
    line = json.loads(encode(Frame(1.0, gpus=(Gpu("GPU-1", 0, "H100"),))))
    line["weather"] = "fine"
    line["gpus"][0]["colour"] = "green"
    assert decode(json.dumps(line)).gpus == (Gpu("GPU-1", 0, "H100"),)


@pytest.mark.parametrize("severity", sorted(set(Severity) - set(EVENT_SEVERITIES)))
def test_an_event_with_the_severity_of_a_finding_is_refused(severity):
    line = encode(Frame(1.0, events=(Event("gap", 1.0, "", severity),)))
    with pytest.raises(ValueError, match="that of a finding"):
        decode(line)


def read_or_refuse(line):
    with suppress(ValueError):
        assert isinstance(decode(line), Frame)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)
KEYS = ["t", "s", "fast", "gpus", "processes", "events", "problem"]


@given(st.text())
def test_any_text_is_read_or_refused(text):
    read_or_refuse(text)


@given(frames, st.sampled_from(KEYS), json_values)
def test_a_frame_with_something_else_in_it_is_read_or_refused(frame, key, value):
    read_or_refuse(json.dumps({**json.loads(encode(frame)), key: value}))


@given(frames, st.data())
def test_a_frame_that_was_cut_off_is_refused(frame, data):
    line = encode(frame)
    with pytest.raises(ValueError):
        decode(line[: data.draw(st.integers(0, len(line) - 1))])
