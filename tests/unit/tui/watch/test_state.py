"""What the page and the JSON say of a source and its events."""

import json
import sys
from dataclasses import replace

import pytest

from gpuadvisor.daemon.sources import FromStore
from gpuadvisor.domain.metrics import GPU_METRICS, HOST_METRICS
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import SILENT, STARTING, Event, Frame, State, Unavailable
from gpuadvisor.errors import AdvisorError, SilentError
from gpuadvisor.tui.watch import plain
from gpuadvisor.tui.watch.event_log import EventLog
from gpuadvisor.tui.watch.pages.overview import details
from gpuadvisor.tui.watch.plain import document
from gpuadvisor.tui.watch.state import WatchState
from tests.telemetry import START_S, all_in, frame, h100, sample
from tests.telemetry_store import stored

LABELS = {"GPU-0": "0", "GPU-1": "1"}


class Frames:
    """A source of made frames."""

    label = "made"
    withheld = None

    def __init__(self, *frames):
        self._frames = frames

    def frames(self):
        yield from self._frames

    def close(self):
        pass


@pytest.fixture
def now():
    return [0.0]


@pytest.fixture
def watched(now):
    return WatchState("live", host="node7", clock=lambda: now[0])


def event(at_s, message, ended_s=None, gpu="GPU-0", severity=Severity.WARNING, key=""):
    return Event(
        "made",
        START_S + at_s,
        message,
        severity,
        gpu,
        None if ended_s is None else START_S + ended_s,
        key,
    )


def log_lines(*events, width=100, now_s=START_S + 3600, **fitting):
    log = EventLog()
    log.add(events)
    return [line for line, _ in log.lines(LABELS, width, now_s, **fitting)]


def test_the_heading_says_what_is_watched(watched):
    watched.update(frame(4, sample(), sample()))
    assert watched.heading(100) == ("node7  live  22:13  2 GPUs")
    assert watched.heading(14) == "node7  live"
    assert watched.heading(3) == ""


def test_a_silent_source_is_said_to_be(watched, now):
    assert watched.notice == "The first values are awaited."
    watched.update(frame(0, sample()))
    assert watched.notice == ""
    now[0] = 7.0
    assert watched.notice == "No values have come for 7 s."
    watched.end()
    assert watched.notice == "This is the end of the recording."


def test_a_recording_gets_old_at_its_own_pace(now):
    watched = WatchState("run.gpr", rate=10.0, clock=lambda: now[0])
    watched.update(frame(0, sample()))
    now[0] = 1.5
    assert watched.now_s == START_S + 15


def test_a_problem_of_the_driver_is_shown(watched):
    watched.update(frame(0, sample()))
    watched.update(frame(1, sample(), problem="The driver sleeps."))
    assert watched.notice == "The driver sleeps."


def test_the_newest_event_comes_first():
    assert log_lines(event(0, "First."), event(5, "Second.", gpu=None)) == [
        "22:13:25 warning host    Second. (lasts)",
        "22:13:20 warning GPU 0   First. (lasts)",
    ]


def test_what_does_not_fit_is_counted():
    three = [event(at_s, f"Of kind {kind}.") for at_s, kind in enumerate("abc")]
    first = "22:13:22 warning GPU 0   Of kind c. (lasts)"
    assert log_lines(*three, most=1) == [first, "and 2 more: page 3"]
    assert log_lines(*three, height=2) == [first, "and 2 more: page 3"]
    assert len(log_lines(*three, height=3)) == 3
    assert log_lines(*three, height=1) == ["and 3 more: page 3"]
    long = event(5, "Very long. " * 30)
    assert len(log_lines(long, *three, height=4)) == 4
    assert log_lines(long, *three, height=4)[-1] == "and 3 more: page 3"


def test_errors_come_before_warnings_and_what_is_older_than_a_day_does_not_come():
    old = event(0, "Xid 94.", ended_s=0, severity=Severity.ERROR)
    new = event(50_000, "Slow.", ended_s=50_010)
    at_s = START_S + 86_400
    assert [line[-30:] for line in log_lines(old, new, now_s=at_s)] == [
        "Tue 22:13 error   GPU 0   Xid 94."[-30:],
        "12:06:40 warning GPU 0   Slow. (10 s)"[-30:],
    ]
    assert log_lines(old, new, now_s=at_s + 1) == ["12:06:40 warning GPU 0   Slow. (10 s)"]


