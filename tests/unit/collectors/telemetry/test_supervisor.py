"""Frames keep coming, whatever the sampler's process does.

On a busy machine a child may take seconds to speak: so tests wait for what is to happen, however
long that takes, and nothing is held to be late that only this machine delays.
"""

import json
import os
import signal
import subprocess
import sys
import time
from itertools import chain

import psutil
import pytest

from gpuadvisor.collectors.telemetry.supervisor import SamplerProcess
from gpuadvisor.daemon.alerts import Alerts, Dispatchers
from gpuadvisor.daemon.configuration import AlertRule
from gpuadvisor.domain.telemetry import SILENT, STARTING, State
from gpuadvisor.rules.conditions import Conditions

SAY = (
    "import sys, time\n"
    "def say(n):\n"
    '    print(\'{"t":%d,"s":{"GPU-1":[{"power_w":%d}]}}\' % (n, n), flush=True)\n'
)
GOOD = SAY + "for n in range(10**6): say(n); time.sleep(0.05)"
HANGS = SAY + "for n in range(3): say(n)\ntime.sleep(600)"
DIES = SAY + "say(0); say(1); sys.exit(7)"
RAVES = SAY + "say(0); print('Segmentation fault', flush=True); time.sleep(600)"
NEVER_SPEAKS = "import time; time.sleep(600)"
FOREVER_S = 600.0
PATIENT = dict.fromkeys(("silence_s", "start_s", "probe_every_s"), FOREVER_S)


def sampler(program, **options):
    """A sampler that waits for ever, unless told otherwise."""
    command = [sys.executable, "-c", program]
    return SamplerProcess(command=command, **{**PATIENT, **options})


def first(frames, condition):
    """The first frame of which the condition holds; a minute is for what hangs."""
    end_s = time.monotonic() + 60
    for frame in frames:
        if condition(frame):
            return frame
        assert time.monotonic() < end_s, "no such frame"
    raise AssertionError("the frames ended")


def is_heard(frame):
    return frame.samples and not frame.problem


BEFORE = set()
"""Processes of other tests, which one of them may keep for those that come."""


def children():
    return [each for each in psutil.Process().children(recursive=True) if each not in BEFORE]


@pytest.fixture(autouse=True)
def no_child_is_left():
    BEFORE.clear()
    BEFORE.update(psutil.Process().children(recursive=True))
    yield
    assert not children()


def test_the_childs_frames_are_handed_on():
    with sampler(GOOD, every_s=FOREVER_S) as source:
        read = [frame for _, frame in zip(range(5), source.frames(), strict=False)]
    assert [frame.samples["GPU-1"].values["power_w"] for frame in read] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("program", "silence_s", "words", "kinds"),
    [
        (HANGS, 0.3, SILENT, []),  # which is an event of the driver
        (DIES, FOREVER_S, "The sampler ended with status 7", ["sampler"]),
        (RAVES, FOREVER_S, "The sampler said nonsense ('Segmentation fault')", ["sampler"]),
    ],
)
def test_what_was_known_becomes_stale_and_the_reason_is_said(program, silence_s, words, kinds):
    with sampler(program, silence_s=silence_s) as source:
        frame = first(source.frames(), lambda frame: frame.samples and frame.problem)
        absence = frame.samples["GPU-1"].unavailable["power_w"]
    assert frame.problem.startswith(words)
    assert absence.state is State.STALE
    assert absence.since_s in (0, 1, 2)  # when the value was read
    assert [(event.kind, event.ended_s) for event in frame.events] == [(k, None) for k in kinds]


def test_a_hang_is_one_event_and_one_notice(tmp_path):
    flag = tmp_path / "was here"
    program = (
        f"import pathlib\nflag = pathlib.Path({str(flag)!r})\n"
        f"if flag.exists():\n    exec({GOOD!r})\nflag.touch()\n{HANGS}"
    )
    conditions, outbox = Conditions(), Outbox()
    alerts = Alerts([AlertRule("any", ("driver", "sampler"), command=("true",))], outbox)
    with sampler(program, silence_s=0.3) as source:
        for frame in source.frames():
            events = conditions.observe(frame)
            alerts.observe(events, (), frame.time_s, time.monotonic())
            if any(event.kind == "driver" and event.ended_s for event in events):
                break
    assert outbox.sent == [("any", "firing"), ("any", "recovered")]


