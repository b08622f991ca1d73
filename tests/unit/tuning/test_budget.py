"""What a user may ask for, and what the budget has room for."""

from dataclasses import replace

import pytest

from gpuadvisor.domain.knobs import Effect
from gpuadvisor.domain.study import Trial, TrialState
from gpuadvisor.errors import UsageError
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuners.search import Best
from gpuadvisor.tuners.statistics import LOOKS
from gpuadvisor.tuning.budgeting.budget import (
    JITTER,
    TRIED_AGAIN,
    Budget,
)
from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit
from gpuadvisor.tuning.budgeting.durations import LIFE_ERROR, LIFE_TRIALS, ROUNDED_LIVES
from gpuadvisor.tuning.budgeting.reserve import (
    ABLATION_SHARE,
    PROOF_SHARE,
    REHEARSAL_SHARE,
    TURNED_SHARE,
    Reserve,
)
from gpuadvisor.tuning.trials.trial_runner import limits_for
from tests.simulation import Switch, measurement

SLOW = Switch("compile")
SLOW.first_start_s = 40.0
NHWC = Switch("nhwc")
NHWC.effect = Effect.NUMERICS
TF32 = {"tf32": True}
FOUND, NONE = Best(TF32, 1.5), Best({}, 1.0)


class Live(Switch):
    """A knob that is turned in a running script."""

    def live(self, target):
        raise NotImplementedError


class Rounding(Switch):
    """A knob whose results are held against those of more digits."""

    def precise(self, value):
        return value


KNOBS = {"compile": SLOW, "tf32": Switch("tf32"), "blocks": Rounding("blocks")}


def trial(wall_s, phase="search", **settings):
    return Trial(0, settings, phase, TrialState.COMPLETE, wall_s=wall_s)


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("gpuadvisor.tuning.budgeting.budget.time.monotonic", lambda: now[0])
    return now


def budget_of(budget, phase="search"):
    made = Budget(BudgetLimit.parse(budget), KNOBS)
    made.record(trial(10.0, "baseline"))
    made.phase = phase
    return made


@pytest.mark.parametrize(
    ("text", "seconds", "shown"),
    [
        ("90s", 90, "90s"),
        ("10m", 600, "10m"),
        (" 10 M ", 600, "10m"),
        ("1h", 3600, "60m"),
        ("1h30m", 5400, "90m"),
        ("1h 30m", 5400, "90m"),
        ("1.5h", 5400, "90m"),
        ("0.5s", 0.5, "0.5s"),
    ],
)
def test_a_limit_in_time(text, seconds, shown):
    assert BudgetLimit.parse(text) == BudgetLimit(seconds=seconds)
    assert str(BudgetLimit.parse(text)) == shown


@pytest.mark.parametrize("text", ["30 trials", "30trials", "30", "30 TRIALS", "30 trial"])
def test_a_limit_in_trials(text):
    assert BudgetLimit.parse(text) == BudgetLimit(trials=30)
    assert str(BudgetLimit.parse(text)) == "30 trials"


@pytest.mark.parametrize(
    "text",
    (
        *("", "x", "0", "0m", "0 trials", "-5m", "1.5 trials", "10 minutes", "m", "1d", "1e3s"),
        *("inf", "nan", "10m!", "1 0m", "9" * 19 + "h", "9" * 5000, "9" * 5000 + "s", "10m30"),
        *("1h30", "1000000 trials", "10m" + " " * 50 + "10m"),
    ),
)
def test_what_is_no_limit(text):
    with pytest.raises(UsageError, match=r"write 90s, 10m, 1h30m, or '30 trials'$"):
        BudgetLimit.parse(text)


class TestTrials:
    def test_only_the_search_is_counted(self):
        made = budget_of("2 trials")
        assert made.left_s is None
        for _ in range(2):
            assert made.affordable([TF32])
            made.record(trial(10.0, tf32=True))
        assert not made.affordable([TF32])
        made.phase = "proof"
        assert made.affordable([TF32])

    def test_a_batch_counts_whole(self):
        made = budget_of("3 trials")
        assert made.affordable([TF32] * 3, parallel=4)
        assert not made.affordable([TF32] * 4, parallel=4)


