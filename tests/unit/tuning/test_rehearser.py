"""What a rehearsal makes of lives that a busy machine disturbed; the lives are made up."""

from __future__ import annotations

import pytest

from gpuadvisor.collectors.devices import cpu_device
from gpuadvisor.collectors.script.request import Command
from gpuadvisor.domain.knobs import AppliedKnob
from gpuadvisor.domain.rehearsal import Batch, Call, Epoch, Life
from gpuadvisor.domain.study import Aspect, TrialState
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuning import rehearsal
from gpuadvisor.tuning.rehearsal import Rehearser
from gpuadvisor.tuning.trial_runner import Side

COMPILED = {"compile": "default"}


def life(knobs, later_s):
    """A life of two passes, of which the second took so long."""
    batches = tuple(Batch(((n,) * 8,), ((0.0, 1.0),)) for n in range(16))
    epochs = tuple(
        Epoch(0, number, batches, 128, 16, 0.0, 0.0, seconds, 16, True, 0, 0)
        for number, seconds in ((0, 0.05), (1, later_s))
    )
    return Life(
        TrialState.COMPLETE,
        wall_s=3.0,
        epochs=epochs,
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