def test_a_new_child_is_told_which_gpus_there_were():
    program = (
        "import json, sys\n"
        "known = json.loads(sys.argv[1])['known']\n"
        "who = known[0]['name'] + ' again' if known else 'H100'\n"
        "gpus = [{'uuid': 'GPU-1', 'index': 1, 'name': who}]\n"
        "print(json.dumps({'t': 0, 's': {'GPU-1': [{}]}, 'gpus': gpus}), flush=True)\n"
        "sys.exit(7)"
    )
    with sampler(program, crash_wait_s=0.0) as source:
        frame = first(source.frames(), lambda frame: frame.gpus and "again" in frame.gpus[0].name)
    assert frame.gpus[0].name == "H100 again"


def test_an_error_in_a_hang_is_handed_on_and_is_no_sign_of_life():
    error = {"kind": "xid", "began_s": 5, "message": "Xid 119.", "gpu": "GPU-1", "ended_s": 5}
    aside = json.dumps({"t": 5, "fast": True, "events": [error]})
    program = SAY + f"say(0)\nwhile True: print({aside!r}, flush=True); time.sleep(0.1)"
    with sampler(program, silence_s=0.5, every_s=0.1) as source:
        seen = []
        first(source.frames(), lambda frame: seen.append(frame) or frame.problem == SILENT)
    assert {event.message for frame in seen for event in frame.events} == {"Xid 119."}


def test_a_driver_that_answers_slowly_does_not_hang_and_recover_each_time():
    """Its sweeps take longer than a silence that counts: that is one event, and then none."""
    program = SAY + "for n in range(10**6): time.sleep(0.8); say(n)"
    conditions, events, answers = Conditions(), [], 0
    with sampler(program, silence_s=0.5, start_s=FOREVER_S, every_s=0.1) as source:
        for frame in source.frames():
            events += [each for each in conditions.observe(frame) if each.kind == "driver"]
            answers += bool(is_heard(frame))
            if answers == 8:
                break
    assert [bool(each.ended_s) for each in events] in ([], [False, True])


STEP = '{"t":0,"fast":true,"problem":"The NVIDIA driver is starting."}'
WAKES = f"import time\nfor n in range(%d): print({STEP!r}, flush=True); time.sleep(%r)\n"


def test_a_driver_that_hangs_as_it_starts_is_told_after_one_step():
    began_s = time.monotonic()
    program = WAKES % (2, 0.05) + NEVER_SPEAKS
    with sampler(program, step_s=0.9, silence_s=0.1, every_s=0.1) as source:
        frames, problems = source.frames(), []
        first(frames, lambda frame: problems.append(frame.problem) or problems[-1] == SILENT)
    assert time.monotonic() - began_s > 0.9
    assert set(problems) == {STARTING, SILENT}


def test_a_driver_that_wakes_its_gpus_one_after_the_other_does_not_hang():
    # Each sign comes long before the limit, and all of them take longer than that.
    with sampler(WAKES % (11, 0.5) + GOOD, step_s=5.0, every_s=0.1) as source:
        problems = []
        first(source.frames(), lambda frame: problems.append(frame.problem) or frame.samples)
    assert SILENT not in problems


def test_a_child_that_hangs_as_well_does_not_keep_others_from_the_driver(tmp_path):
    """The calls of the first two never return, as those of a real driver may, when it works."""
    starts, works = tmp_path / "starts", tmp_path / "works"
    starts.touch()
    program = (
        f"import pathlib\nopen({str(starts)!r}, 'a').write('x')\n"
        f"if pathlib.Path({str(works)!r}).exists():\n    exec({GOOD!r})\n"
        f"if len(open({str(starts)!r}).read()) > 1:\n    exec({NEVER_SPEAKS!r})\n{HANGS}"
    )
    with sampler(program, silence_s=0.3, probe_every_s=0.4, every_s=0.1) as source:
        frames, alive = source.frames(), []
        first(frames, lambda _: alive.append(len(children())) or len(starts.read_text()) > 4)
        assert set(alive) == {1, 2}
        works.touch()
        first(frames, is_heard)
        first(frames, lambda _: len(children()) == 1)