def test_what_is_alike_on_several_gpus_shares_a_line():
    first = event(0, "GPU 0 works at 1734 of 1980 MHz.")
    second = event(0, "GPU 1 works at 1407 of 1980 MHz.", gpu="GPU-1")
    later = event(300, "GPU 0 works at 1300 of 1980 MHz.")
    assert log_lines(first, second) == [
        "22:13:20 warning GPU 0 and 1 each works at 1734/1407 of 1980 MHz. (lasts)"
    ]
    assert len(log_lines(second, later)) == 2
    assert len(log_lines(first, event(0, "GPU 1 is hot.", gpu="GPU-1"))) == 2


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("step", [1, 2])
def test_what_is_alike_on_64_gpus_is_read_at_any_width(width, step):
    made = [
        event(0, f"GPU {n} works at {1000 + n} of 1980 MHz.", gpu=f"GPU-{n}")
        for n in range(0, 64, step)
    ]
    labels = {f"GPU-{n}": str(n) for n in range(64)}
    log = EventLog()
    log.add(made)
    lines = [line for line, _ in log.lines(labels, width, START_S, height=4)]
    text = " ".join(" ".join(lines).split())
    assert f"each works at 1000 to {1063 - step + 1} of 1980 MHz. (lasts)" in text
    assert ("GPU 0 to 63 " if step == 1 else "GPU 0, 2, 4, 6, 8 and 27 more ") in text
    assert max(map(len, lines)) <= width


def test_alike_events_lasted_each_as_long_as_it_did():
    first = event(0, "GPU 0 is hot.", ended_s=12)
    second = event(0, "GPU 1 is hot.", ended_s=7200, gpu="GPU-1")
    assert log_lines(first, second)[0].endswith("each is hot. (12 s to 2 h)")
    at_once = event(0, "GPU 0 has Xid 94.", ended_s=0)
    also = event(0, "GPU 1 has Xid 94.", ended_s=0, gpu="GPU-1")
    assert log_lines(at_once, also)[0].endswith("each has Xid 94.")


def test_an_xid_of_before_is_on_the_page_and_in_json(tmp_path):
    xid = Event(
        "xid", START_S - 7200, "GPU 0 reported Xid 94.", Severity.ERROR, "GPU-0", START_S - 7200
    )
    much_older = replace(xid, began_s=START_S - 90_000, ended_s=START_S - 90_000)
    frames = [frame(at, sample()) for at in range(3)]
    stored(tmp_path, *frames, events=[much_older, xid])
    source = FromStore(tmp_path, clock=lambda: START_S + 3)
    state = WatchState(source.label, has_all_events=True, clock=lambda: 0.0)
    state.update(next(source.frames()))
    assert [e["message"] for e in json.loads(plain.as_json(state))["events"]] == [xid.message]
    assert "20:13:20 error   GPU 0   GPU 0 reported Xid 94." in "\n".join(plain.table(state, 120))


def test_of_events_at_one_time_the_worst_comes_first_whatever_came_first():
    slow = event(0, "Slow.", key="a")
    hot = event(0, "Hot.", key="b", severity=Severity.ERROR)
    assert log_lines(slow, hot) == log_lines(hot, slow)
    assert [line[-12:] for line in log_lines(slow, hot)] == ["Hot. (lasts)", "low. (lasts)"]


def test_an_event_that_ends_is_one_event():
    assert log_lines(event(0, "Slow."), event(0, "Slow.", ended_s=12)) == [
        "22:13:20 warning GPU 0   Slow. (12 s)"
    ]


def test_what_has_no_length_shows_none_and_an_unknown_gpu_its_uuid():
    assert log_lines(event(1, "Now.", ended_s=1, gpu="GPU-12345678-abcdefgh")) == [
        "22:13:21 warning abcdefgh Now."
    ]


