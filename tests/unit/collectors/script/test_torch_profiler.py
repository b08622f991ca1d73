"""What records steps inside the process of a script, with the real torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

torch = pytest.importorskip("torch")

from gpuadvisor.collectors.script.child import torch_profiler  # noqa: E402
from gpuadvisor.collectors.script.child.torch_profiler import (  # noqa: E402
    AFTERWARDS,
    PROFILER,
    REST,
    TraceRecording,
)
from gpuadvisor.domain.unprofiled import unprofiled_steps  # noqa: E402


def work() -> None:
    torch.ones(8, 8).matmul(torch.ones(8, 8))


def named(file, start: str) -> list[str]:
    events = json.loads(file.read_text())["traceEvents"]
    return [e["name"] for e in events if e.get("name", "").startswith(start) and e["ph"] == "X"]


class Script:
    """What the harness is to an applier; it notes what it is told."""

    def __init__(self) -> None:
        self.taker = None
        self.told: list[dict[str, object]] = []
        self.refused: list[str] = []
        self.ready: list[int] = []
        """What is left to be said of batches that wait."""

    def batches_ready(self) -> int | None:
        return self.ready.pop(0) if self.ready else None

    def take_steps(self, taker, measured=False) -> None:
        self.taker = taker

    def effective(self, detail: str = "") -> None:
        self.told.append(json.loads(detail))

    def refuse(self, reason: str) -> None:
        self.refused.append(reason)


@pytest.fixture
def script(tmp_path):
    script = Script()
    options = {"file": str(tmp_path / "trace.json"), "steps": 2, "stacks": False}
    PROFILER.apply(json.dumps(options), script)
    original = torch.autograd.profiler.profile.__init__
    yield script
    torch.autograd.profiler.profile.__init__ = original
    script.taker.abandon()


def test_whole_steps_are_recorded_and_the_one_that_pays_for_the_start_is_not(tmp_path):
    recording = TraceRecording(torch, tmp_path / "trace.json", steps=3, stacks=False)
    recording.start()
    complete = []
    for _ in range(4):
        work()
        complete.append(recording.step())
    assert complete == [False, False, False, True]
    assert recording.report() == {"steps": 3, "with_gpu": False, "why": recording.report()["why"]}
    steps = named(tmp_path / "trace.json", "ProfilerStep#")
    assert steps == ["ProfilerStep#1", "ProfilerStep#2", "ProfilerStep#3"]
    assert len(named(tmp_path / "trace.json", "aten::matmul")) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]


def recorded_after(tmp_path, ready, drain_s=600.0, steps=2):
    """Return how many steps it took in all, and the recording, where so many batches waited: before
    the profiler was switched on, and at the end of each step after that."""
    recording = TraceRecording(torch, tmp_path / "trace.json", steps=steps, drain_s=drain_s)
    told = iter(ready)
    recording.batches_ready = lambda: next(told, ready[-1])
    recording.start()
    for count in range(1, 20):
        work()
        if recording.step():
            return count, recording
    raise AssertionError("it never ended")


@pytest.mark.parametrize(
    ("ready", "settles"),
    [
        ([None], 1),  # nothing is known of a loader
        ([4, 4, 4], 1),  # the script is the slower one: the queue was full before
        ([0, 4, 3, 2, 1, 0], 4),  # batches were loaded while the profiler began
        ([2, 8, 6, 4, 2], 4),
        ([0, 1], 1),  # one that has just come
    ],
)
def test_steps_that_live_on_what_was_loaded_meanwhile_are_not_recorded(tmp_path, ready, settles):
    count, recording = recorded_after(tmp_path, ready)
    assert (count, recording.steps) == (settles + 2, 2)
    assert len(named(tmp_path / "trace.json", "ProfilerStep#")) == 2
    assert len(named(tmp_path / "trace.json", "aten::matmul")) == 2


def test_a_queue_that_stays_full_is_waited_for_no_longer_than_allowed(tmp_path):
    assert recorded_after(tmp_path, [0, 4], drain_s=0.0)[0] == 3


def test_a_script_that_ends_before_it_has_settled_has_no_trace(script, tmp_path):
    options = {"file": str(tmp_path / "trace.json"), "steps": 2, "drain_s": 600.0}
    PROFILER.apply(json.dumps(options), script)
    script.ready = [0, 4, 4, 4, 4]
    script.taker.begin()
    for _ in range(4):
        work()
        assert not script.taker.step(False)
    script.taker.end()
    assert script.told == []
    assert list(tmp_path.iterdir()) == []


def test_what_follows_the_last_step_is_no_step(tmp_path):
    recording = TraceRecording(torch, tmp_path / "trace.json", steps=50, stacks=False)
    recording.start()
    for _ in range(3):
        work()
        recording.step()
    recording.save()
    assert recording.steps == 2
    assert len(named(tmp_path / "trace.json", "ProfilerStep#")) == 2
    assert len(named(tmp_path / "trace.json", REST)) == 1


def test_without_a_number_of_steps_all_is_recorded(tmp_path):
    recording = TraceRecording(torch, tmp_path / "trace.json", steps=None, stacks=False)
    recording.start()
    work()
    recording.save()
    assert recording.saved
    assert named(tmp_path / "trace.json", "ProfilerStep#") == []
    assert len(named(tmp_path / "trace.json", "aten::matmul")) == 1


def test_steps_that_take_long_end_it_early(tmp_path, monkeypatch):
    monkeypatch.setattr(torch_profiler, "LONGEST_S", 0.2)
    recording = TraceRecording(torch, tmp_path / "trace.json", steps=1000, stacks=False)
    recording.start()
    while not recording.step():
        time.sleep(0.05)
    assert 1 <= recording.steps < 10
    assert recording.report()["why"].startswith("they took longer than")
    assert len(named(tmp_path / "trace.json", "ProfilerStep#")) == recording.steps


def test_before_the_first_whole_step_there_is_nothing_to_save(tmp_path):
    recording = TraceRecording(torch, tmp_path / "trace.json", steps=2, stacks=False)
    recording.start()
    recording.save()
    assert not recording.saved
    assert list(tmp_path.iterdir()) == []


def test_stacks_are_recorded_where_they_are_wanted(tmp_path):
    found = {}
    for stacks in (False, True):
        file = tmp_path / f"{stacks}.json"
        recording = TraceRecording(torch, file, steps=1, stacks=stacks)
        recording.start()
        for _ in range(2):
            work()
            recording.step()
        events = json.loads(file.read_text())["traceEvents"]
        found[stacks] = any(event.get("cat") == "python_function" for event in events)
    assert found == {False: False, True: True}


def after(script, tmp_path):
    """The same script, recorded once more with stacks after that."""
    options = {"file": str(tmp_path / "trace.json"), "steps": 2, "stacks": False}
    options["after"] = {"file": str(tmp_path / "stacks.json"), "steps": 1, "stacks": True}
    PROFILER.apply(json.dumps(options), script)
    script.taker.begin()
    return script


def steps_until_complete(script):
    for count in range(1, 10):
        work()
        if script.taker.step(False):
            return count
    return None


def test_a_step_with_stacks_follows_and_slows_none_of_the_others(script, tmp_path):
    after(script, tmp_path)
    assert steps_until_complete(script) == 5  # one settles in each of the two
    assert [each["steps"] for each in script.told] == [2]
    assert named(tmp_path / "trace.json", "ProfilerStep#") == ["ProfilerStep#1", "ProfilerStep#2"]
    assert python_functions(tmp_path / "trace.json") == 0
    assert python_functions(tmp_path / "stacks.json") > 0


def test_a_script_that_ends_before_the_step_with_stacks_has_its_trace(script, tmp_path):
    after(script, tmp_path)
    for _ in range(3):
        work()
        assert not script.taker.step(False)
    script.taker.end()
    assert [each["steps"] for each in script.told] == [2]
    assert [path.name for path in tmp_path.iterdir()] == ["trace.json"]


def python_functions(file):
    events = json.loads(file.read_text())["traceEvents"]
    return sum(event.get("cat") == "python_function" for event in events)


def test_what_was_not_steady_is_thrown_away_and_recorded_anew(script, tmp_path):
    script.taker.begin()
    script.taker.step(False)
    script.taker.abandon()
    assert not torch_profiler.is_profiling(torch)
    script.taker.begin()
    assert [script.taker.step(False) for _ in range(3)] == [False, False, True]
    assert [told["steps"] for told in script.told] == [2]
    assert named(tmp_path / "trace.json", "ProfilerStep#") == ["ProfilerStep#1", "ProfilerStep#2"]
    assert script.refused == []


def test_the_end_of_the_script_saves_what_there_is(script, tmp_path):
    script.taker.begin()
    script.taker.step(False)
    script.taker.step(False)
    script.taker.end()
    script.taker.end()
    assert [told["steps"] for told in script.told] == [1]
    assert (tmp_path / "trace.json").exists()


def test_a_profiler_that_runs_is_left_alone(script):
    with torch.profiler.profile():
        script.taker.begin()
        assert torch_profiler.is_profiling(torch)
        assert script.taker.step(False) is False
    assert script.refused == [torch_profiler.THEIRS]


def test_what_was_measured_is_not_lost_where_no_profiler_can_start(script, tmp_path):
    AFTERWARDS.apply(json.dumps({"file": str(tmp_path / "trace.json"), "steps": 2}), script)
    with torch.profiler.profile():
        script.taker.begin()
    assert script.taker.step(False) is True
    assert script.refused == [torch_profiler.THEIRS]


def test_a_profiler_that_the_script_starts_later_works(script):
    script.taker.begin()
    script.taker.step(False)
    with torch.profiler.profile() as theirs:
        work()
    assert [event.name for event in theirs.events() if event.name == "aten::matmul"]
    assert script.refused == [torch_profiler.THEIRS]
    assert script.taker.step(False) is False


def test_a_forked_process_has_no_part_in_it(tmp_path):
    text = f"""