def test_a_child_that_waited_and_is_answered_goes_on_alone(tmp_path):
    starts, works = tmp_path / "starts", tmp_path / "works"
    program = (
        "import pathlib, time\n"
        f"starts = open({str(starts)!r}, 'a+')\nstarts.write('x')\nstarts.flush()\n"
        f"if starts.tell() == 1:\n    exec({HANGS!r})\n"
        f"while starts.tell() > 2 or not pathlib.Path({str(works)!r}).exists(): time.sleep(0.02)\n"
        f"{GOOD}"
    )
    with sampler(program, silence_s=4.0, probe_every_s=0.4, every_s=0.1) as source:
        frames = source.frames()
        first(frames, lambda _: starts.exists() and len(starts.read_text()) > 2)
        works.touch()
        first(frames, is_heard)
        begun = starts.read_text()
        list(zip(range(20), frames, strict=False))
        assert len(children()) == 1
        assert starts.read_text() == begun


HELD = """
import ctypes, os, pathlib, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)  # PR_SET_PTRACER: anybody may
if os.fork() == 0:
    os.setsid()
    os.closerange(0, 3)
    libc.ptrace(0x4206, os.getppid(), None, None)  # PTRACE_SEIZE
    held.touch()
    while not released.exists(): time.sleep(0.02)
    os._exit(0)
while not held.exists(): time.sleep(0.02)
"""


def test_children_that_cannot_be_killed_are_not_collected(tmp_path):
    """What a debugger holds is there after SIGKILL too, as what waits in the kernel is."""
    starts, held, released = (tmp_path / name for name in ("starts", "held", "released"))
    program = (
        f"import pathlib\nheld, released = map(pathlib.Path, {[str(held), str(released)]!r})\n"
        f"starts = open({str(starts)!r}, 'a+')\nstarts.write('x')\nstarts.flush()\n"
        f"if starts.tell() == 1:\n    exec({HELD!r})\n{HANGS}"
    )
    with sampler(program, silence_s=0.3, probe_every_s=0.05, every_s=0.1) as source:
        frames = source.frames()
        first(frames, lambda _: starts.exists() and starts.read_text() == "xx")
        list(zip(range(5), frames, strict=False))
        assert starts.read_text() == "xx"
        released.touch()
        first(frames, lambda _: len(starts.read_text()) > 3)


def test_a_silence_is_one_problem_whatever_is_tried_meanwhile(tmp_path):
    """Half a minute of a hang in two seconds: as much faster, with many children."""
    program = (
        "import sys, time, pathlib\n"
        f"folder = pathlib.Path({str(tmp_path)!r})\n"
        "with (folder / 'starts').open('a') as file: file.write('x')\n"
        """absent = '{"fan_pct":["not_supported",0,""]}'\n"""
        """line = '{"t":%d,"s":{"GPU-1":[{"power_w":%d},%s]}}\\n'\n"""
        "said = folder / 'said'\n"
        "if not said.exists():\n"
        "    sys.stdout.write(''.join(line % (n, n, absent) for n in range(3)))\n"
        "    sys.stdout.flush()\n"
        "    said.touch()\n"
        "time.sleep(600)"
    )
    hasty = {"silence_s": 0.1, "start_s": 0.8, "probe_every_s": 0.2, "every_s": 0.05}
    outbox = Outbox()
    conditions = Conditions()
    rules = [
        AlertRule("at once", ("driver",), again_after_s=0.05, command=("true",)),
        AlertRule("later", ("driver",), for_s=0.5, command=("true",)),
    ]
    alerts = Alerts(rules, outbox)
    states, problems = [], []
    with sampler(program, **hasty) as source:
        frames = source.frames()
        first_frame = first(frames, is_heard)  # its child may begin late, and be replaced
        for frame in chain([first_frame], frames):
            if len(states) > 40 and len(outbox.sent) > 1:
                break
            alerts.observe(conditions.observe(frame), (), frame.time_s, time.monotonic())
            if frame.full:
                problems.append(frame.problem)
                states.append(frame.samples["GPU-1"].unavailable)
    assert len((tmp_path / "starts").read_text()) > 3
    silent = states[3:]
    assert silent == [silent[0]] * len(silent)  # each difference would be a stored row
    assert {name: absence.state for name, absence in silent[0].items()} == {
        "power_w": State.STALE,
        "fan_pct": State.NOT_SUPPORTED,
    }
    assert problems == [None] * 3 + [SILENT] * len(silent)
    assert outbox.sent == [("at once", "firing"), ("later", "firing")]