def test_a_long_message_goes_on_below_itself():
    message = "The clocks are held down by the power limit of the watched."
    assert log_lines(event(0, message, ended_s=3), width=60) == [
        "22:13:20 warning GPU 0   The clocks are held down by the",
        "                         power limit of the watched. (3 s)",
    ]
    assert log_lines(event(0, message, ended_s=3), width=30) == [
        "22:13:20 warning GPU 0",
        "  The clocks are held down by",
        "  the power limit of the",
        "  watched. (3 s)",
    ]


@pytest.mark.parametrize("width", [1, 2, 5, 9, 26])
def test_any_width_will_do_for_events(width):
    lines = log_lines(event(0, "The clocks are held down."), width=width)
    assert max(map(len, lines)) <= max(width, 3)


def test_only_the_newest_events_are_kept():
    log = EventLog()
    log.add(event(at_s, f"Number {at_s}.") for at_s in range(500))
    kept = log.newest()
    assert (len(kept), kept[0].message, kept[-1].message) == (200, "Number 499.", "Number 300.")


def test_json_has_every_metric_with_its_state(watched):
    lost = Unavailable(State.NOT_SUPPORTED, START_S, "no sensor")
    watched.update(frame(0, sample({"fan_pct": lost}, gpu_utilization_pct=0)))
    stale = Unavailable(State.STALE, START_S, "silence")
    told = event(1, "Odd.")
    watched.update(frame(1, sample({"power_w": stale, "fan_pct": lost}), events=(told,)))
    said = json.loads(json.dumps(document(watched, [told])))
    assert (said["version"], said["time_s"], said["source"]) == (1, START_S + 1, "live")
    (gpu,) = said["gpus"]
    assert (gpu["uuid"], gpu["index"], gpu["name"]) == ("GPU-0", 0, "NVIDIA H100 80GB HBM3")
    metrics = gpu["metrics"]
    assert set(metrics) == {metric.name for metric in GPU_METRICS}
    assert set(said["host"]) == {metric.name for metric in HOST_METRICS}
    assert metrics["gpu_utilization_pct"] == {"value": 97, "state": "ok"}
    assert metrics["energy_j"] == {"value": None, "state": "unread"}
    assert metrics["fan_pct"] == {
        "value": None,
        "state": "not_supported",
        "since_s": START_S,
        "reason": "no sensor",
    }
    assert metrics["power_w"] == {
        "value": None,
        "state": "stale",
        "since_s": START_S,
        "reason": "silence",
        "last_value": 652.3,
    }
    assert said["events"][0]["message"] == "Odd."
    assert said["events"][0]["ended_s"] is None


def test_a_stream_tells_each_event_once_with_the_next_whole_frame(watched, capsys):
    from dataclasses import replace

    between = replace(frame(1, sample(), events=(event(1, "Odd."),)), full=False)
    plain.stream(Frames(frame(0, sample()), between, frame(2, sample())), watched, sys.stdout)
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["time_s"] - START_S for each in said] == [0, 2]
    assert [[e["message"] for e in each["events"]] for each in said] == [[], ["Odd."]]


class Waiting(Frames):
    """A source whose frames come at their own times, by the clock that the tests own."""

    def __init__(self, now, *frames):
        super().__init__(*frames)
        self._now = now

    def frames(self):
        for each in self._frames:
            self._now[0] = max(self._now[0], each.time_s - START_S)
            yield each


def once(source, watched, now):
    return plain.once(
        source, watched, to_the_end=False, now=lambda: START_S + now[0], clock=lambda: now[0]
    )


def test_once_is_when_the_values_that_need_two_readings_are_there(watched, now):
    frames = [frame(at_s, sample(gpu_utilization_pct=at_s)) for at_s in range(5)]
    assert once(Waiting(now, *frames), watched, now)
    assert watched.latest.value("GPU-0", "gpu_utilization_pct") == 1


def test_once_is_newer_than_the_question_and_not_what_a_daemon_stored_before(watched, now):
    now[0] = 120.0
    frames = [frame(at_s, sample(gpu_utilization_pct=at_s % 100)) for at_s in range(0, 125)]
    assert once(Waiting(now, *frames), watched, now)
    assert watched.latest.time_s == START_S + 120


