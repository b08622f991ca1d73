"""Knobs that are turned in a running script, between blocks of its steps."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import replace
from itertools import groupby

import pytest

from gpuadvisor.collectors.script.live import run_in_turns, run_live
from gpuadvisor.collectors.script.request import Command
from gpuadvisor.collectors.script.specification import Schedule, Specification
from gpuadvisor.domain.screening import Block
from gpuadvisor.domain.study import TrialState
from gpuadvisor.errors import Interrupted, ScriptError
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuners.screening.course import screen
from gpuadvisor.tuners.space import Parameter, Space
from tests.integration.runs import request

WARM = Schedule(warmup_s=0.05)
BRIEF = Schedule(warmup_s=0.05, measure_s=0.2, window_s=0.05, min_steps=8, drift=1.0)
SCRIPT = """\
import sys, time
import torch
from torch import nn
import pace
model = nn.Linear(4, 2)
for step in range(int(sys.argv[1])):
    time.sleep(pace.STEP_S)
    model(torch.randn(8, 4)).sum().backward()  # an optimizer imports half as much as torch itself
    if pace.fails:
        raise ValueError("a shape that cannot be")
    print(step, pace.on, flush=True)
"""
OWN_CLOCK = """\
asleep = [0.0]
time.sleep = lambda seconds: asleep.__setitem__(0, asleep[0] + seconds)
time.perf_counter = lambda: asleep[0]
"""
"""Has steps take what they sleep and nothing else, in no time."""
PACE = """\
STEP_S, fails, on = 0.02, False, []

class Pace:
    def __init__(self, name):
        self.name = name

    def live(self, target):
        def turn(value):
            global STEP_S, fails
            if value == "never":
                raise RuntimeError("not in this script")
            on.remove(self.name) if value is None else on.append(self.name)
            STEP_S = 0.02 if value is None else value
            fails = value == 0.0
            if value != 0.02:  # as fast as it is anyway
                target.effective()
        return turn

