"""What ten and five minutes are spent on where each start takes 16 s, on a clock of its own."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from gpuadvisor.domain.finding import Diagnosis
from gpuadvisor.domain.knobs import LoaderFacts, Origin
from gpuadvisor.domain.study import Verdict
from gpuadvisor.errors import ScriptError
from gpuadvisor.reports.study.wording import not_helpful
from gpuadvisor.tuners.loader.ceiling import CACHED
from gpuadvisor.tuners.statistics import LOOKS
from gpuadvisor.tuning import expectations
from gpuadvisor.tuning.trials.cold_start import CACHES
from tests.study_simulation import FACTS, Machine, studies
from tests.unit.tuning.test_study import finding


class Even(Machine):
    """regnety_032 of timm under AMP on an H200: runs differ by 0.05 %, and compiling takes long."""

    start_s, life_s, compiles_s, warm_s = 9.0, 25.0, 74.0, 12.0
    between, within = 0.0005, 0.005
    computed_ms, loaded_ms = 80.2, 0.0
    brings: ClassVar = {"channels_last": 1.14, "compile": 1.5}
    facts = replace(FACTS, loaders=(), autocasts_itself=True)


class Uneven(Machine):
    """ResNet-50 of pytorch/examples as it was on another day: runs differ by a quarter."""

    start_s, life_s, compiles_s, warm_s, profile_s = 13.0, 40.0, 33.0, 10.0, 43.0
    between, within = 0.09, 0.005
    computed_ms, loaded_ms = 108.0, 560.0
    brings: ClassVar = {"channels_last": 1.415, "bf16_autocast": 1.45, "compile": 1.26}


class LaunchBound(Machine):
    """400 tiny layers on an H200: the GPU works for an eighth of a step; runs differ by a fifth."""

    start_s, life_s, compiles_s, warm_s = 8.0, 25.0, 34.0, 8.0
    between, within = 0.15, 0.15
    computed_ms, loaded_ms = 26.0, 0.0
    brings: ClassVar = {
        "compile": 1.24, "compile_cudagraphs": 3.0, "fused_optimizer": 1.12, "bf16_autocast": 0.53,
    }  # fmt: skip
    facts = replace(FACTS, loaders=(), has_convolution=False)
    diagnosis = Diagnosis(
        (finding("launch_bound", 60, 80, ("compile_cudagraphs", "compile", "fused_optimizer")),),
        busy_ms=3.1,
    )


class LoaderBound(Machine):
    """A loader of two workers that takes 0.5 s a batch beside a GPU that computes it in 17 ms."""

    start_s, life_s, workers = 10.0, 30.0, 2
    between, within = 0.01, 0.02
    computed_ms, loaded_ms = 17.0, 990.0
    brings: ClassVar = {"tf32": 1.1, "bf16_autocast": 1.2, "channels_last": 1.05}
    facts = replace(FACTS, loaders=(LoaderFacts(256, 2, False, False, 2),))


class Launching(Machine):
    """The vae of pytorch/examples on an H200: one worker, then many small launches."""

    start_s, life_s, compiles_s, warm_s, workers = 12.0, 14.0, 4.0, 1.0, 1
    between, within, uneven = 0.06, 0.02, 0.15
    computed_ms, loaded_ms = 2.6, 7.6
    brings: ClassVar = {
        "compile_cudagraphs": 1.22, "fused_optimizer": 1.15, "compile": 0.89, "bf16_autocast": 0.93,
    }  # fmt: skip
    facts = replace(FACTS, has_convolution=False, loaders=(LoaderFacts(256, 1, False, False, 2),))

    def supply_ms(self, workers):
        return {1: 7.6, 2: 4.8, 4: 2.4, 8: 1.9}.get(workers, 1.6)


class Unpacking(Machine):
    """A graph network on an H200: its loader alone is 3x as fast with workers, but unpacking what
    they send takes nearly as long, and runs differ by 18 %."""

    start_s, life_s, workers = 12.0, 25.0, 0
    between, uneven = 0.18, 0.0
    computed_ms = 7.0
    brings: ClassVar = {"fused_optimizer": 1.25, "bf16_autocast": 0.93}
    facts = replace(FACTS, has_convolution=False, loaders=(LoaderFacts(128, 0, False, False, 1),))

    def supply_ms(self, workers):
        return 10.0 if workers < 4 else 20.0 / min(workers, 8)

    def step_ms(self, settings):
        computed, _ = super().step_ms({**settings, CACHED: True})
        waits = 0.0 if CACHED in settings else 8.0 if settings.get("dataloader_workers") else 10.0
        return computed + waits, waits


class LongLives(LoaderBound):
    """The same with an evaluation of a minute after each epoch, however short that is."""

    life_s = 80.0


class Computing(Machine):
    """A script without a loader that starts in 10 s on a quiet GPU, and is compiled in 35 s."""

    start_s, life_s, warm_s = 10.0, 30.0, 8.0
    between, within = 0.005, 0.01
    computed_ms, loaded_ms = 100.0, 0.0
    brings: ClassVar = {
        "channels_last": 1.15, "bf16_autocast": 1.4, "compile": 1.2, "fused_optimizer": 1.04,
    }  # fmt: skip
    facts = replace(FACTS, loaders=())
    harmful: ClassVar = frozenset()
    """Knobs under which a life learns something else."""

    def life(self, request, shortening):
        found = super().life(request, shortening)
        names = {each.knob for each in request.specification.applications}
        return replace(found, losses=(1.5,) * 8) if names & self.harmful else found


class CostlyLayout(Computing):
    """The same, whose layout costs more than it brings where it is compiled."""

    brings: ClassVar = {"bf16_autocast": 1.4, "channels_last": 1.15, "compile": 1.3}

    def step_ms(self, settings):
        ms, waited_ms = super().step_ms(settings)
        both = {"compile", "channels_last"} <= settings.keys()
        return ms * (1.15 / 0.9 if both else 1.0), waited_ms


class LongSteps(Computing):
    """The same with steps of 0.4 s, whose screening takes longer."""

    computed_ms = 400.0


class NothingCompiles(Computing):
    """The same, whose compiled form is slower."""

    brings: ClassVar = {**Computing.brings, "compile": 0.9}


class Deceiving(Computing):
    """The same, where nothing of it is gained in fresh processes."""

    def live(self, request, live, wanted):
        self.brings = Computing.brings
        try:
            return super().live(request, live, wanted)
        finally:
            self.brings = {}

    brings: ClassVar = {}


@pytest.fixture
def tune(tmp_path):
    """Returns a function that runs a study of this many seconds on a machine."""
    with studies(tmp_path) as tuned:
        yield tuned


TUNED = {"dataloader_workers", "bf16_autocast", "channels_last"}


def test_ten_minutes_end_in_a_proof_of_what_matters(tune):
    machine = Machine("d")
    result, _ = tune(machine, 600.0)
    assert result.verdict is Verdict.FASTER
    assert result.settings.keys() >= TUNED
    assert result.speedup.pairs >= 4
    assert result.speedup.ci99_low < machine.gain(result.settings) < result.speedup.ci99_high
    assert 0.9 * 600 < machine.now_s <= 1.1 * 600
    fresh = [trial.phase for trial in result.trials]
    assert fresh[:3] == ["baseline", "baseline", "search"]
    assert {"search", "proof"} == set(fresh[3:])
    assert machine.lives == 3
    whole, fewer = re.findall(r"(\d+)m", result.untried["fused_optimizer"])
    assert int(fewer) < 0.8 * int(whole)
    assert "without compile_max_autotune" in result.untried["fused_optimizer"]
    # What was not measured alone is not said to be.
    origins = {each.knob: each.origin for each in result.contributions}
    assert origins["dataloader_workers"] is Origin.LOADER
    assert not any(origin.is_shown for origin in origins.values())


def test_the_loader_is_timed_from_the_scripts_own_workers_to_twice_what_is_needed(tune):
    machine = Machine()
    result, _ = tune(machine, 600.0)
    assert [each["dataloader_workers"] for each in machine.supplied] == [4, 8, 16]
    assert machine.spent["loader"] < 30.0
    fastest = min(each.batch_ms for each in result.supply.values)
    assert fastest <= result.supply.rest_ms / 2


def test_five_minutes_are_enough_where_runs_are_alike(tune):
    """What compiles is not begun, as it would take the time and tell nothing."""
    machine = Even("b")
    result, _ = tune(machine, 300.0)
    assert (result.verdict, result.settings) == (Verdict.FASTER, {"channels_last": True})
    assert result.speedup.ci99_low > 1.12
    assert machine.compiled_s == 0
    assert machine.began_s["proof"] < 100 and machine.began_s["rehearsal"] < 180
    assert machine.now_s <= 300


@pytest.mark.parametrize("seed", ["a", "b", "c"])
def test_where_the_host_decides_five_minutes_prove_what_launches_less(tune, seed):
    machine = LaunchBound(seed)
    result, said = tune(machine, 300.0)
    assert result.verdict in (Verdict.FASTER, Verdict.FASTER_UNVERIFIED)
    assert result.settings == {"compile_cudagraphs": "reduce-overhead"}
    assert "the GPU works for 1" in "".join(said)
    timed = [each.knob for each in result.screened if each.ratio is not None]
    assert not {"tf32", "bf16_autocast"} & set(timed)
    assert "no room for a profile" not in "".join(said)
    assert machine.now_s <= 300


@pytest.mark.parametrize(("seconds", "seed"), [(300.0, "b"), (300.0, "e"), (600.0, "d")])
def test_a_script_that_waits_for_its_loader_has_a_gain_proven_well_within_three_minutes(
    tune, seconds, seed
):
    """What the loader alone promises is proven before anything else is tried."""
    machine = LoaderBound(seed)
    result, said = tune(machine, seconds)
    (proven,) = [each for each in said if each.startswith("proven so far: ")]
    assert "faster (99 % interval" in proven and proven.endswith("dataloader_workers=16")
    assert machine.began_s["rehearsal"] < 165
    assert result.verdict is Verdict.FASTER
    assert result.settings == {"dataloader_workers": 16}
    assert machine.now_s <= seconds
    ran = {name for trial in result.trials for name in trial.settings}
    assert not ran & LoaderBound.brings.keys()  # nothing that computes faster could have helped
    assert "waits for its workers" in result.no_effect["tf32"]
    assert not [name for name in result.untried if name == "dataloader_workers"]


@pytest.mark.parametrize("seed", ["a", "b", "c"])
def test_a_proof_that_can_hardly_be_decided_leaves_its_time_to_what_else_there_is(tune, seed):
    machine = Unpacking(seed)
    result, _ = tune(machine, 395.0)
    phases = [trial.phase for trial in result.trials]
    assert phases[2 : 2 + 2 * LOOKS[0]] == ["proof"] * 2 * LOOKS[0]
    assert phases[2 + 2 * LOOKS[0]] == "search" and machine.spent["screening"] > 0
    assert result.verdict is Verdict.INCONCLUSIVE


def test_a_rehearsal_that_takes_half_of_the_time_has_it_where_the_proof_left_it(tune):
    machine = LongLives()
    result, _ = tune(machine, 450.0)
    assert (result.verdict, machine.lives) == (Verdict.FASTER, 3)
    assert machine.spent["rehearsal"] > 450 / 2
    assert machine.now_s <= 450


def test_time_without_room_for_a_proof_shows_what_more_of_it_is_worth(tune):
    machine = LoaderBound("b")
    result, said = tune(machine, 300.0)
    phases = [trial.phase for trial in result.trials]
    last = len(phases) - phases[::-1].index("proof")
    later = [trial.settings for trial in result.trials[last:]]
    assert len(later) >= 2 and machine.now_s > 300 - 20
    assert all(each["dataloader_workers"] == 16 for each in later)
    assert result.settings == {"dataloader_workers": 16}
    better = [name for name, why in result.untried.items() if "looked better" in why]
    assert len(better) == 1 and better[0] in {name for each in later for name in each}
    assert better[0] not in not_helpful(result)
    for name, why in result.untried.items():
        assert "had no room" not in why or re.search(r"--budget \d+m", why), name
    (looked,) = [each for each in said if "looked better in single runs, which is no proof" in each]
    assert f"{better[0]}=" in looked and "--budget " in looked


def test_what_more_workers_are_worth_is_foretold_from_the_loader_alone(tune):
    result, said = tune(LoaderBound(), 300.0)
    (each,) = [each for each in result.expectations if each.rule == "input_bound"]
    assert each.high_pct - each.low_pct < 20
    assert each.low_pct < each.measured_pct < each.high_pct
    told = [sentence for sentence in said if "(input_bound)" in sentence]
    assert len(told) == 1 and "worth 0 to" not in told[0]


ROOM = ("FASTER_BESIDE", "SLOWER_BESIDE", "CROWDED", "FASTER_REST", "SLOWER_REST")


@pytest.mark.parametrize("machine", [LoaderBound, Machine])
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_what_a_study_finds_rests_on_no_room_that_is_foretold(tune, machine, factor, monkeypatch):
    expected, _ = tune(machine(), 600.0)
    for name in ROOM:
        room = getattr(expectations, name) - 1.0
        monkeypatch.setattr(expectations, name, 1.0 + factor * room)
    result, _ = tune(machine(), 600.0)
    assert (result.verdict, result.settings) == (expected.verdict, expected.settings)


def test_more_is_tried_on_top_of_the_workers_where_there_is_time(tune):
    machine = LoaderBound()
    result, _ = tune(machine, 600.0)
    assert result.verdict is Verdict.FASTER
    assert result.settings["dataloader_workers"] == 16
    searched = [trial.settings for trial in result.trials if trial.phase == "search"]
    assert searched and all(each["dataloader_workers"] == 16 for each in searched)
    (each,) = [each for each in result.expectations if each.rule == "input_bound"]
    assert each.measured_pct is not None
    assert machine.now_s <= 600


def test_what_is_found_beside_what_is_proven_is_proven_beside_it(tune):
    """Runs of the unchanged script, which waits, would tell less of it."""
    machine = Launching("h")
    result, said = tune(machine, 600.0)
    assert result.verdict is Verdict.FASTER
    assert result.settings.keys() >= {"dataloader_workers", "compile_cudagraphs"}
    first, later = [each for each in said if each.startswith("proven so far: ")]
    assert first.endswith("with dataloader_workers=16")
    assert later.endswith(", beside dataloader_workers=16")
    proofs = [trial.settings for trial in result.trials if trial.phase == "proof"]
    assert proofs[-6:].count({"dataloader_workers": 16}) == proofs[-6:].count(result.settings) == 3
    assert result.speedup.ci99_low < machine.gain(result.settings) < result.speedup.ci99_high
    (both,) = [each for each in result.notes if each.startswith("proven in two steps: ")]
    ratios = [float(each) for each in re.findall(r"(\d\.\d\d)x \(99 %", both)]
    assert ratios[0] * ratios[1] == pytest.approx(result.speedup.ratio, rel=0.01)
    assert result.baseline.mean_step_ms > 2 * result.best.mean_step_ms


def test_ten_minutes_have_room_for_what_compiles_long(tune):
    machine = Even()
    result, _ = tune(machine, 600.0)
    assert result.verdict is Verdict.FASTER
    assert result.settings == {"channels_last": True, "compile": "default"}
    assert result.speedup.ci99_low > 1.65
    assert machine.now_s <= 600


def test_the_first_start_of_what_compiles_is_measured_with_empty_caches(tune):
    machine, before = Even(), dict(os.environ)
    result, _ = tune(machine, 900.0)
    assert "compile" in result.settings
    (cold,) = machine.cold_starts
    caches = [cold.environment[name] for name in CACHES]
    assert len(set(caches)) == len(CACHES) and not any(Path(each).exists() for each in caches)
    assert dict(os.environ) == before
    (note,) = (each for each in result.notes if each.startswith("the first step comes"))
    assert "after 83 s where nothing was compiled before" in note
    assert "(one start with empty caches); after 21 s with what earlier runs compiled" in note
    assert "9 s without the settings" in note
    assert machine.now_s <= 900


def test_without_room_for_it_the_first_start_is_said_to_be_unknown(tune):
    machine = Even()
    result, _ = tune(machine, 600.0)
    assert "compile" in result.settings
    told = [each for each in result.notes if "the first start with empty" in each]
    assert len(told) + len(machine.cold_starts) == 1
    assert machine.now_s <= 600


def test_where_nothing_compiles_no_first_start_is_measured(tune):
    machine = Even("b")
    result, _ = tune(machine, 300.0)
    assert result.verdict is Verdict.FASTER
    assert not machine.cold_starts and "caches" not in str(result.notes)


@pytest.mark.parametrize(("seconds", "verdict"), [(600.0, Verdict.FASTER), (300.0, None)])
def test_a_large_gain_is_proven_where_runs_differ_by_a_quarter(tune, seconds, verdict):
    machine = Uneven("3")
    result, _ = tune(machine, seconds)
    assert result.verdict is (verdict or Verdict.FASTER_UNVERIFIED)
    assert result.settings.keys() >= TUNED
    assert result.speedup.ci99_low > 1.0
    assert machine.now_s <= seconds


def test_of_five_minutes_a_proof_is_left_and_no_rehearsal(tune):
    machine = Machine()
    result, _ = tune(machine, 300.0)
    assert result.speedup is not None
    assert (machine.lives, result.rehearsal) == (0, None)
    assert machine.now_s <= 1.1 * 300
    if result.verdict is not Verdict.FASTER_UNVERIFIED:
        assert result.speedup.ci99_low <= 1.0


def test_what_starts_slowly_is_not_compiled_where_a_rehearsal_would_have_no_room(tune):
    """In a screening it took the time of the lives, and was not proven in the end."""
    machine = Machine("d")
    result, _ = tune(machine, 450.0)
    assert (result.verdict, machine.lives) == (Verdict.FASTER, 3)
    assert result.settings.keys() >= TUNED and "compile" not in result.settings
    assert machine.now_s <= 450


@pytest.mark.parametrize(("seconds", "seed"), [(360.0, "b"), (480.0, "a"), (570.0, "b")])
def test_between_them_what_the_screening_found_is_proven(tune, seconds, seed):
    machine = Machine(seed)
    result, _ = tune(machine, seconds)
    assert result.verdict in (Verdict.FASTER, Verdict.FASTER_UNVERIFIED)
    assert result.settings.keys() >= TUNED
    assert machine.now_s <= 1.1 * seconds


CHEAP = {"bf16_autocast", "channels_last", "fused_optimizer"}


def first_compiled(result):
    """The place of the first trial that compiles."""
    return next(n for n, trial in enumerate(result.trials) if "compile" in trial.settings)


@pytest.mark.parametrize("seed", ["a", "b"])
def test_what_is_cheap_is_proven_before_anything_is_compiled_which_is_proven_then(tune, seed):
    machine = Computing(seed)
    result, said = tune(machine, 600.0)
    first, *_ = [each for each in said if each.startswith("proven so far: ")]
    assert "bf16_autocast=True" in first and "compile" not in first
    looked = [trial.phase for trial in result.trials[: first_compiled(result)]]
    assert looked == ["baseline"] * 2 + ["proof"] * 2 * LOOKS[0]
    assert result.verdict is Verdict.FASTER
    assert result.settings.keys() == CHEAP | {"compile"}
    assert result.speedup.ci99_low > 1.8
    assert machine.began_s["proof"] + 90 < 180  # six runs of 15 s
    assert machine.lives == 3  # what was looked at first has none of its own
    assert machine.now_s <= 1.1 * 600


def test_where_nothing_more_is_found_what_was_proven_first_is_rehearsed_and_kept(tune):
    machine = NothingCompiles()
    result, _ = tune(machine, 600.0)
    assert (result.verdict, result.speedup.pairs, machine.lives) == (Verdict.FASTER, LOOKS[0], 3)
    assert result.settings.keys() == CHEAP
    assert result.speedup.ci99_low < machine.gain(result.settings) < result.speedup.ci99_high
    assert "compile" in {each.knob for each in result.screened}
    proofs = [trial for trial in result.trials if trial.phase == "proof"]
    assert len(proofs) == 2 * LOOKS[0]


@pytest.mark.parametrize("seed", ["a", "n9"])
def test_a_layout_that_costs_under_compile_is_left_out_though_it_was_proven_first(tune, seed):
    machine = CostlyLayout(seed)
    result, said = tune(machine, 600.0)
    first, *_ = [each for each in said if each.startswith("proven so far: ")]
    assert "channels_last" in first
    assert result.verdict is Verdict.FASTER
    assert result.settings == {"bf16_autocast": True, "compile": "default"}
    assert machine.now_s <= 1.1 * 600


def test_what_was_proven_first_gives_way_only_to_what_is_shown_to_be_better(tune):
    class Equal(Computing):
        """What compiles brings 2 % where runs differ by 2 %, and is tried last."""

        start_s, life_s, between = 5.0, 10.0, 0.02
        brings: ClassVar = {"channels_last": 1.3, "compile_max_autotune": 1.02}

    result, said = tune(Equal("b"), 1264.0, only=frozenset(Equal.brings))
    assert [trial.phase for trial in result.trials][2] == "proof"
    assert any("looked better than channels_last=True, which was not shown" in s for s in said)
    assert result.settings == {"channels_last": True}


def test_what_would_be_proven_first_too_late_is_not(tune):
    machine = LongSteps()
    result, _ = tune(machine, 600.0)
    assert result.trials[2].settings.keys() == result.settings.keys() == CHEAP | {"compile"}


@pytest.mark.parametrize("others", ["", "others used 1.7 of 2 CPU cores, and none was idle"])
def test_a_gain_that_was_proven_beside_others_is_told_with_them(tune, others):
    class Shared(LoaderBound):
        def run(self, *arguments, **more):
            return replace(super().run(*arguments, **more), disturbance=others)

    result, _ = tune(Shared(), 600.0)
    assert result.speedup.ci99_low > 1.0
    told = [note for note in result.notes if "where nothing else runs was not shown" in note]
    assert len(told) == bool(others)
    assert not told or re.match(r"in (\d+) of \1 runs of proofs others used 1.7 of 2", told[0])


def test_runs_that_show_nothing_beside_others_are_told_with_them(tune):
    class Shared(Computing):
        between = 0.3

        def run(self, *arguments, **more):
            others = "others used 1.7 of 2 CPU cores" if len(self.spent) > 2 else ""
            return replace(super().run(*arguments, **more), disturbance=others)

    result, _ = tune(Shared("a"), 600.0)
    assert result.verdict is Verdict.INCONCLUSIVE and result.speedup is not None
    told = [note for note in result.notes if "they may differ less" in note]
    assert re.match(r"in \d+ of \d+ runs of proofs others used 1.7 of 2 CPU cores: ", *told)


def test_what_does_harm_is_not_kept_because_it_was_proven_first(tune):
    machine = Computing()
    machine.harmful = {"bf16_autocast"}
    result, said = tune(machine, 900.0)
    assert any(each.startswith("proven so far: ") and "bf16" in each for each in said)
    assert "bf16_autocast" in {each.knob for each in result.dropped}
    assert "bf16_autocast" not in result.settings


def test_what_only_one_process_shows_is_not_proven_first(tune):
    machine = Deceiving()
    result, said = tune(machine, 600.0)
    assert result.trials[2].phase == "proof" and result.trials[2].settings.keys() == CHEAP
    assert not [each for each in said if each.startswith("proven so far: ")]
    assert result.verdict in (Verdict.INCONCLUSIVE, Verdict.NO_GAIN)
    assert result.plan is None


@pytest.mark.parametrize(
    ("machine", "seconds"), [(Computing("a"), 300.0), (Machine("a"), 600.0), (Uneven("0"), 600.0)]
)
def test_where_a_first_look_takes_much_or_shows_little_all_is_screened_before(
    tune, machine, seconds
):
    """Little time, slow starts, runs that differ."""
    result, _ = tune(machine, seconds)
    assert result.trials[2].settings.keys() == result.settings.keys()


def test_where_the_script_cannot_be_screened_again_what_the_first_found_is_kept(tune):
    class Once(Computing):
        processes = 0

        def live(self, request, live, wanted):
            self.processes += 1
            if self.processes > 1:
                raise ScriptError("its steps cannot be timed any more")
            return super().live(request, live, wanted)

    machine = Once()
    result, _ = tune(machine, 600.0)
    assert machine.processes == 2
    assert any("cannot be timed any more" in each for each in result.notes)
    assert result.verdict is Verdict.FASTER and result.settings.keys() >= CHEAP
    assert "channels_last" in {each.knob for each in result.screened}
