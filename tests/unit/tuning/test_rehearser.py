"""What a rehearsal makes of lives that a busy machine disturbed; the lives are made up."""

from __future__ import annotations

import threading
import time
from array import array
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpuadvisor.collectors import load
from gpuadvisor.collectors.devices import cpu_device
from gpuadvisor.collectors.script.request import Command
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import AppliedKnob
from gpuadvisor.domain.rehearsal import (
    Batch,
    Call,
    Epoch,
    Life,
    Loop,
    LoopKind,
    Numbers,
    Update,
    WrittenFile,
)
from gpuadvisor.domain.study import Aspect, TrialState
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuners.rehearsal.comparison import missing
from gpuadvisor.tuners.rehearsal.unmoved import OTHER_WEIGHTS
from gpuadvisor.tuning import rehearsal
from gpuadvisor.tuning.rehearsal import Rehearser
from gpuadvisor.tuning.trials.trial_runner import Side

COMPILED = {"compile": "default"}
NHWC = {"channels_last": True}
MEMORY = 64 << 30
GPU = Device("cuda", 0, "NVIDIA H100 80GB HBM3")


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
    def run(*planned_s, unchanged_s=()):
        """Rehearse; the plan's lives have later passes of these durations, one after the other, and
        those of the unchanged script of these, then of 0.05 s."""
        left, unchanged_s = list(planned_s), list(unchanged_s)

        def live(request, shortening):
            names = [each.knob for each in request.specification.applications]
            own_s = unchanged_s.pop(0) if unchanged_s and not names else 0.05
            return life(names, left.pop(0) if names else own_s)

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
    assert found.wall_s == pytest.approx(15), "two lives under the plan, three without it"
    assert not left


def test_later_epochs_that_are_slow_as_long_as_others_work(rehearse):
    found, left = rehearse(0.5, 0.4, unchanged_s=(0.05, 0.05, 0.3))
    assert found.agrees
    said = "it cannot be told whether later epochs take 1.33x as long as the unchanged script's"
    assert found.doubt == f"{said}: lives of that differ by 500%"
    assert not left


@pytest.mark.parametrize("others_cores", [0.0, 1.5])
def test_a_plan_that_is_slow_while_others_use_the_cores_is_not_judged(monkeypatch, others_cores):
    """Of two cores, which the script would use as well; the kernel counts by a clock of ours."""
    known = {"at_s": 0.0, "busy_s": 0.0}

    def live(request, shortening):
        names = [each.knob for each in request.specification.applications]
        known["at_s"] += 4.0
        known["busy_s"] += 4.0 * (2.0 if names else 0.1)
        return life(names, 0.5 if names else 0.05)

    def own_s():
        return known["busy_s"] * (1 - others_cores / 2)

    monkeypatch.setattr(load, "time", SimpleNamespace(monotonic=lambda: known["at_s"]))
    monkeypatch.setattr(load, "cpu_times", lambda: load.CpuTimes(2, known["busy_s"], 0.0))
    monkeypatch.setattr(load, "_own_s", own_s)
    monkeypatch.setattr(rehearsal, "run_life", live)
    monkeypatch.setattr(rehearsal, "unavailable", lambda: None)
    side = Side(Command("python", "train.py"), cpu_device())
    found = Rehearser(side, load_knobs(), 0.01).rehearse(COMPILED)
    slower = "later epochs take 10.00x as long as the unchanged script's"
    if others_cores:
        others = "others used 1.5 of 2 CPU cores, and none was idle"
        assert found.doubt == f"it cannot be told whether {slower}: {others} meanwhile"
        assert found.doubt_is_timed
        assert found.agrees
    else:
        assert [problem.sentence for problem in found.problems] == [slower]


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


def going_on(passes, state=TrialState.HUNG, wall_s=60.0):
    """A life of so many passes, none of which is its last."""
    batches = life([], 0.05).epochs[0].batches
    epochs = tuple(Epoch(0, n, batches, 128, 16, 0.0, 0.0, 0.05, 16, True) for n in range(passes))
    usual = life(["compile"], 0.05)
    return replace(usual, state=state, epochs=epochs, wall_s=wall_s, startup_s=12.0)


@pytest.fixture
def lives(monkeypatch):
    """Rehearses; `live` gives a life for each shortening and whether it is the plan's."""

    def run(live, allowed_s=180.0):
        asked = []

        def lived(request, shortening):
            asked.append(shortening)
            return live(shortening, bool(request.specification.applications))

        monkeypatch.setattr(rehearsal, "run_life", lived)
        monkeypatch.setattr(rehearsal, "unavailable", lambda: None)
        side = Side(Command("python", "train.py"), cpu_device())
        rehearser = Rehearser(side, load_knobs(), 0.01, allowed_s=allowed_s)
        return rehearser, rehearser.rehearse(COMPILED), asked

    return run