class TestTime:
    def test_a_trial_is_expected_to_last_as_the_last_of_its_kind(self, clock):
        made = budget_of("10m")
        assert made.expected_s(TF32) == 10
        assert made.expected_s({"compile": True}) == 10 + 40
        made.record(trial(70.0, compile=True, tf32=True))
        assert made.expected_s({"compile": True}) == 70

    def test_what_compiles_does_so_anew_for_another_layout(self, clock):
        made = Budget(
            BudgetLimit.parse("10m"), {**KNOBS, "workers": Switch("workers"), "nhwc": NHWC}
        )
        made.record(trial(10.0, "baseline"))
        made.record(trial(70.0, compile=True, nhwc=True))
        made.record(trial(20.0, compile=True, nhwc=True))
        assert made.expected_s({"compile": True, "nhwc": True, "workers": True}) == 20
        assert made.expected_s({"compile": True}) == 70

    def test_the_search_leaves_room_for_ablation_and_proof(self, clock):
        made = budget_of("1000s")
        made.record(trial(10.0, tf32=True))
        reserve_s = LOOKS[0] * 20 + LIFE_TRIALS * 30  # one setting alone needs no ablation
        clock[0] = 1000 - reserve_s - 10
        assert made.affordable([TF32])
        clock[0] += 1
        assert not made.affordable([TF32])
        made.phase = "proof"
        assert made.affordable([TF32])

    def test_the_reserve_is_a_share_of_the_budget_at_most(self, clock):
        made = budget_of("200s")
        made.record(trial(10.0, tf32=True))
        made.expect_spread(0.2)  # many pairs
        proof_s, lives_s = LOOKS[0] * 20, LIFE_TRIALS * 30
        assert proof_s >= PROOF_SHARE * 200 and lives_s < REHEARSAL_SHARE * 200
        clock[0] = 200 - proof_s - lives_s - ABLATION_SHARE * 200 - 10
        assert made.affordable([{**TF32, "other": True}])
        clock[0] += 1
        assert not made.affordable([{**TF32, "other": True}])
        assert made.affordable([TF32])

    def test_nothing_is_kept_back_for_a_rehearsal_that_takes_too_much(self, clock):
        made = budget_of("150s")
        made.record(trial(10.0, tf32=True))
        assert LIFE_TRIALS * 30 > REHEARSAL_SHARE * 150
        clock[0] = 150 - LOOKS[0] * 20 - 10
        assert made.affordable([TF32])
        assert made.rehearsal_s(TF32) == 0
        clock[0] = 150 - LOOKS[0] * 20 - LIFE_TRIALS * 30
        assert made.rehearsal_s(TF32) == LIFE_TRIALS * 30, "it has what is left for it"

    def test_lives_that_show_which_side_is_nearer_have_room_where_it_suffices(self, clock):
        blocks = {"blocks": True}
        usual_s, more_s = LIFE_TRIALS * 30, ROUNDED_LIVES * LIFE_TRIALS * 10
        for seconds, kept_s in ((600, usual_s + more_s), (200, usual_s)):
            assert (usual_s + more_s <= REHEARSAL_SHARE * seconds) is (kept_s > usual_s)
            clock[0] = 0.0
            made = budget_of(f"{seconds}s")
            made.record(trial(10.0, blocks=True))
            clock[0] = seconds - LOOKS[0] * 20 - kept_s - 10
            assert made.affordable([blocks])
            clock[0] += 1
            assert not made.affordable([blocks])
            clock[0] = seconds - LOOKS[0] * 20 - usual_s
            assert made.rehearsal_s(blocks) == usual_s, "it may do without them"

    def test_nothing_is_kept_back_for_what_is_only_looked_at(self, clock):
        made = budget_of("600s")
        made.record(trial(10.0, tf32=True))
        made.has_plan = True
        clock[0] = 600 - 10
        assert not made.affordable([TF32])
        made.reserve = Reserve.NOTHING
        assert made.affordable([TF32])
        clock[0] += 1
        assert not made.affordable([TF32])

    def test_delays_of_a_proof_are_kept_back(self, clock):
        made = budget_of("1000s")
        made.record(trial(10.0, tf32=True))
        room_s = made.room_s(TF32)
        made.durations.delay_s = 5.0
        assert made.room_s(TF32) == room_s - 2 * LOOKS[0] * 5
        made.record(trial(19.0, "proof", tf32=True))  # its own delay says nothing of the next run
        assert made.room_s(TF32) == room_s - 2 * LOOKS[0] * 5
        made.phase = "proof"
        clock[0] = 971
        assert not made.affordable([{}, TF32])
        made.durations.delay_s = 4.0
        assert made.affordable([{}, TF32])

    def test_the_unchanged_script_may_take_longer_than_what_is_tried(self, clock):
        made = budget_of("1000s")
        made.record(trial(2.0, tf32=True))
        assert (made.expected_s({}), made.expected_s(TF32)) == (10, 2)
        assert made.expected_s({"new": True}) == 2

    @pytest.mark.parametrize("state", [TrialState.CRASHED, TrialState.NO_EFFECT])
    def test_a_run_that_ended_early_says_nothing_of_others(self, state):
        made = budget_of("1000s")
        made.record(replace(trial(1.0, tf32=True), state=state))
        assert made.expected_s(TF32) == 10
        made.record(replace(trial(90.0, compile=True), state=state))
        assert made.expected_s({"compile": True}) == 90  # at least as long as that

    def test_a_profile_leaves_room_for_a_search(self, clock):
        made = budget_of("8m", "baseline")
        made.record(trial(9.5, "baseline"))
        clock[0] = 3 * 9.5
        assert made.has_room_for_profile()
        made.record(trial(18.0, "baseline"))
        clock[0] = 3 * 18
        assert not made.has_room_for_profile()

    @pytest.mark.parametrize(("budget", "step_ms", "steps"), [
        ("5m", 26.0, 5), ("5m", 900.0, 2), ("5m", 5000.0, 0), ("1m", 1.0, 0), ("30 trials", 9e3, 5),
    ])  # fmt: skip
    def test_a_trace_at_the_end_of_a_run_costs_little(self, budget, step_ms, steps):
        assert budget_of(budget, "baseline").traced_steps(step_ms) == steps

    def test_what_a_running_script_compiled_is_found_on_disk(self):
        made = budget_of("10m")
        made.record(trial(10.0, "baseline"))
        unknown_s = made.expected_s({"compile": "default"})
        made.durations.record_compiled({"compile": "default"}, 20.0)
        assert made.expected_s({"compile": "default"}) == 20.0 < unknown_s

    def test_the_first_trial_needs_no_more_than_the_least_proof(self, clock):
        """45 s and a script of 5 s: three baselines, and 30 s were left with nothing tried."""
        made = Budget(BudgetLimit.parse("45s"), KNOBS)
        made.record(trial(5.0, "baseline"))
        made.phase = "search"
        clock[0] = 15
        assert made.affordable([TF32])
        made.record(trial(5.0, tf32=True))
        clock[0] = 20
        assert not made.affordable([TF32])

    def test_but_no_proof_that_takes_twice_the_budget(self, clock):
        made = Budget(BudgetLimit.parse("45s"), KNOBS)
        made.record(trial(10.0, "baseline"))
        made.phase = "search"
        clock[0] = 30
        assert not made.affordable([TF32])

    def test_pairs_are_kept_back_by_how_much_the_baselines_differ(self, clock):
        left_s = {}
        for spread in (0.003, 0.02, 0.2):
            made = budget_of("1000s")
            made.record(trial(10.0, tf32=True))
            made.expect_spread(spread)
            left_s[spread] = made.room_s(TF32)
        assert left_s[0.003] == 1000 - LOOKS[0] * 20 - LIFE_TRIALS * 30
        assert left_s[0.003] > left_s[0.02] > left_s[0.2]
        assert (
            left_s[0.2] == 1000 * (1 - PROOF_SHARE) - LIFE_TRIALS * 30
        )  # and no more than its share

    def test_where_only_turns_show_anything_their_first_look_is_kept_back(self, clock):
        made = budget_of("1000s")
        made.record(trial(10.0, tf32=True))
        made.expect_spread(0.2)
        usual_s = made.room_s(TF32)
        made.durations.turning_s = 4.0
        assert made.room_s(TF32) == usual_s, "it has more than that"
        made.durations.turning_s = 50.0
        assert made.room_s(TF32) == 1000 - LOOKS[0] * (20 + 2 * 50) - LIFE_TRIALS * 30
        made.durations.turning_s = 300.0
        assert made.room_s(TF32) == 1000 * (1 - TURNED_SHARE) - LIFE_TRIALS * 30
        made.durations.turning_s = 0.0
        assert made.room_s(TF32) == usual_s

    def test_the_proof_may_use_all_that_is_left(self, clock):
        made = budget_of("100s", "proof")
        clock[0] = 80
        assert made.affordable([{}, TF32])
        clock[0] += 1
        assert not made.affordable([{}, TF32])

    def test_a_rehearsal_leaves_room_for_the_proof(self, clock):
        made = budget_of("600s")
        lives_s = LIFE_TRIALS * 30
        assert made.rehearsal_s(TF32) == 600 - LOOKS[0] * 20
        clock[0] = 600 - LOOKS[0] * 20 - 55
        assert made.rehearsal_s(TF32) == 55
        clock[0] += 55 - lives_s
        assert made.rehearsal_s(TF32) == lives_s
        clock[0] += 1
        assert made.rehearsal_s(TF32) == 0
        left_s = LOOKS[0] * 20 + lives_s - 1
        assert made.rehearsal_s(TF32, is_proven=True) == left_s
        clock[0] = 600 - (1 - LIFE_ERROR) * lives_s + 1
        assert made.rehearsal_s(TF32, is_proven=True) == 0
        clock[0] -= 2
        left_s = (1 - LIFE_ERROR) * lives_s + 1
        assert made.rehearsal_s(TF32, is_proven=True) == pytest.approx(left_s)
        made.durations.record_rehearsal({"other": True}, lives_s)  # the unchanged script lived
        clock[0] = 580
        assert made.rehearsal_s(TF32, is_proven=True) > 0
        clock[0] = 600 - LOOKS[0] * 20 - lives_s + 1
        assert LIFE_TRIALS * 10 < made.rehearsal_s(TF32) < lives_s
        assert budget_of("9 trials").rehearsal_s(TF32) == 200

    def test_lives_that_differ_as_usual_may_end_before_a_proof(self, clock):
        """A life that takes longer than allowed is cut off, and no rehearsal is begun again."""
        made = budget_of("600s")
        made.expect_spread(0.05)  # a usual proof wants more than is left beside a rehearsal
        lives_s = LIFE_TRIALS * 30
        clock[0] = 600 - LOOKS[0] * 20 - 1.5 * lives_s
        assert made.rehearsal_s(TF32) == pytest.approx((1 + LIFE_ERROR) * lives_s)

    def test_lives_take_as_long_as_those_of_the_first_rehearsal(self, clock):
        made = budget_of("600s")
        made.durations.record_rehearsal({"other": True}, 90.0)
        clock[0] = 600 - LOOKS[0] * 20 - 30
        assert made.rehearsal_s(TF32) == 30
        clock[0] += 1
        assert made.rehearsal_s(TF32) == 0

    def test_a_proof_is_begun_where_its_first_look_fits_or_nearly_so(self, clock):
        made = budget_of("600s", "rehearsal")
        made.record(trial(30.0, tf32=True))
        clock[0] = 600 - LOOKS[0] * 40 + 2 * JITTER * 600
        assert made.has_room_for_proof(TF32)
        clock[0] += 1
        assert not made.has_room_for_proof(TF32)
        assert budget_of("9 trials").has_room_for_proof(TF32)

    def test_no_larger_budget_has_less_time_for_a_proof(self, clock):
        """70 s had less than 60 s, where a run takes 6.2 s: ten runs, but for a proof's delays."""
        latest_s = []
        for seconds in range(40, 200, 5):
            made = Budget(BudgetLimit(seconds=seconds), KNOBS)
            clock[0] = 0.0
            made._began_s = 0.0
            made.record(trial(6.2, "baseline"))
            made.durations.delay_s = 3.1
            while made.has_room_for_proof(TF32):
                clock[0] += 1.0
            latest_s.append(clock[0])
        assert latest_s == sorted(latest_s)

    @pytest.mark.parametrize(
        ("spread", "turning_s", "least"),
        [(0.003, 0.0, 1.01), (0.1, 0.0, 1.4), (0.1, 1.0, 1.15), (0.1, 50.0, 1.4)],
    )
    def test_what_a_proof_may_show_in_the_time_that_is_left(self, spread, turning_s, least, clock):
        made = Budget(BudgetLimit(seconds=70), {"threads": Live("threads")})
        made.record(trial(8.0, "baseline"))
        made.expect_spread(spread)
        made.durations.turning_s = turning_s
        settings = {"threads": True}
        assert made.may_show(settings, least)
        assert not made.may_show(settings, 1 + 0.6 * (least - 1))
        clock[0] = 60.0
        assert not made.may_show(settings, 10.0)
        assert budget_of("9 trials").may_show(TF32, 1.0)

    def test_what_a_proof_would_not_show_keeps_nothing_back(self, clock):
        """1.07x where runs differ by a tenth: what was not tried yet is worth more of the time."""
        made = Budget(BudgetLimit(seconds=120), KNOBS)
        made.record(trial(6.0, "baseline"))
        made.expect_spread(0.1)
        made.phase, made.reserve = "search", Reserve.NOTHING
        made.record(trial(6.0, tf32=True))
        clock[0] = 80.0
        made.stands_on = Best(TF32, 4.5)
        assert not made.affordable([{"compile": "default"}])
        made.stands_on = Best(TF32, 1.07)
        assert made.affordable([{**TF32, "other": 1}])

    def test_what_good_luck_may_show_has_all_the_time_where_nothing_else_can_be_proven(self, clock):
        """Where three pairs show 1.66x half of the time, 1.5x is worth more of them than a search
        whose results could be proven no more."""
        made = Budget(BudgetLimit(seconds=300), KNOBS)
        made.record(trial(19.0, "baseline"))
        made.expect_spread(0.13)
        made.phase, made.reserve = "search", Reserve.NOTHING
        made.record(trial(19.0, tf32=True))
        clock[0] = 300.0 - 3 * 38 - 25
        for made.stands_on, made.fallback in ((FOUND, NONE), (NONE, FOUND)):
            assert not made.may_show(FOUND.settings, FOUND.gain)
            assert not made.affordable([{"other": 1}])
        made.fallback = Best(TF32, 1.2)
        assert made.affordable([{"other": 1}]), "it would hardly be shown"
        made.fallback, made.reserve = NONE, Reserve.PROOF
        assert not made.affordable([{"compile": True}]), "its proof has no room"
        assert made.affordable([{"other": 1}])

    def test_what_lives_longer_is_not_tried_where_what_lives_shorter_has_no_room(self, clock):
        made = Budget(BudgetLimit(seconds=300), load_knobs())
        quick, more = {"tf32": True}, {"tf32": True, "pin_memory": True}
        for each in (trial(15.0, "baseline"), trial(15.0, **quick), trial(15.0, **more)):
            made.record(each)
        made.phase = "search"
        assert made.durations.lives_s(quick) < REHEARSAL_SHARE * 300 < made.durations.lives_s(more)
        affordable = []
        for clock[0] in range(0, 300, 10):
            affordable.append((made.affordable([quick]), made.affordable([more])))
        assert (True, False) in affordable and (False, True) not in affordable

    def test_what_runs_side_by_side_takes_as_long_as_the_longest(self, clock):
        made = budget_of("100s", "proof")
        clock[0] = 80
        assert made.affordable([TF32] * 8, parallel=4)
        assert not made.affordable([TF32] * 9, parallel=4)

    def test_a_trial_has_room_for_what_nothing_else_needs(self, clock):
        made = budget_of("10m")
        clock[0] = 100.0
        ablation_s, proof_s = 4 * 10, LOOKS[0] * 20 + LIFE_TRIALS * 3 * 10  # and three lives
        assert made.room_s({**TF32, "other": True}) == 500 - ablation_s - proof_s
        made.phase = "ablation"
        assert made.room_s(TF32) == 500 - proof_s
        made.phase = "proof"
        assert made.room_s(TF32) is None  # it never ran to its end
        assert budget_of("9 trials").room_s(TF32) is None

    def test_it_has_always_room_for_twice_its_usual_time(self, clock):
        made = budget_of("10m")
        made.record(trial(70.0, compile=True))
        made.record(replace(trial(140.0, compile=True), state=TrialState.PRUNED))  # says nothing
        clock[0] = 590.0
        assert made.room_s(TF32) == 2 * 10
        assert made.room_s({"compile": True}) == 2 * 70

    def test_a_run_that_hangs_takes_no_more_than_there_is_room_for(self):
        baseline = measurement([10.0] * 8, wall_s=10.0, startup_s=3.0)
        known = limits_for(TF32, KNOBS, baseline, 600.0)
        assert known.startup_s < known.idle_s < known.total_s
        for room_s in (60.0, 100.0, 130.0, 9000.0):
            limits = limits_for(TF32, KNOBS, baseline, 600.0, room_s)
            assert limits.startup_s == min(known.startup_s, room_s)
            assert limits.idle_s == min(known.idle_s, room_s)
            assert limits.total_s == min(known.total_s, room_s)

    def test_time_left_ends_at_zero(self, clock):
        made = budget_of("100s")
        clock[0] = 1000
        assert made.left_s == 0

    def test_a_budget_that_is_too_small_is_said(self, clock):
        assert "--budget 6m has room" in budget_of("100s").advice()
        assert budget_of("10m").advice() is None
        assert budget_of("5 trials").advice() is None

    def test_a_budget_for_what_was_left_out(self, clock):
        made = budget_of("100s")
        clock[0] = 60
        later_s = LOOKS[0] * 20 + LIFE_TRIALS * 30
        assert 180 < TRIED_AGAIN * 70 + later_s < 240
        assert made.enough_for([TF32]) == BudgetLimit(seconds=240)
        made = budget_of("10m")
        clock[0] += 200
        assert made.enough_for([TF32]) == BudgetLimit(seconds=660)  # 450 s would do: more
        made.phase = "proof"
        clock[0] += 300  # comes after them then
        assert made.enough_for([TF32]) == BudgetLimit(seconds=660)

    def test_a_budget_of_trials_for_what_was_left_out(self):
        made = budget_of("2 trials")
        made.record(trial(10.0, tf32=True))
        made.record(trial(10.0, tf32=True))
        assert made.enough_for([TF32] * 3) == BudgetLimit(trials=5)


