"""Several machines as lines, and as what a program reads."""

import copy
import json
import re
from dataclasses import replace
from functools import reduce
from operator import getitem

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuadvisor.collectors.telemetry.encoding import encode
from gpuadvisor.daemon.endpoint import remote as remote_module
from gpuadvisor.daemon.endpoint.client import RemoteError
from gpuadvisor.daemon.endpoint.hosts import Host
from gpuadvisor.daemon.endpoint.remote import Remote
from gpuadvisor.domain.telemetry import GpuProcess, State, Unavailable
from gpuadvisor.tui.watch import hosts, overview, plain_hosts, process_list
from gpuadvisor.tui.watch.cells import Style
from gpuadvisor.tui.watch.state import WatchState
from gpuadvisor.tui.watch.table import text_of
from gpuadvisor.tui.watch.watched import Watched
from tests.telemetry import START_S, frame, sample
from tests.telemetry_store import stored
from tests.unit.tui.watch.several import IDLE, XID


def texts(watched, width=100, height=30, chosen=0):
    page = hosts.shown(watched, width, height, watched[chosen])
    return [text_of(line) for line in page.lines], page


def test_before_anyone_was_asked(machines):
    lines, _ = texts(machines.trouble())
    assert lines == ["quiet   is asked ...", "broken  is asked ...", "gone    is asked ..."]


def test_those_in_trouble_stand_first(machines):
    watched = machines.trouble()
    assert plain_hosts.once(watched) is False
    lines, page = texts(watched)
    gone, broken, its_gpus, quiet, _ = lines
    assert gone.startswith("gone    never heard: Nothing listens on 127.0.0.1:")
    assert re.fullmatch(
        r"broken  2 GPUs  ███████▊  97%   142/160 GiB  GPU 1: GPU 1 reported Xid 79: reboot\.",
        broken,
    )
    assert re.fullmatch(r"     0 █+▍  97%   71G    1 █+▍  97%   71G", its_gpus)
    assert re.fullmatch(r"quiet   2 GPUs +0% +0/160 GiB  (idle|answers)", quiet)
    assert (page.cursor, page.hosts[1] is page.hosts[2] is watched[1]) == (3, True)


def test_of_a_machine_that_was_never_heard_once_prints_its_sentence_and_that_once(machines):
    gone = machines.add("gone")
    assert plain_hosts.once([gone]) is False
    (sentence,) = plain_hosts.lines([gone], 80)
    assert sentence.startswith("gone: Nothing listens on 127.0.0.1:")
    quiet = machines.add("quiet", IDLE)
    plain_hosts.once([gone, quiet])
    printed = list(plain_hosts.lines([gone, quiet], 400))
    assert sum("Nothing listens" in line for line in printed) == 1
    assert sum("gpuadvisor watch" in line for line in printed) == 1
    narrow = list(plain_hosts.lines([gone, quiet], 80))  # where its line has no room for all of it
    assert sentence in narrow


@pytest.mark.parametrize("width", [1, 10, 30, 80, 300])
@pytest.mark.parametrize("height", [1, 3, 50])
def test_any_size(machines, width, height):
    watched = machines.trouble()
    plain_hosts.once(watched)
    lines, page = texts(watched, width, height, chosen=2)
    assert len(lines) == len(page.hosts)
    assert len(page.lines) <= max(height, 3)
    if width >= 30:
        assert max(map(len, lines)) <= width


def test_twenty_machines_keep_a_line_each(machines):
    watched = [machines.add(f"node{number}", *[IDLE] * 8) for number in range(20)]
    plain_hosts.once(watched)
    lines, _ = texts(watched, 80, 22, chosen=7)
    assert len(lines) == 22
    assert [line.split()[0] for line in lines if line.startswith("node")] == [
        f"node{number}" for number in range(20)
    ]
    place = next(n for n, line in enumerate(lines) if line.startswith("node7"))
    assert lines[place + 1].startswith("     0 ")  # the chosen one's GPUs, before all others'


def test_a_machine_that_goes_says_when_it_was_heard_last(machines):
    (there,) = watched = [machines.add("node7", sample(), sample())]
    time_s = [0.0]
    there.remote._clock = lambda: time_s[0]
    assert plain_hosts.once(watched) is True
    machines.lose("node7")
    time_s[0] = 190.0
    assert plain_hosts.once(watched) is False
    (name, style), (head, _), (last, quiet), (why, _) = hosts.line(there, 250, 5)
    assert (name, style, head) == ("node7", Style.ERROR, "  last heard 3 min ago")
    assert re.fullmatch(r" \(2 GPUs, 97% at \d\d:\d\d:\d\d\)", last)
    assert quiet is Style.QUIET
    assert why.startswith(": Nothing listens on 127.0.0.1:")
    (said,) = {there.state.why(gpu).sentence for gpu in there.state.gpus}
    assert said == "stale 3 min: node7 does not answer"


def test_processes_of_a_machine_that_goes_are_not_shown_as_there(machines):
    python = GpuProcess("GPU-0", 71, "compute", 5 << 30, "python", "ada")
    there = machines.add("node7", sample(), processes=True)
    made = replace(frame(0.1, sample()), processes=(python,))
    machines.endpoints["node7"].take(made)
    plain_hosts.once([there])

    def shown():
        rows = process_list.listed(there.state)
        _, line = process_list.lines(rows, there.state, 100)
        return process_list.note(there.state), {style for _, style in line}

    said, styles = shown()
    assert said == ""
    assert styles != {Style.QUIET}
    machines.lose("node7")
    plain_hosts.once([there])
    assert shown() == (
        "These were here when they were listed last: nothing can be read now.", {Style.QUIET}
    )  # fmt: skip