def stale(at_s):
    return frame(at_s, all_in(State.STALE, START_S + 100), problem="The driver hangs.", gpus=None)


@pytest.mark.parametrize(
    ("later", "said"),
    [
        ([stale(at_s) for at_s in range(120, 140)], "The driver hangs."),
        ([Frame(START_S + 126, problem="Stored nothing.")], "Stored nothing."),
        ([Frame(START_S + 126, full=False)], "The newest values are 25 s old."),
    ],
    ids=["driver hangs", "daemon hangs", "nothing said"],
)
def test_once_without_values_of_now_says_so_after_five_seconds(watched, now, later, said):
    now[0] = 120.0
    earlier = [frame(at_s, sample()) for at_s in range(102)]
    assert not once(Waiting(now, *earlier, *later), watched, now)
    assert now[0] <= 126
    assert watched.latest.problem == said
    assert watched.reading("GPU-0", "power_w").state is State.STALE
    assert said in list(plain.table(watched, 80))
    assert json.loads(plain.as_json(watched))["problem"] == said


@pytest.mark.parametrize("problem", [SILENT, None], ids=["the driver hangs", "nobody says why"])
def test_a_driver_that_never_answers_is_told_after_five_seconds(watched, now, problem):
    starting = [Frame(START_S + at_s, problem=STARTING) for at_s in range(5)]
    silent = [Frame(START_S + at_s, problem=problem) for at_s in range(5, 30)]
    with pytest.raises(SilentError, match=r"^the NVIDIA driver has not answered for 5 s: "):
        once(Waiting(now, *starting, *silent), watched, now)
    assert now[0] == 5


def test_a_driver_that_wakes_its_gpus_has_the_time_that_it_takes(watched, now):
    starting = [Frame(START_S + at_s, problem=STARTING) for at_s in range(20)]
    awake = [frame(at_s, sample(gpu_utilization_pct=at_s)) for at_s in (20, 21)]
    assert once(Waiting(now, *starting, *awake), watched, now)


def test_a_stream_begins_now_and_not_with_what_a_daemon_stored_before(watched, capsys):
    frames = [frame(at_s, sample(), events=(event(at_s, "Odd."),)) for at_s in range(5)]
    plain.stream(Frames(*frames), watched, sys.stdout, since_s=START_S + 3)
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["time_s"] - START_S for each in said] == [3, 4]
    assert [len(each["events"]) for each in said] == [4, 1]


def test_once_of_a_recording_is_its_end(watched):
    frames = [frame(at_s, sample(gpu_utilization_pct=at_s)) for at_s in range(5)]
    plain.once(Frames(*frames), watched, to_the_end=True)
    assert watched.latest.value("GPU-0", "gpu_utilization_pct") == 4


def test_without_a_gpu_there_is_one_sentence(watched):
    starting = frame(0, problem="The NVIDIA driver is starting.")
    with pytest.raises(AdvisorError, match=r"^there is nothing to watch: No GPU was found\.$"):
        source = Frames(starting, frame(1, problem="No GPU was found."))
        plain.once(source, watched, to_the_end=False)
    with pytest.raises(AdvisorError, match=r"^there is nothing to watch: there is no frame$"):
        plain.once(Frames(), watched, to_the_end=True)


def test_the_plain_table_has_a_line_for_each_gpu_and_the_newest_events(watched):
    watched.update(frame(0, sample(), sample(), events=(event(0, "Odd.", ended_s=0),)))
    lines = list(plain.table(watched, 80))
    assert lines[0].startswith("gpuadvisor watch  node7  live  22:13:20  2 GPUs")
    assert lines[1].startswith("CPU █▎         12%   RAM ██         100/512 GiB")
    assert lines[2].startswith("GPU  util")
    assert [line.split()[:2] for line in lines[3:5]] == [["0", "97%"], ["1", "97%"]]
    assert lines[5:] == ["", "22:13:20 warning GPU 0   Odd."]
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("width", [20, 40, 80, 160])
def test_the_details_have_each_value_or_why_there_is_none(watched, width):
    denied = Unavailable(State.NO_PERMISSION, START_S, "ask the administrator")
    watched.update(frame(0, sample({"energy_j": denied})))
    text = ["".join(span for span, _ in line) for line in details(watched, h100(0), width)]
    assert max(map(len, text)) <= width
    assert any(line.startswith("no perm: ask") for line in text)
    if width >= 40:
        assert any("SM clock                  1755 MHz" in line for line in text)