import os, torch
from functools import partial
from gpuadvisor.collectors.script.child.clock import StepHandover
from gpuadvisor.collectors.script.child.torch_profiler import ProfiledSteps, TraceRecording
from pathlib import Path
class Script:
    def batches_ready(self): return None
    def effective(self, detail): print("saved in", os.getpid(), flush=True)
    def refuse(self, reason): print(reason, flush=True)
file = Path({str(tmp_path / "trace.json")!r})
record = partial(TraceRecording, file=file, steps=1)
handover = StepHandover(ProfiledSteps(Script(), record, False), lambda: True)
handover.begin()
child = os.fork()
if not child:
    print(handover.step(False), handover.step(False), flush=True)
    handover.end()
    os._exit(0)
os.waitpid(child, 0)
handover.step(False), handover.step(False)
print("parent is", os.getpid(), flush=True)
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    children, saved, parent = done.stdout.splitlines()
    assert children == "False False"
    assert saved.split()[-1] == parent.split()[-1] != str(os.getpid())


class Marks:
    """A timer whose steps take what a list says, in seconds."""

    def __init__(self, *steps_s: float) -> None:
        self._now_s, self._steps_s = 0.0, iter((0.0, *steps_s))

    def mark(self) -> float:
        self._now_s += next(self._steps_s)
        return self._now_s

    def ready(self, mark: float) -> bool:
        return True

    def between_s(self, first: float, second: float) -> float:
        return second - first

    def synchronize(self) -> None:
        return None

    def give_back(self, marks) -> None:
        return None


