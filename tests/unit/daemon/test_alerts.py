"""Alerts: what is told, when and how often; and that it arrives at real commands and servers."""

import json
import logging
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from msgspec.structs import replace as changed

from gpuadvisor.daemon.alerts import WAITING, Alerts, Dispatchers, Notice, is_end_seen
from gpuadvisor.daemon.configuration import AlertRule
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Event, Gpu
from gpuadvisor.rules.alert_states import AlertStates, Message

GPUS = (Gpu("GPU-a", 0, "H100"), Gpu("GPU-b", 1, "H100"))
RULE = AlertRule("test", command=("true",))
HOT = Event("temperature", 100.0, "GPU 1 is hot.", Severity.WARNING, "GPU-b")
XID = Event("xid", 100.0, "Xid 31.", Severity.ERROR, "GPU-a", 100.0)
GAP = Event("gap", 50.0, "Nothing was measured.", Severity.WARNING, ended_s=100.0)


class Outbox(Dispatchers):
    """Keeps what would be sent."""

    def __init__(self):
        super().__init__()
        self.sent = []

    def send(self, rule, notice):
        self.sent.append((notice.status, notice.event.kind, notice.gpu_index))


def told(rule, *moments):
    """What a rule tells, given (time, events) in order."""
    outbox = Outbox()
    alerts = Alerts([rule], outbox)
    for now_s, *events in moments:
        alerts.observe(events, GPUS, now_s, now_s)
    return outbox.sent


def over(event, at_s):
    return replace(event, ended_s=at_s)


FIRED, RECOVERED = ("firing", "temperature", 1), ("recovered", "temperature", 1)

CASES = {
    "begins and ends": (RULE, [(100, HOT), (101,), (110, over(HOT, 110.0))], [FIRED, RECOVERED]),
    "without recovered": (
        changed(RULE, recovered=False),
        [(100, HOT), (110, over(HOT, 110.0))],
        [FIRED],
    ),
    "what lasts too short": (
        changed(RULE, for_s=30),
        [(100, HOT), (129,), (129.5, over(HOT, 129.5)), (200,)],
        [],
    ),
    "what lasts long enough": (
        changed(RULE, for_s=30),
        [(100, HOT), (129,), (130,), (200,)],
        [FIRED],
    ),
    "what never lasts does not wait": (
        changed(RULE, for_s=30),
        [(100, XID)],
        [("firing", "xid", 0)],
    ),
    "what nobody could see to its end is told anew where it still holds": (
        changed(RULE, again_after_s=86400),
        [(100, HOT), (4000, over(HOT, 110.0)), (4001, replace(HOT, began_s=4000.0))],
        [FIRED, RECOVERED, FIRED],
    ),
    "not again too soon": (
        changed(RULE, again_after_s=60),
        [
            (100, HOT),
            (110, over(HOT, 110.0)),
            (120, replace(HOT, began_s=120.0)),
            (130, over(replace(HOT, began_s=120.0), 130.0)),
            (170, replace(HOT, began_s=170.0)),
        ],
        [FIRED, RECOVERED, FIRED],
    ),
    "another GPU is not a repetition": (
        RULE,
        [(100, HOT), (101, replace(HOT, gpu="GPU-a"))],
        [FIRED, ("firing", "temperature", 0)],
    ),
    "only these kinds": (
        changed(RULE, kinds=("xid",)),
        [(100, HOT, XID)],
        [("firing", "xid", 0)],
    ),
    "only errors": (
        changed(RULE, severity=Severity.ERROR),
        [(100, HOT, XID)],
        [("firing", "xid", 0)],
    ),
    "only this GPU, by number": (
        changed(RULE, gpus=("1",)),
        [(100, HOT, XID, GAP)],
        [FIRED],
    ),
    "only this GPU, by UUID": (changed(RULE, gpus=("GPU-b",)), [(100, HOT, XID)], [FIRED]),
    "what is about no GPU": (RULE, [(100, GAP)], [("firing", "gap", None)]),
    "what began before it was told": (changed(RULE, for_s=30), [(129, HOT), (130,)], [FIRED]),
}


@pytest.mark.parametrize(("rule", "moments", "expected"), CASES.values(), ids=CASES)
def test_case(rule, moments, expected):
    assert told(rule, *moments) == expected


@pytest.mark.parametrize("jump_s", [-3600, 3600])
def test_a_clock_that_is_set_makes_nothing_last(jump_s):
    outbox = Outbox()
    alerts = Alerts([changed(RULE, for_s=30)], outbox)
    alerts.observe([HOT], GPUS, 100, 7)
    alerts.observe([], GPUS, 101 + jump_s, 8)
    alerts.observe([], GPUS, 129 + jump_s, 36)
    assert outbox.sent == []
    alerts.observe([], GPUS, 130 + jump_s, 37)
    assert outbox.sent == [FIRED]