class TestWithoutAnEnd:
    """minGPT's trainer went on for ever: two of its lives took 59 s of five minutes."""

    def test_all_further_lives_end_at_a_step(self, lives):
        def live(shortening, is_plan):
            return going_on(6, wall_s=20.0) if shortening.ends_after else going_on(40)

        _, found, asked = lives(live)
        assert [each.ends_after for each in asked] == [0, 6 * 16, 6 * 16]
        why = "the unchanged script's shortened life did not end within 60 s"
        assert found.not_covered[Aspect.END] == f"{why}, in which it made 640 steps"
        assert Aspect.BATCHES in found.covered and Aspect.END not in found.covered
        assert not found.wants_time

    def test_they_have_room_where_the_first_took_its_third(self, lives, monkeypatch):
        """To clear a life away takes time, so that of three thirds the last has no room."""
        now = [0.0]
        monkeypatch.setattr(rehearsal.time, "monotonic", lambda: now[0])

        def live(shortening, is_plan):
            found = going_on(6, wall_s=21.0) if shortening.ends_after else going_on(40)
            now[0] += found.wall_s + 2.0
            return found

        _, found, asked = lives(live)
        assert len(asked) == 3 and Aspect.BATCHES in found.covered

    def test_a_few_passes_may_come_to_an_end_with_more_time(self, lives):
        def live(shortening, is_plan):
            return going_on(8, wall_s=60.0)

        _, found, asked = lives(live)
        assert [(each.ends_after, each.later > 0) for each in asked[:2]] == [(0, True), (0, False)]
        assert found.wants_time

    def test_steps_without_passes(self, lives):
        def live(shortening, is_plan):
            steps = shortening.ends_after or 1000
            return replace(going_on(0), losses=(1.0,) * steps, calls=())

        _, _, asked = lives(live)
        assert [each.ends_after for each in asked] == [0, 16, 16]


class TestWholeLives:
    """What reads fewer batches than it has names of files fails in a shortened life."""

    def test_none_is_wanted_where_it_bears_fewer_samples(self, lives):
        def live(shortening, is_plan):
            if shortening.fewer_samples:
                return life(["compile"], 0.05)
            failed = going_on(1, TrialState.CRASHED, 16.0)
            epochs = tuple(replace(each, whole_batches=512) for each in failed.epochs)
            return replace(failed, epochs=epochs)

        _, found, asked = lives(live, allowed_s=116.0)
        assert [each.fewer_samples for each in asked] == [False, True, True, True]
        assert not found.not_covered.get(Aspect.END) and Aspect.END in found.covered

    def test_fewer_samples_are_not_tried_where_passes_were_whole(self, lives):
        def live(shortening, is_plan):
            return going_on(1, TrialState.CRASHED, 16.0)

        _, _, asked = lives(live)
        assert not any(each.fewer_samples for each in asked)

    @pytest.mark.parametrize(("whole_batches", "lived"), [(2000, 5), (512, 5), (20_000, 2)])
    def test_none_is_begun_that_cannot_end_in_time(self, lives, whole_batches, lived):
        def live(shortening, is_plan):
            if shortening.batches == rehearsal.WHOLE:
                return life(["compile"], 0.05)
            failed = going_on(1, TrialState.CRASHED, 16.0)
            epochs = tuple(replace(e, whole_batches=whole_batches) for e in failed.epochs)
            return replace(failed, epochs=epochs, reason="ValueError: lengths differ")

        rehearser, found, asked = lives(live, allowed_s=116.0)
        assert [each.fewer_samples for each in asked] == [False, True, *[False] * (lived - 2)]
        if lived == 2:
            why = "failed: ValueError: lengths differ, and its whole one takes about 74 s"
            assert found.not_covered[Aspect.END].endswith(why)
            assert found.wants_time
            assert rehearser.needed_s == pytest.approx(3 * 74.5)
        else:
            assert not found.not_covered.get(Aspect.END)