def told(steps_s, interrupted, recorded=5):
    plain = torch_profiler.PlainSteps(Marks(*steps_s), least_s=0.0)
    for each in interrupted:
        plain.step(each)
    return plain.told(recorded)


def mean_ms(steps_s, interrupted) -> float:
    return told(steps_s, interrupted).mean_ns / 1e6


def test_the_time_of_steps_without_the_profiler_is_their_mean():
    assert mean_ms([0.1, 0.2, 0.3], [False] * 3) == pytest.approx(200.0)


def test_an_evaluation_between_some_of_these_steps_is_none_of_their_time():
    seconds = [0.1, 0.1, 9.0, 0.2, 0.2, 0.2]
    assert mean_ms(seconds, [False, False, True, False, False, False]) == pytest.approx(160.0)


def test_what_interrupts_most_steps_belongs_to_them():
    assert mean_ms([1.0, 2.0, 3.0], [True, True, False]) == pytest.approx(2000.0)


def test_how_they_went_is_told_without_the_evaluation_too():
    seconds = [0.1, 0.1, 9.0, 0.2, 0.2, 0.2]
    steady = told(seconds, [False, False, True, False, False, False], recorded=1).steadiness
    assert (steady.low_ns, steady.high_ns) == (pytest.approx(1e8), pytest.approx(2e8))
    assert steady.drift.values == 5


def test_at_least_three_steps_are_timed_however_long_they_take():
    plain = torch_profiler.PlainSteps(Marks(1.0, 1.0, 1.0), least_s=0.0)
    assert [plain.step(False) for _ in range(3)] == [False, False, True]


def timed(script, tmp_path):
    """The same script, whose steps are timed first."""
    options = {"file": str(tmp_path / "trace.json"), "steps": 2, "unprofiled_s": 1e-9}
    PROFILER.apply(json.dumps(options), script)
    script.taker.begin()
    return script


def test_steps_are_timed_before_the_profiler_is_switched_on_and_the_trace_tells_it(
    script, tmp_path
):
    timed(script, tmp_path)
    for _ in range(3):
        assert not torch_profiler.is_profiling(torch)
        work()
        assert not script.taker.step(False)
    assert steps_until_complete(script) == 3
    trace = json.loads((tmp_path / "trace.json").read_text())
    steps = unprofiled_steps(trace)
    assert 0 < steps.steadiness.low_ns <= steps.mean_ns <= steps.steadiness.high_ns
    assert named(tmp_path / "trace.json", "ProfilerStep#") == ["ProfilerStep#1", "ProfilerStep#2"]


def test_what_was_timed_of_steps_that_were_not_steady_is_thrown_away(script, tmp_path):
    timed(script, tmp_path)
    script.taker.step(False)
    script.taker.abandon()
    script.taker.begin()
    assert [script.taker.step(False) for _ in range(3)] == [False] * 3
    assert steps_until_complete(script) == 3


def test_a_profiler_that_the_script_starts_while_its_steps_are_timed_is_left_alone(
    script, tmp_path
):
    timed(script, tmp_path)
    with torch.profiler.profile():
        for _ in range(3):
            script.taker.step(False)
    assert script.refused == [torch_profiler.THEIRS]
