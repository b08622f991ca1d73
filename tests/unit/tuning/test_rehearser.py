"""What a rehearsal makes of lives that a busy machine disturbed; the lives are made up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuadvisor.collectors.devices import cpu_device
from gpuadvisor.collectors.script.request import Command
from gpuadvisor.domain.knobs import AppliedKnob
from gpuadvisor.domain.rehearsal import Batch, Call, Epoch, Life, Loop, LoopKind
from gpuadvisor.domain.study import Aspect, TrialState
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuning import rehearsal
from gpuadvisor.tuning.rehearsal import Rehearser
from gpuadvisor.tuning.trial_runner import Side

COMPILED = {"compile": "default"}


def life(knobs, later_s, startup_s=0.0, loops=()):
    """A life of two passes, of which the second took so long."""
    batches = tuple(Batch(((n,) * 8,), ((0.0, 1.0),)) for n in range(16))
    epochs = tuple(
        Epoch(0, number, batches, 128, 16, 0.0, 0.0, seconds, 16, True, 0, 0)
        for number, seconds in ((0, 0.05), (1, later_s))
    )
    return Life(
        TrialState.COMPLETE,
        wall_s=3.0,
        startup_s=startup_s,
        epochs=epochs,
        loops=loops,
        losses=(1.0,) * 32,
        calls=tuple(Call(n, 8, 8, True, ((1.0,),)) for n in range(32)),
        written={},
        applied=tuple(AppliedKnob(name, "effective") for name in knobs),
    )


@pytest.fixture
def rehearse(monkeypatch):
    def run(*planned_s):
        """Rehearse; the plan's lives have later passes of these durations, one after the other."""
        left = list(planned_s)

        def live(request, shortening):
            names = [each.knob for each in request.specification.applications]
            return life(names, left.pop(0) if names else 0.05)

        monkeypatch.setattr(rehearsal, "run_life", live)
        monkeypatch.setattr(rehearsal, "unavailable", lambda: None)
        side = Side(Command("python", "train.py"), cpu_device())
        return Rehearser(side, load_knobs(), 0.01).rehearse(COMPILED), left

    return run


def test_a_busy_moment_is_no_slow_plan(rehearse):
    found, left = rehearse(0.5, 0.04)
    assert found.agrees
    assert found.wall_s == pytest.approx(12)
    assert not left


def test_later_epochs_that_stay_slow(rehearse):
    found, left = rehearse(0.5, 0.4)
    assert [problem.aspect for problem in found.problems] == [Aspect.SECOND_EPOCH]
    assert not left


def test_a_plan_that_is_quick_lives_once(rehearse):
    found, left = rehearse(0.04, 9.0)
    assert found.agrees
    assert left == [9.0]


@pytest.mark.parametrize("starts_s", [(4.0, 2.0), (4.0, 4.0)])
def test_a_start_that_took_long_is_seen_again(monkeypatch, starts_s):
    left = [2.0, 2.1, *starts_s]
    loops = (Loop("train.py, line 3", LoopKind.EPOCHS, 2, 2, True, (1.0, 1.0)),)

    def live(request, shortening):
        names = [each.knob for each in request.specification.applications]
        return life(names, 0.04 if names else 0.05, left.pop(0), loops)

    monkeypatch.setattr(rehearsal, "run_life", live)
    monkeypatch.setattr(rehearsal, "unavailable", lambda: None)
    side = Side(Command("python", "train.py"), cpu_device())
    rehearser = Rehearser(side, load_knobs(), 0.01, step_ms=3.0)
    found = rehearser.rehearse(COMPILED, step_ms=2.0)
    assert bool(found.doubt) == (starts_s[1] > 2.1)
    assert not left


class TestLaterEpochs:
    LOOP = Loop("train.py, line 3", LoopKind.EPOCHS, 90, 3, True, (1.0,) * 3, (0, 1, 89))

    @pytest.fixture
    def lives(self, monkeypatch):
        """Rehearses; `spoiled` stands for lives of the unchanged script with later epochs."""

        def run(spoiled=None, step_ms=None):
            asked = []

            def live(request, shortening):
                names = [each.knob for each in request.specification.applications]
                asked.append((shortening.later, shortening.epochs))
                usual = life(names, 0.05)
                if not shortening.later:
                    return usual
                return spoiled or replace(usual, loops=(self.LOOP,))

            monkeypatch.setattr(rehearsal, "run_life", live)
            monkeypatch.setattr(rehearsal, "unavailable", lambda: None)
            side = Side(Command("python", "train.py"), cpu_device())
            rehearser = Rehearser(side, load_knobs(), 0.01, allowed_s=200.0, step_ms=step_ms)
            return rehearser.rehearse(COMPILED), asked

        return run

    def test_all_lives_have_them_and_it_is_said_which(self, lives):
        found, asked = lives()
        assert asked == [(rehearsal.LATER, 2)] * 3
        assert found.lived_epochs == (1, 2, 90)

    @pytest.mark.parametrize(("step_ms", "later"), [(100.0, 4), (500.0, 1), (1000.0, 0)])
    def test_fewer_where_steps_are_long(self, lives, step_ms, later):
        assert lives(step_ms=step_ms)[1] == [(later, 2)] * 3

    @pytest.mark.parametrize(
        "spoiled",
        [
            Life(TrialState.CRASHED, loops=(LOOP,)),
            Life(TrialState.HUNG, epochs=(Epoch(0, 2, (), 0, 16, 0.0, 0.0, 0.0, 0, False, 0, 0),)),
            Life(TrialState.HUNG),
        ],
    )
    def test_none_where_the_unchanged_script_cannot_bear_them(self, lives, spoiled):
        found, asked = lives(spoiled)
        assert asked == [(rehearsal.LATER, 2)] + [(0, 2)] * 3
        assert found.agrees
        assert found.lived_epochs == ()

    def test_a_failure_before_them_is_not_put_down_to_them(self, lives):
        _, asked = lives(Life(TrialState.CRASHED))
        assert asked[:2] == [(rehearsal.LATER, 2), (0, rehearsal.WHOLE)]