def test_what_a_daemon_has_looked_at_is_not_looked_at_again():
    full = sample(memory_used_bytes=80 * 2**30, memory_total_bytes=80 * 2**30)
    told = event(0, "Full.")
    watched = {each: WatchState("made", has_all_events=each) for each in (True, False)}
    kinds = {
        each: [made.kind for made in state.update(frame(0, full, events=(told,)))]
        for each, state in watched.items()
    }
    assert kinds == {True: ["made"], False: ["made", "memory_full"]}
    assert watched[True].latest.value("GPU-0", "memory_used_bytes") == 80 * 2**30


def test_what_was_made_is_kept_until_what_it_is_of_changes():
    state = WatchState("live")
    made = []

    def of(number):
        return state.kept("part", number, lambda: made.append(number) or [number])

    assert [of(1), of(1), of(2), of(1)] == [[1], [1], [2], [1]]
    assert made == [1, 2, 1]


def test_each_event_changes_the_log_also_one_that_comes_again():
    state = WatchState("live", has_all_events=True)
    began = Event("xid", START_S, "An error.")
    state.log.add([began])
    before = state.log.changes
    state.log.add([replace(began, ended_s=START_S + 1)])
    assert state.log.changes != before


def test_in_haste_the_first_values_are_there_at_once_and_no_event_is_missed():
    error = Event("xid", START_S, "An error.", Severity.ERROR, "GPU-0")
    frames = [
        frame(0, problem=SILENT),
        frame(1, sample(memory_used_bytes=79.9 * 2**30), events=(error,)),
        frame(2, sample(memory_used_bytes=79.9 * 2**30)),
    ]
    states = [WatchState("live", clock=lambda: 0.0) for _ in range(2)]
    states[0].is_in_haste = True
    for number, each in enumerate(frames):
        first, second = (state.update(each) for state in states)
        if number == 1:
            assert first == [error]
            assert len(second) > 1  # what conditions say of it
        values = [state.latest.value("GPU-0", "power_w") for state in states]
        assert values[0] == values[1]
    assert states[0].log.newest() == states[1].log.newest()


def test_what_lasts_is_not_forgotten_for_what_was_over_at_once():
    state = WatchState("daemon", has_all_events=True)
    lost = Event("gpu_lost", START_S, "GPU 0 is lost.", Severity.ERROR, "GPU-0")
    burst = [
        Event("xid", START_S + n, f"Xid {n}.", gpu="GPU-0", ended_s=START_S + n)
        for n in range(1, 300)
    ]
    state.update(frame(0, sample(), events=(lost, *burst)))
    assert state.log.open("GPU-0") == [lost]
    assert len(state.log.newest()) == 200
    assert state.is_seen(lost) and not state.is_seen(burst[-1])


def test_while_nothing_can_be_read_no_event_is_said_to_last_but_that():
    heat = Event("temperature", START_S, "GPU 0 is at 85 C.", Severity.WARNING, "GPU-0")
    hung = Event("driver", START_S + 1, "It does not answer.", Severity.ERROR)
    clock = [0.0]
    state = WatchState("daemon", has_all_events=True, clock=lambda: clock[0])

    def told():
        lines = state.log.lines(state.labels, 300, state.now_s, is_seen=state.is_seen)
        return [line.rpartition("(")[2] for line, _ in lines]

    state.update(frame(0, sample(), events=(heat,)))
    assert told() == ["lasts)"]
    state.update(frame(1, events=(hung,), problem="It does not answer."))
    assert told() == ["lasts)", "lasted when it was read last)"]
    clock[0] = 60.0  # and now nobody says even that
    assert told() == ["lasted when it was read last)"] * 2