def test_an_answering_machine_whose_driver_is_silent(machines):
    there = machines.add("node7", sample())
    silent = frame(0.5, problem="The NVIDIA driver does not answer.")
    machines.endpoints["node7"].take(silent)
    plain_hosts.once([there])
    said = text_of(hosts.line(there, 100, 5))
    assert said.startswith("node7  not readable (1 GPU, 97% at ")
    assert said.endswith("): The NVIDIA driver does not answer.")


def test_as_json(machines):
    watched = machines.trouble()
    plain_hosts.once(watched)
    made = plain_hosts.document(watched)
    quiet, broken, gone = made["hosts"]
    assert (made["version"], quiet["name"], quiet["answers"]) == (1, "quiet", True)
    assert quiet["gpus"][0]["metrics"]["gpu_utilization_pct"] == {"value": 0, "state": "ok"}
    assert [event["kind"] for event in broken["events"]] == ["xid"]
    assert quiet["problem"] is broken["problem"] is None
    assert gone["problem"].startswith("Nothing listens on")
    assert (gone["answers"], gone["heard_s"], gone["gpus"]) == (False, None, [])
    machines.lose("quiet")
    plain_hosts.once(watched)
    quiet = plain_hosts.document(watched)["hosts"][0]
    value = quiet["gpus"][0]["metrics"]["gpu_utilization_pct"]
    assert (quiet["answers"], value["value"], value["state"]) == (False, None, "stale")


def test_what_was_at_a_moment(machines, tmp_path):
    stored(tmp_path, frame(0, sample()), frame(1, sample(power_w=300.0)))
    there = machines.add("node7", IDLE, folder=tmp_path)
    gone = machines.add("gone")
    told = plain_hosts.moments([there.remote.host, gone.remote.host], START_S + 1.5)
    lines = [*plain_hosts.moments_lines(told, 200, START_S + 60)]
    assert lines[0] == "node7:"
    assert any(line.startswith("GPU 0  util 97 %") and "300.0 W" in line for line in lines)
    assert lines[-1].startswith("gone: Nothing listens on 127.0.0.1:")
    made = plain_hosts.moments_document(told, START_S + 1.5)
    seven, other = made["hosts"]
    assert seven["gpus"][0]["metrics"]["power_w"] == {"value": 300.0, "state": "ok"}
    assert (seven["answers"], seven["problem"], other["answers"]) == (True, None, False)
    assert other["problem"].startswith("Nothing listens on")


def test_as_text(machines):
    watched = machines.trouble()
    plain_hosts.once(watched)
    lines = [*plain_hosts.lines(watched, 120)]
    assert [line.split()[0] for line in lines[:3]] == ["gone", "broken", "quiet"]
    heads = [line for line in lines if line.startswith("gpuadvisor watch")]
    assert [line.split()[2] for line in heads] == ["broken", "quiet"]
    assert any("quiet" in line or "does not tell its processes" in line for line in lines)


PYTHON = GpuProcess("GPU-0", 71, "compute", 5 << 30, "python", "ada", started_s=START_S)
SILENT = Unavailable(State.STALE, START_S, "the driver is silent")
ANSWER = [
    {"version": 1, "gpuadvisor": "1", "host": "node7", "now_s": START_S + 2},
    *(
        json.loads(encode(replace(each, processes=(PYTHON,))))
        for each in (
            frame(0, sample(), sample({"power_w": SILENT}), events=(XID,)),
            frame(1, sample(), sample({"power_w": SILENT})),
        )
    ),
]
NUMBERS = (0, -1, 1.5, 1e308, -1e308, 2**63, 1e-300, None, True)
TEXTS = ("", "x", "GPU-1", "host", "\x1b[2J", None)


def leaves(thing, path=()):
    """Where in a document values stand."""
    if not isinstance(thing, dict | list):
        yield path
        return
    for key in thing if isinstance(thing, dict) else range(len(thing)):
        yield from leaves(thing[key], (*path, key))


@settings(derandomize=True)
@given(st.lists(st.sampled_from([*leaves(ANSWER)]), min_size=1, max_size=4), st.randoms())
def test_whatever_a_machine_answers_is_refused_or_shown(places, random):
    answer = copy.deepcopy(ANSWER)
    for *path, last in places:
        holder = reduce(getitem, path, answer)
        holder[last] = random.choice(TEXTS if isinstance(holder[last], str) else NUMBERS)
    remote = Remote(Host("node7", "node7"))
    state = WatchState("daemon", host="node7", has_all_events=True, clock=lambda: 0.0)
    there = Watched(remote, state, remote=remote)
    try:
        _, frames = remote_module._read(
            remote.host, b"\n".join(json.dumps(each).encode() for each in answer)
        )
    except RemoteError as error:
        assert str(error).isprintable()
        return
    for each in frames:
        state.update(each)
    for size in ((80, 24), (200, 50)):
        drawn = [hosts.shown([there], *size, there), overview.shown(state, *size, there.chosen)]
        texts = [text_of(line) for page in drawn for line in page.lines]
        texts += plain_hosts.lines([there], size[0])
        assert all(text.isprintable() for text in texts)
    json.dumps(plain_hosts.document([there]), allow_nan=False)