@pytest.mark.parametrize(
    ("told_s", "text"),
    [
        (110.0, "Over after 10 s: GPU 1 is hot."),
        (4000.0, "Nobody could see whether it went on after 10 s: GPU 1 is hot."),
    ],
)
def test_an_end_that_nobody_saw_is_not_said_to_be_one(told_s, text):
    texts = []
    outbox = Outbox()
    outbox.send = lambda _, notice: texts.append(notice.text)
    alerts = Alerts([RULE], outbox)
    alerts.observe([HOT], GPUS, 100, 7)
    alerts.observe([over(HOT, 110.0)], GPUS, told_s, 17)
    assert texts == ["GPU 1 is hot.", text]


AGAIN = replace(HOT, began_s=205.0)
"""The same under the next daemon."""


@pytest.mark.parametrize(
    ("rule", "moments", "expected"),
    [
        # It goes on: nobody is told again, and everybody when it ends.
        (RULE, [(205, AGAIN), (400,), (500, over(AGAIN, 500.0))], [RECOVERED]),
        # It has gone meanwhile, or at least nobody can tell whether it went on.
        (RULE, [(205,), (319,), (321,), (400,)], [RECOVERED]),
        (changed(RULE, recovered=False), [(205,), (400,)], []),
        # The killed daemon did not tell of it either.
        (changed(RULE, for_s=150), [(205,), (400,)], []),
        (changed(RULE, for_s=150), [(205, AGAIN), (400,)], [FIRED]),
        # Nobody measured for so long that it is told again anyway.
        (changed(RULE, again_after_s=5), [(200, AGAIN), (400,)], [RECOVERED, FIRED]),
        # It is of no concern to this rule.
        (changed(RULE, kinds=("xid",)), [(205,), (400,)], []),
    ],
)
def test_what_a_killed_daemon_left_open_is_not_told_as_new(rule, moments, expected):
    outbox = Outbox()
    alerts = Alerts([rule], outbox)
    alerts.observe([], GPUS, 200, 7, left=[over(HOT, 190.0)])
    for time_s, *events in moments:
        alerts.observe(events, GPUS, time_s, time_s - 193)
    assert outbox.sent == expected


def test_of_what_nobody_saw_end_since_a_kill_that_is_said():
    texts = []
    outbox = Outbox()
    outbox.send = lambda _, notice: texts.append(notice.text)
    alerts = Alerts([RULE], outbox)
    alerts.observe([], GPUS, 200, 7, left=[over(HOT, 190.0)])
    alerts.observe([], GPUS, 400, 207)
    assert texts == ["Nobody could see whether it went on after 1 min 30 s: GPU 1 is hot."]


def test_other_rules_forget_nothing_of_those_that_stay():
    outbox = Outbox()
    alerts = Alerts([RULE], outbox)
    alerts.observe([HOT], GPUS, 100, 100)
    alerts.reconfigure([changed(RULE, name="new"), RULE])
    alerts.observe([over(HOT, 110.0)], GPUS, 110, 110)
    assert ("recovered", "temperature", 1) in outbox.sent


def test_what_ends_with_a_gpu_that_is_not_listed_any_more_is_not_said_to_be_over():
    """Also a rule that names the GPU by its number knows whose event that is."""
    outbox = Outbox()
    alerts = Alerts([changed(RULE, gpus=("1",))], outbox)
    alerts.observe([HOT], GPUS, 100, 100)
    states = AlertStates("temperature")
    message = Message("GPU 1 is hot.")
    assert [*states.update(100.0, True, lambda: message, "GPU-b")]
    (end,) = states.forget_all_but(GPUS[:1], 110.0)
    assert not is_end_seen(end, 110.0)
    gone = Event("gpu_removed", 110.0, "GPU 1 was removed.", Severity.WARNING, "GPU-b", 110.0)
    alerts.observe([end, gone], GPUS[:1], 110, 110)
    assert outbox.sent == [FIRED, RECOVERED, ("firing", "gpu_removed", 1)]