def test_a_slow_answer_is_no_clock_that_was_set_back():
    """The time of a frame is that of its poll's beginning, which is long ago when it comes."""
    program = (
        "import time\n"
        'def say(began_s): print(\'{"t":%r,"s":{"GPU-1":[{}]}}\' % began_s, flush=True)\n'
        "say(time.time())\n"
        "while True: began_s = time.time(); time.sleep(1.3); say(began_s)"
    )
    conditions = Conditions()
    times, events, answers = [], [], 0
    # The first child is replaced, and the second one is given its time.
    with sampler(program, silence_s=0.2, start_s=0.6, every_s=0.1) as source:
        for frame in source.frames():
            times.append(frame.time_s)
            events += conditions.observe(frame)
            answers += frame.full and frame.problem is None
            if answers == 3:
                break
    assert times == sorted(times)
    assert {event.kind for event in events} == {"driver"}


class Outbox(Dispatchers):
    """Keeps what would be sent."""

    def __init__(self):
        super().__init__()
        self.sent = []

    def send(self, rule, notice):
        self.sent.append((rule.name, notice.status))


def test_a_start_that_takes_long_is_said_and_is_no_fault_yet():
    with sampler(NEVER_SPEAKS, silence_s=0.3, every_s=0.1) as source:
        frame = next(source.frames())
    assert (frame.problem, frame.events) == (STARTING, ())


def test_a_process_that_was_stopped_does_not_blame_the_child():
    program = (
        "import sys\n"
        "from gpuadvisor.collectors.telemetry.supervisor import SamplerProcess\n"
        f"source = SamplerProcess(command=[sys.executable, '-c', {GOOD!r}])\n"
        "for frame in source.frames():\n"
        "    print(frame.problem or 'ok', flush=True)\n"
    )
    argv = [sys.executable, "-c", program]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as parent:
        while parent.stdout.readline() != "ok\n":  # it may begin late
            assert parent.poll() is None
        family = [psutil.Process(parent.pid), *psutil.Process(parent.pid).children()]
        for process in family:
            process.suspend()
        time.sleep(3)
        for process in family:
            process.resume()
        said = {parent.stdout.readline() for _ in range(20)}
        parent.kill()
        psutil.wait_procs(family, timeout=60)
        for process in family:
            if process.is_running() and process.pid != parent.pid:
                process.kill()  # GOOD does not look at its standard input
    assert said == {"ok\n"}


def test_it_can_be_closed_while_somebody_waits_for_a_frame():
    import threading

    source = sampler(NEVER_SPEAKS)
    waiting = threading.Thread(target=lambda: list(source.frames()))
    waiting.start()
    time.sleep(0.2)
    source.close()
    source.close()
    waiting.join(timeout=60)
    assert not waiting.is_alive()


def test_a_child_that_was_killed_is_named_so():
    with sampler(GOOD) as source:
        frames = source.frames()
        first(frames, is_heard)
        os.kill(children()[0].pid, signal.SIGKILL)
        frame = first(frames, lambda frame: frame.problem)
    assert frame.problem.startswith("The sampler was killed by signal 9")