def test_runs_that_a_screening_leaves_no_time_for_are_not_expected(clock):
    """A study on an H200: importing ahead saved 3.3 s a run, and 34 s went into finding out whether
    it may; after the screening, its search made two runs."""
    budget = Budget(BudgetLimit(seconds=510.0), KNOBS)
    budget.record(trial(17.3, "baseline"))
    clock[0] = 76.5
    assert budget.screening_s() > 60
    assert budget.expected_runs(False) * 3.33 < 3.33 + 17.3


def test_runs_of_a_proof_are_expected_where_they_are_forked(clock):
    """A graph network on an H200: imports of 3.8 s, 15 runs of 20 s, of which none was forked."""
    budget = Budget(BudgetLimit(seconds=395.0), KNOBS)
    for _ in range(2):
        clock[0] += 20.4
        budget.record(trial(20.4, "baseline"))
    assert budget.expected_runs(True) * 3.8 > 20.4 - 3.8 > budget.expected_runs(False) * 3.8
    assert Budget(BudgetLimit(trials=10), KNOBS).expected_runs(True) == 10 + 2 * (LOOKS[0] - 1)


def test_what_a_first_run_compiled_counts_as_time_that_is_gone_and_not_as_that_of_a_run(clock):
    """attorch's ResNet-50: 154 s, then 38 s, and 53 s to be asked before a proof of six runs."""
    budget = budget_of("264s", "baseline")
    for wall_s in (153.9, 37.5):
        clock[0] += wall_s
        budget.record(trial(wall_s, "baseline"))
    assert budget.expected_s({}) == 37.5
    assert budget.durations.first_look_s({}) == 2 * LOOKS[0] * 37.5
    assert budget.enough_to_find(37.5 + 15, alone=True).seconds == 8 * 60