class Hook(BaseHTTPRequestHandler):
    """Answers with the statuses that the server was given, then 200."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((self.headers["Content-Type"], json.loads(body)))
        status = self.server.answers.pop(0) if self.server.answers else 200
        if status == "hang":
            self.server.ended.wait(20)
            return
        self.send_response(status)
        self.end_headers()
        self.server.heard.release()

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    made = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    made.got, made.answers = [], []
    made.heard, made.ended = threading.Semaphore(0), threading.Event()
    made.url = f"http://127.0.0.1:{made.server_port}/hook"
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield made
    made.ended.set()
    made.shutdown()
    thread.join()
    made.server_close()


def notice(event=HOT, status="firing"):
    return Notice("test", status, event, 1)


def send(rule, *notices, retry_s=(0.01, 0.01)):
    dispatchers = Dispatchers(retry_s)
    for each in notices:
        dispatchers.send(rule, each)
    return dispatchers


def test_a_webhook_gets_the_event(server):
    dispatchers = send(AlertRule("test", webhook=server.url), notice(replace(HOT, data={"c": 85})))
    assert server.heard.acquire(timeout=60)
    dispatchers.close()
    ((kind, body),) = server.got
    assert kind == "application/json"
    assert body["version"] == 1
    assert body["alert"] == "test"
    assert body["status"] == "firing"
    assert body["gpu_index"] == 1
    assert body["text"].endswith(": GPU 1 is hot.")
    assert body["event"]["kind"] == "temperature"
    assert body["event"]["severity"] == "warning"
    assert body["event"]["data"] == {"c": 85}


def test_a_webhook_that_fails_is_tried_again(server, caplog):
    server.answers = [503, 500]
    dispatchers = send(AlertRule("test", webhook=server.url), notice())
    for _ in range(3):
        assert server.heard.acquire(timeout=60)
    dispatchers.close()
    assert len(server.got) == 3
    assert [r.levelname for r in caplog.records] == ["WARNING", "WARNING"]
    assert "the webhook answered 503 Service Unavailable" in caplog.text


def test_a_webhook_that_refuses_is_not_asked_again(server, caplog):
    server.answers = [404]
    dispatchers = send(AlertRule("test", webhook=server.url), notice())
    assert server.heard.acquire(timeout=60)
    dispatchers.close()
    assert len(server.got) == 1
    assert '"GPU 1 is hot." could not be sent (the webhook answered 404 Not Found)' in caplog.text


def test_a_webhook_that_is_not_there_is_given_up(server, caplog):
    gone = AlertRule("test", webhook="http://127.0.0.1:9/", timeout_s=1)
    send(gone, notice()).close(wait_s=20)
    assert "could not be sent" in caplog.text


def test_a_webhook_that_hangs_blocks_nobody_and_its_queue_is_bounded(server, caplog):
    server.answers = ["hang"]
    hanging = AlertRule("hanging", webhook=server.url, timeout_s=30)
    dispatchers = send(hanging, *[notice()] * (WAITING + 5))
    assert "notices wait already, so this one is dropped" in caplog.text
    dispatchers.send(AlertRule("other", webhook=server.url), notice())
    assert server.heard.acquire(timeout=60)
    server.ended.set()
    dispatchers.close(wait_s=20)


def test_a_command_gets_the_event_on_stdin_and_in_its_environment(tmp_path):
    program = (
        "import json, os, sys;"
        "json.dump([json.load(sys.stdin), dict(os.environ), sys.argv[2:]], open(sys.argv[1], 'w'))"
    )
    told = tmp_path / "told.json"
    command = (sys.executable, "-c", program, str(told), "$HOME; `id`")
    rule = AlertRule("test", command=command, timeout_s=60)
    send(rule, notice(over(HOT, 190.0), "recovered")).close(wait_s=60)
    event, environment, words = json.loads(told.read_text())
    assert event["status"] == "recovered"
    assert event["event"]["ended_s"] == 190.0
    assert words == ["$HOME; `id`"]
    assert environment["GPUADVISOR_EVENT_KIND"] == "temperature"
    assert environment["GPUADVISOR_EVENT_GPU"] == "GPU-b"
    assert environment["GPUADVISOR_EVENT_GPU_INDEX"] == "1"
    assert environment["GPUADVISOR_EVENT_TEXT"] == "Over after 1 min 30 s: GPU 1 is hot."


COMMANDS = {
    "fails": (("sh", "-c", "echo no paper; exit 3"), 60.0, "sh ended with status 3"),
    "hangs": (("sh", "-c", "sleep 1000 & wait"), 0.6, "sh was ended after 1 s"),
    "is not there": (("/nonexistent/notify",), 60.0, "No such file or directory"),
}


@pytest.mark.parametrize(("command", "timeout_s", "reason"), COMMANDS.values(), ids=COMMANDS)
def test_a_command_that(command, timeout_s, reason, caplog):
    caplog.set_level(logging.INFO)
    send(AlertRule("test", command=command, timeout_s=timeout_s), notice()).close(wait_s=60)
    assert reason in caplog.text
    assert ("no paper" in caplog.text) == ("3" in reason)


def test_a_command_that_reads_nothing_of_a_huge_event(caplog):
    rule = AlertRule("test", command=("sh", "-c", "exit 0"), timeout_s=60)
    send(rule, notice(replace(HOT, message="x" * 1_000_000 + "\0"))).close(wait_s=60)
    assert caplog.text == ""
