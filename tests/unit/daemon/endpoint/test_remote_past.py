"""What was on another machine: the same as its daemon's store has, but for what is not told."""

import json
import time
from dataclasses import replace
from urllib.parse import quote

import msgspec
import pytest

from gpuadvisor.daemon.endpoint import past_answer
from gpuadvisor.daemon.endpoint.client import RemoteError, fetched
from gpuadvisor.daemon.endpoint.past_answer import PastAnswer
from gpuadvisor.daemon.endpoint.remote_past import RemotePast
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import HOST, Event, GpuProcess
from gpuadvisor.domain.timeline import TimelineRequest
from gpuadvisor.storage.telemetry.reader import TelemetryReader
from tests.endpoint import Endpoint
from tests.telemetry import frame, sample
from tests.telemetry_store import stored
from tests.unit.daemon.endpoint.test_remote import answering, http

BEGAN_S = time.time() // 60 * 60 - 300
PYTHON = GpuProcess(
    "GPU-0", 71, "compute", 5 << 30, "python", "ada", "python secret.py", started_s=BEGAN_S
)
XID = Event("xid", BEGAN_S + 7, "Xid 31.", Severity.ERROR, "GPU-0", BEGAN_S + 7, "31", {"xid": 31})
SHARED = Event("finding", BEGAN_S + 5, "ann's python (71)", Severity.WARNING, key="shared_gpu")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Two minutes of a GPU with a process and two events."""
    folder = tmp_path_factory.mktemp("store") / "telemetry"
    made = (replace(frame(0, sample(power_w=at_s)), time_s=BEGAN_S + at_s) for at_s in range(120))
    stored(folder, *(replace(each, processes=(PYTHON,)) for each in made), events=(SHARED, XID))
    return folder


@pytest.fixture
def past(store):
    """A function that returns the past of a machine with these keys of `[prometheus]`."""
    opened = []

    def ask(**chosen):
        opened.append(Endpoint(folder=store, **chosen))
        return RemotePast(opened[-1].host())

    yield ask
    for each in opened:
        each.close()


def test_it_is_what_the_store_has(past, store):
    remote, here = past(processes=True), TelemetryReader(store)
    assert remote.span() == here.span()
    assert remote.all_gpus() == here.all_gpus()
    assert remote.events(0.0)[1] == here.events(0.0)[1]
    assert remote.events(0.0, BEGAN_S + 6, 1) == here.events(0.0, BEGAN_S + 6, 1)
    for metric in ("power_w", "throttle_reasons", "cpu_pct"):
        asked = TimelineRequest(metric, None, BEGAN_S - 60, BEGAN_S + 200, 50, BEGAN_S + 100)
        assert remote.timelines(asked) == here.timelines(asked)
    told, known = remote.moment(BEGAN_S + 60), here.moment(BEGAN_S + 60)
    assert told.readings == known.readings
    assert HOST in told.readings
    assert told.processes == tuple(replace(each, command=None) for each in known.processes)
    assert known.processes[0].command == "python secret.py"


def test_without_processes_none_is_told_or_named(past):
    remote = past()
    moment = remote.moment(BEGAN_S + 60)
    assert moment.processes is None
    assert "`processes = true`" in moment.why_no_processes
    assert "python" not in repr([moment, remote.events(0.0)])


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (b"", "That is no question."),
        (b"[1", "That is no question."),
        (b'{"about": "passwords"}', "That is no question."),
        (b'{"about": "moment", "since_s": -1}', "A time is beyond all dates."),
        (b'{"about": "events", "until_s": 1e300}', "A time is beyond all dates."),
        (b'{"about": "timelines", "metric": "x; DROP"}', "It does not know that metric."),
        (b'{"about": "timelines", "columns": 1000000}', "That is too much for one question."),
        (b'{"about": "timelines", "columns": 0}', "That is too much for one question."),
        (b'{"about": "timelines", "since_s": 9, "until_s": 3}', None),
    ],
)
def test_questions_that_are_odd(store, asked, said):
    made = PastAnswer(store, withheld=None)
    answer = json.loads(made.body(f"q={quote(asked)}"))
    assert answer["version"] == 1
    if said is not None:
        assert answer["problem"] == said


def test_a_store_that_is_damaged_is_a_sentence(tmp_path):
    (tmp_path / "index.db").write_text("no database " * 400)
    answer = json.loads(PastAnswer(tmp_path, withheld=None).body('q={"about":"events"}'))
    assert "index.db" in answer["problem"]


def test_one_question_is_answered_at_a_time(store, monkeypatch):
    monkeypatch.setattr(past_answer, "WAIT_S", 0.01)
    made = PastAnswer(store, withheld=None)
    with made._one_at_a_time:
        assert json.loads(made.body('q={"about":"span"}'))["problem"] == past_answer.BUSY
    assert "problem" not in json.loads(made.body('q={"about":"span"}'))


def test_a_daemon_without_a_store_says_so(past):
    there = Endpoint()
    try:
        with pytest.raises(RemoteError, match="too old to be watched"):
            fetched(there.host(), "/watch/past?q=1")
    finally:
        there.close()


def answers(found, **more):
    return http(msgspec.json.encode({"version": 1, "found": found, **more}))


LINE = {"metric": "power_w", "begin_s": 0.0, "step_s": 1.0, "columns": []}
MOMENT = {"time_s": 1.0}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (http(b"<html>"), "is no daemon"),
        (answers({"GPU-0": 3}), "is no daemon"),
        (answers({}), "a past that cannot be"),
        (answers({"GPU-0": {**LINE, "step_s": 0.0}}), "a past that cannot be"),
        (answers({"GPU-0": {**LINE, "begin_s": 1e300}}), "a past that cannot be"),
        (answers({"GPU-0": {**LINE, "metric": "other"}}), "a past that cannot be"),
        (answers(None, problem="locked\x1b[1m"), r"node7: locked\?\[1m"),
        (answers(None, version=2), "update it"),
    ],
)
def test_what_else_may_answer(answer, said):
    with answering(answer) as host, pytest.raises(RemoteError, match=said):
        RemotePast(host).timelines(TimelineRequest("power_w", ["GPU-0"], 0.0, 1.0, 1))


@pytest.mark.parametrize(
    "moment",
    [
        {"time_s": -5.0},
        {**MOMENT, "events": [{"kind": "a", "began_s": 1e300, "message": ""}]},
        {
            **MOMENT,
            "readings": {"GPU-0": {"power_w": {"value": None, "state": "ok", "since_s": 1}}},
        },
        {**MOMENT, "readings": {"GPU-0": {"power_w": {"value": 1, "state": "ok", "since_s": -1}}}},
    ],
)
def test_a_moment_that_cannot_be(moment):
    with answering(answers(moment)) as host, pytest.raises(RemoteError, match="cannot be"):
        RemotePast(host).moment(1.0)