FAST, SLOW = Pace("fast"), Pace("slow")
"""
KNOBS = {"slow": "pace:SLOW", "fast": "pace:FAST"}
FAST = Block({"fast": 0.005}, 0.2)
USUAL = Block({}, 0.2)


@pytest.fixture
def live(tmp_path, torch_imported):
    """A function that runs a screening in a script of so many steps."""
    (tmp_path / "pace.py").write_text(PACE)

    def run(screening, steps=100_000, clock="", **more):
        (tmp_path / "train.py").write_text(SCRIPT.replace("\nmodel", f"\n{clock}model"))
        command = Command(sys.executable, "train.py", (str(steps),), folder=str(tmp_path))
        # A fork looks for `pace` before the script's own folder is known.
        wanted = request(command, WARM, PYTHONPATH=str(tmp_path))
        return run_live(replace(wanted, template=torch_imported, **more), KNOBS, screening)

    return run


def asked(*groups):
    """Ask for groups of blocks one after the other, and return all that was told."""
    told = []
    for group in groups:
        told += yield list(group)
    return told


def states(lines):
    """Return what was on in the steps, one after the other."""
    printed = b"".join(lines).decode().splitlines()
    return [on for on, _ in groupby(line.split(" ", 1)[1] for line in printed)]


def test_blocks_in_the_order_that_was_asked_for(live):
    lines = []
    first, second, third, fourth, fifth = live(
        asked([USUAL, FAST], [FAST, Block({"slow": 0.05}, 0.2), Block({"slow": 0.02}, 0.1)]),
        clock=OWN_CLOCK,
        on_output=lines.append,
    )
    took_ms = [each.step_ms for each in (first, second, third, fourth, fifth)]
    assert took_ms == pytest.approx([20, 5, 5, 50, 20])
    assert 40 <= second.steps <= 41
    assert 4 <= fourth.steps <= 5
    assert not any(each.failed for each in (first, second, third, fourth, fifth))
    assert fifth.idle == ("slow",), "it found nothing to change"
    assert not any(each.idle for each in (first, second, third, fourth))
    # What is not wanted is turned off first.
    assert states(lines) == ["[]", "['fast']", "['slow']"]


def test_a_script_that_ends_is_started_again(live):
    lines = []
    told = live(asked([Block({}, 0.3)] * 2), steps=24, clock=OWN_CLOCK, on_output=lines.append)
    assert [each.step_ms for each in told] == pytest.approx([20, 20])
    assert b"".join(lines).decode().splitlines().count("0 []") == 2


def test_what_fails_is_told_and_the_others_go_on(live):
    unknown, refused, died, fine = live(
        asked([Block({"tf32": True}), Block({"fast": "never"}), Block({"fast": 0.0}), FAST])
    )
    assert unknown.failed == "RuntimeError: tf32 cannot be turned in this script"
    assert refused.failed == "RuntimeError: not in this script"
    assert died.failed == "ValueError: a shape that cannot be"
    assert math.isnan(died.step_ms)
    assert fine.step_ms >= 5


def test_a_block_that_hangs_is_given_up_and_the_others_go_on(live):
    began_s = time.monotonic()
    hangs = Block({"slow": 3600.0}, 0.2, most_s=2.0)
    before, slow, after = live(asked([USUAL, hangs, FAST]))
    assert slow.failed == "its steps took more than 2 s"
    assert math.isnan(slow.step_ms)
    assert before.step_ms >= 20
    assert after.step_ms >= 5
    assert time.monotonic() - began_s < 100


def test_a_script_without_enough_steps(live):
    with pytest.raises(ScriptError, match=r"ends before 7 steps follow each other|too few"):
        live(asked([USUAL]), steps=9)


def test_a_screening_that_is_cancelled_is_closed(live):
    ended = []

    def screening():
        try:
            yield [Block({}, 60.0)]
        finally:
            ended.append(True)

    heard = []
    with pytest.raises(Interrupted):
        live(screening(), on_event=heard.append, cancelled=lambda: len(heard) > 4)
    assert ended


@pytest.mark.slow
def test_a_screening_finds_what_pays_in_a_script_that_ends_and_fails(live):
    """Three starts: the script ends after 12 s, and a value ends it before."""
    space = Space((Parameter("slow", (0.04, 0.0)), Parameter("fast", (0.01, "never"))))
    found = live(screen(space, lambda: math.inf), steps=600)
    states = {(each.knob, each.value): str(each.state) for each in found.values}
    assert states == {
        ("slow", 0.04): "worthless",
        ("slow", 0.0): "failed",
        ("fast", 0.01): "kept",
        ("fast", "never"): "failed",
    }
    assert found.settings == {"fast": 0.01}
    assert found.ratio.low > 1
    assert found.why == ""


class TestInTurns:
    """Blocks that follow what was measured as the script had started."""

    @pytest.fixture
    def turns(self, tmp_path, torch_imported):
        """A function that runs both sides in turns, and says what was told of the knobs."""
        (tmp_path / "pace.py").write_text(PACE)
        (tmp_path / "train.py").write_text(SCRIPT)

        def run(start, blocks=(USUAL, FAST, FAST, USUAL), steps=100_000, **more):
            command = Command(sys.executable, "train.py", (str(steps),), folder=str(tmp_path))
            wanted = request(command, BRIEF, PYTHONPATH=str(tmp_path))
            wanted = replace(wanted, template=torch_imported, **more)
            return run_in_turns(wanted, KNOBS, start, blocks)

        return run

    @pytest.mark.parametrize(
        "start", [pytest.param({}, marks=pytest.mark.slow), {"fast": 0.005}], ids=["usual", "fast"]
    )
    def test_the_run_is_what_it_was_and_blocks_follow(self, turns, start):
        lines = []
        outcome, told = turns(start, on_output=lines.append)
        assert outcome.state is TrialState.COMPLETE
        usual, fast, again, end = told
        assert min(usual.step_ms, end.step_ms) >= 20
        assert min(fast.step_ms, again.step_ms) >= 5
        assert outcome.measurement.mean_step_ms >= (5 if start else 20)
        # Measured as it had started, then block by block.
        assert states(lines) == ["['fast']"] * bool(start) + ["[]", "['fast']", "[]"]
        effective = {each.knob for each in outcome.measurement.applied}
        assert effective == {"fast"}
        assert outcome.measurement.trace.losses, "results are compared as in any other run"

    def test_what_is_on_both_sides_and_cannot_be_turned_is_there_from_the_start(self, turns):
        fixed = load_knobs()["cpu_threads"].application(1)
        specification = Specification((fixed,), schedule=BRIEF)
        outcome, told = turns({"fast": 0.005}, specification=specification)
        assert outcome.state is TrialState.COMPLETE
        assert len(told) == 4 and not any(each.failed for each in told)
        assert outcome.measurement.facts.cpu_threads == 1

    @pytest.mark.slow
    def test_a_script_that_ends_meanwhile_was_measured_all_the_same(self, turns):
        outcome, told = turns({}, steps=30)
        assert outcome.state is TrialState.COMPLETE
        assert outcome.measurement.mean_step_ms >= 20
        assert len(told) < 4

    @pytest.mark.slow
    def test_what_fails_in_a_block_says_that_there_were_blocks(self, turns):
        outcome, told = turns({}, [FAST, Block({"fast": 0.0})])
        assert outcome.measurement is None
        assert [each.failed for each in told] == [""]

    @pytest.mark.slow
    def test_what_cannot_be_turned_is_told(self, turns):
        outcome, told = turns({"fast": "never"}, [USUAL, Block({"fast": "never"})])
        assert outcome.state is TrialState.COMPLETE
        refused = next(each for each in outcome.measurement.applied if each.knob == "fast")
        assert refused.state == "refused"
        assert told[1].failed == "RuntimeError: not in this script"