class TestOnEqualWeights:
    """Training makes of the plan's rounding, and of any, another model."""

    @pytest.fixture
    def limits_s(self):
        """How long each life might take."""
        return []

    @pytest.fixture
    def rehearsed(self, monkeypatch, limits_s):
        """Rehearses on a GPU; lives of a kind are given out in order, the last of them again."""

        def run(free=MEMORY, allowed_s=200.0, **lives):
            running, asked = [], []
            limits_s.clear()
            both = threading.Event()

            def live(request, shortening):
                names = [each.knob for each in request.specification.applications]
                kind = "equal" if shortening.takes_weights else "plan" if names else "first"
                kind = "nudged" if shortening.nudge else kind
                if shortening.weights and not shortening.takes_weights:
                    (Path(shortening.weights) / "0.pt").touch()
                asked.append(kind)
                limits_s.append(request.limits.total_s)
                running.append(kind)
                if {"nudged", "equal"} <= set(running):
                    both.set()
                if kind in ("nudged", "equal") and free == MEMORY:
                    while not both.wait(0.01) and not request.cancelled():
                        pass
                    while lives.get("waits") and kind == "equal" and not request.cancelled():
                        time.sleep(0.001)
                running.remove(kind)
                told = lives.get(kind, 1.0)
                told = told.pop(0) if isinstance(told, list) and len(told) > 1 else told
                return self.lived(names, told[0] if isinstance(told, list) else told)

            monkeypatch.setattr(rehearsal, "run_life", live)
            monkeypatch.setattr(rehearsal, "unavailable", lambda: None)
            monkeypatch.setattr(rehearsal, "available_bytes", lambda: free)
            side = Side(Command("python", "train.py"), GPU)
            found = Rehearser(side, load_knobs(), 0.01, allowed_s=allowed_s).rehearse(NHWC)
            assert found.equivalence is not None
            assert found.wants_time == (allowed_s < 15.0)
            return found.equivalence.status, asked, both.is_set()

        return run

    def lived(self, names, late):
        """A life whose model puts out so much after its training; None for one that failed."""
        usual = life(names, 0.05)
        if late is None:
            return replace(usual, state=TrialState.CRASHED)
        ends = tuple(Call(n, 8, 8, False, ((late,),)) for n in range(4))
        update = (Update((1.0,), (1.0,)),) * 2
        memory = MEMORY - (4 << 30)
        return replace(
            usual, calls=usual.calls + ends, updates=update, equalled=2, available_bytes=memory
        )

    def test_both_lives_that_are_not_timed_go_on_side_by_side(self, rehearsed):
        status, asked, both = rehearsed(plan=3.0, nudged=5.0)
        assert (status, both) == ("equivalent", True)
        assert sorted(asked[3:]) == ["equal", "nudged"]

    def test_one_after_the_other_without_room(self, rehearsed):
        status, asked, both = rehearsed(free=4 << 30, plan=3.0, nudged=5.0)
        assert (status, both) == ("equivalent", False)
        assert asked[3:] == ["nudged", "equal"]

    @pytest.mark.parametrize(
        ("allowed_s", "more"), [(11.9, []), (14.9, ["nudged"]), (15.0, ["nudged", "equal"])]
    )
    def test_no_life_goes_on_beyond_the_time_allowed(self, rehearsed, limits_s, allowed_s, more):
        """Each takes 3 s, and three of them are made before it is known that more are wanted."""
        status, asked, _ = rehearsed(4 << 30, allowed_s, plan=3.0, nudged=5.0)
        assert status == ("equivalent" if len(more) == 2 else "not_checked")
        assert asked[3:] == more
        assert all(n * 3.0 + limits_s[n] <= allowed_s for n in range(3, len(asked)))

    def test_what_nobody_asks_for_is_given_up(self, rehearsed):
        status, asked, _ = rehearsed(plan=1.3, nudged=1.2, waits=True)
        assert status == "equivalent"
        assert sorted(asked[3:]) == ["equal", "nudged"]

    @pytest.mark.parametrize("kind", ["nudged", "equal"])
    def test_what_found_no_room_beside_another_lives_alone(self, rehearsed, kind):
        known = {"plan": 3.0, "nudged": [5.0], kind: [None, 5.0 if kind == "nudged" else 1.0]}
        status, asked, _ = rehearsed(**known)
        assert status == "equivalent"
        assert asked[3:].count(kind) == 2

    @pytest.mark.parametrize("free", [MEMORY, 4 << 30])
    def test_they_live_once_however_often_times_are_compared(self, monkeypatch, rehearsed, free):
        """The plan's later epochs are slow as often as they are seen."""
        usual = self.lived

        def slow(names, late):
            return replace(usual(names, late), epochs=life(names, 0.5 if names else 0.05).epochs)

        monkeypatch.setattr(self, "lived", slow)
        _, asked, _ = rehearsed(free=free, allowed_s=60.0, plan=3.0, nudged=5.0)
        assert sorted(asked) == ["equal", *["first"] * 3, "nudged", *["plan"] * 2]


@pytest.mark.parametrize(
    ("place", "lacks"), [(640.0, "state.json: place is 640, and 641"), (600.0, "")]
)
def test_the_life_of_another_model_is_lived_once_for_all_settings(monkeypatch, place, lacks):
    """It is lived where a count differs, and its own count says whether weights move that."""
    nudges = []

    def live(request, shortening):
        names = [each.knob for each in request.specification.applications]
        nudges.append(shortening.nudge)
        scale = 1.0 + shortening.nudge
        count = 641.0 if names else place if shortening.nudge else 640.0
        part = {"place": Numbers(1, array("d", [count]))}
        calls = tuple(Call(n, 8, 8, True, ((scale,),)) for n in range(32))
        written = {"state.json": WrittenFile(10, str(count), part, is_text=True)}
        return replace(life(names, 0.05), calls=calls, written=written)

    monkeypatch.setattr(rehearsal, "run_life", live)
    monkeypatch.setattr(rehearsal, "unavailable", lambda: None)
    side = Side(Command("python", "train.py"), cpu_device())
    rehearser = Rehearser(side, load_knobs(), 0.01)
    for settings in (NHWC, COMPILED):
        found = rehearser.rehearse(settings)
        assert (missing(found) or "").partition(" with")[0].endswith(lacks)
        assert (Aspect.RESULTS in found.covered) is not bool(lacks)
    others = [each for each in nudges if each]
    assert others == list(OTHER_WEIGHTS if lacks else OTHER_WEIGHTS[:1])
