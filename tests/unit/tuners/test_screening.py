"""Live screening: what pays is found, what does not is told from it, and time is kept."""

import math
import random
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from gpuadvisor.domain.screening import ScreenedAs
from gpuadvisor.tuners.screening.comparing import MOST_PAIRS, MOST_TOGETHER
from gpuadvisor.tuners.screening.course import FIRST_PAIRS
from gpuadvisor.tuners.screening.factorial import Factorial, factors_of
from gpuadvisor.tuners.screening.knowledge import LEAST_PAIRS
from gpuadvisor.tuners.space import Space
from tests import simulation
from tests.benchmark_files import loaded
from tests.live_simulation import LiveScript, screened
from tests.simulation import Switch, multiplied, space_of


@pytest.fixture(scope="module")
def errors():
    return loaded("screening_errors")


def quiet(seed=1, between=0.002):
    return simulation.gaussian(random.Random(seed), between, 0.0)


def states(found):
    return {f"{each.knob}={each.value}": str(each.state) for each in found.values}


# Steps in ms of a convolutional network, measured on an H200: channels_last pays alone, and costs a
# fifth under compile.
CONVOLUTIONAL = {
    frozenset(): 80.5,
    frozenset({"channels_last"}): 70.9,
    frozenset({"compile"}): 46.3,
    frozenset({"channels_last", "compile"}): 55.8,
}


def convolutional(settings):
    return CONVOLUTIONAL[frozenset(settings) - {"tf32", "fused"}]


def compiles(settings, takes_s=25.0):
    return takes_s if "compile" in settings else 0.0


def test_what_pays_alone_and_costs_under_compile_is_taken_out():
    script = LiveScript(convolutional, quiet(), compiles)
    space = space_of(map(Switch, ("tf32", "channels_last", "fused", "compile")))
    found = screened(script, space, costly={"compile": 40.0})
    assert found.settings == {"compile": True}
    assert found.ratio.low < 80.5 / 46.3 < found.ratio.high
    assert states(found) == {
        "tf32=True": "worthless",
        "channels_last=True": "worthless",
        "fused=True": "worthless",
        "compile=True": "kept",
    }
    layout = found.values[1]
    assert layout.beside == {"compile": True}
    assert layout.ratio.high < 0.9


def test_what_pays_only_beside_others_is_tried_again_there():
    def model(settings):
        if "bf16" not in settings:
            return 110.0 if "channels_last" in settings else 100.0
        return 40.0 if "channels_last" in settings else 50.0

    found = screened(LiveScript(model, quiet()), space_of(map(Switch, ("channels_last", "bf16"))))
    assert dict(found.settings) == {"bf16": True, "channels_last": True}
    brought = {each.knob: each.ratio for each in found.contributions}
    assert brought["channels_last"] == pytest.approx(1.25, abs=0.01)
    assert brought["bf16"] == pytest.approx(2.75, abs=0.02)
    assert found.ratio.ratio == pytest.approx(2.5, abs=0.02)


def test_of_values_that_exclude_one_another_the_best_stays():
    knobs = (
        Switch("bf16", excludes={"fp16"}),
        Switch("fp16", excludes={"bf16"}),
        Switch("attention", ("flash", "cudnn")),
    )

    def model(settings):
        halves = {"bf16": 2.0, "fp16": 2.2}
        attention = {"flash": 1.03, "cudnn": 1.08}
        gain = math.prod(halves.get(name, 1.0) for name in settings)
        return 100 / gain / attention.get(settings.get("attention"), 1.0)

    found = screened(LiveScript(model, quiet()), space_of(knobs))
    assert dict(found.settings) == {"fp16": True, "attention": "cudnn"}
    assert states(found)["bf16=True"] == "worthless"
    assert states(found)["attention=flash"] == "worthless"


def test_a_knob_that_needs_another_is_tried_beside_it():
    knobs = (Switch("tail", needs="head"), Switch("head"))
    found = screened(LiveScript(multiplied({"head": 1.2, "tail": 1.1}), quiet()), space_of(knobs))
    assert dict(found.settings) == {"head": True, "tail": True}
    alone = screened(LiveScript(multiplied({}), quiet()), space_of(knobs))
    assert alone.values[0].state is ScreenedAs.UNRESOLVED
    assert alone.values[0].why == "nothing led to it"


def test_the_costly_form_of_what_does_not_pay_is_spared():
    space = space_of(map(Switch, ("compile", "max_autotune")))
    refined = replace(space["max_autotune"], refines="compile")
    space = Space((space["compile"], refined))
    script = LiveScript(multiplied({"compile": 0.9, "max_autotune": 1.5}), quiet())
    found = screened(script, space, costly={"compile": 40.0, "max_autotune": 300.0})
    assert states(found) == {"compile=True": "worthless", "max_autotune=True": "unresolved"}
    assert not any("max_autotune" in block.settings for block in script.blocks)


def unlikely(space, *names):
    return Space(tuple(replace(each, unlikely=each.name in names) for each in space.parameters))


def test_where_the_host_decides_what_compiles_comes_first_and_what_is_unlikely_last():
    """400 tiny layers on an H200: TF32 undecided twice, and no time for what launches less."""
    gains = {"bf16": 0.53, "fused": 1.05, "graphs": 3.0, "compile": 1.24}
    knobs = [Switch("tf32"), Switch("bf16"), Switch("fused")]
    knobs += [Switch("graphs", excludes={"compile"}), Switch("compile", excludes={"graphs"})]
    script = LiveScript(multiplied(gains, 26.0), quiet(1, 0.1), start_s=1.0, limit_s=60.0)
    slow = ({"graphs"}, {"compile"})
    script.compile_s = lambda settings: 36.0 if settings.keys() in slow else 0.0
    costly = {"graphs": 40.0, "compile": 40.0}
    space = unlikely(space_of(knobs), "tf32", "bf16")
    found = screened(script, space, costly=costly, more_s=40.0, harmless={"fused"})
    assert found.settings["graphs"] is True
    timed = [each.knob for each in found.values if each.ratio]
    assert "fused" in timed and not {"tf32", "bf16", "compile"} & set(timed)


def test_where_cheap_values_bring_enough_what_compiles_is_put_off_and_taken_up_on_top_of_them():
    """What costs under compile is taken out there, though it was the best before."""
    space = space_of(map(Switch, ("tf32", "channels_last", "fused", "compile")))
    options = {"costly": {"compile": 40.0}, "early_s": lambda gain, _: 60.0 * (gain >= 1.1)}
    script = LiveScript(convolutional, quiet(), compiles)
    first = screened(script, space, **options)
    assert (first.settings, first.put_off) == ({"channels_last": True}, True)
    assert first.ratio.low < 80.5 / 70.9 < first.ratio.high
    assert not any("compile" in block.settings for block in script.blocks)
    left = space_of(map(Switch, ("channels_last", "compile")))
    later = screened(
        LiveScript(convolutional, quiet(2), compiles),
        left,
        costly={"compile": 40.0},
        stands_on=first.settings,
    )
    assert (later.settings, later.put_off) == ({"compile": True}, False)


def test_where_they_bring_less_nothing_is_put_off():
    space = space_of(map(Switch, ("tf32", "channels_last", "fused", "compile")))
    script = LiveScript(convolutional, quiet(), compiles)
    options = {"costly": {"compile": 40.0}, "early_s": lambda gain, _: 60.0 * (gain >= 1.5)}
    found = screened(script, space, **options)
    assert (found.settings, found.put_off) == ({"compile": True}, False)


@pytest.mark.parametrize("late", [(), ("tf32", "bf16")])
def test_the_rest_is_put_off_once_what_compiles_brings_enough(late):
    """Cheap values that are not decided soon have no more pairs before that."""
    knobs = [Switch("tf32"), Switch("bf16"), Switch("fused")]
    knobs += [Switch("graphs", excludes={"compile"}), Switch("compile", excludes={"graphs"})]
    space = unlikely(space_of(knobs), *late)
    gains = multiplied({"graphs": 2.0, "compile": 1.5, "fused": 1.04}, 40.0)
    script = LiveScript(gains, quiet(1, 0.02), compiles, limit_s=120.0)
    script.compile_s = lambda settings: 30.0 * bool({"graphs", "compile"} & settings.keys())
    options = {"costly": {"graphs": 40.0, "compile": 40.0}, "more_s": 120.0, "harmless": {"fused"}}

    def early_s(gain, settings):
        return 60.0 * (gain >= 1.1) if {"graphs", "compile"} & settings.keys() else 0.0

    first = screened(script, space, early_s=early_s, **options)
    assert (first.settings["graphs"], first.put_off) == (True, True)
    assert not any("compile" in block.settings for block in script.blocks)
    pairs = [each.ratio.pairs for each in first.values if each.knob != "graphs" and each.ratio]
    assert max(pairs, default=0) <= FIRST_PAIRS + LEAST_PAIRS
    again = LiveScript(gains, quiet(2, 0.02), compiles, limit_s=120.0)
    later = screened(again, space, stands_on=first.settings, **options)
    assert (later.settings["graphs"], later.put_off) == (True, False)
    assert any("fused" in block.settings for block in again.blocks)


def test_what_is_to_be_proven_early_is_not_kept_waiting_for_what_a_few_steps_do_not_decide():
    """Blocks that differ by 2 % decide nothing of 1 % in 20 pairs."""
    script = LiveScript(multiplied({"bf16": 1.6}, 100.0), quiet(1, 0.02), compiles)
    space = space_of(map(Switch, ("tf32", "fused", "cudnn", "bf16", "compile")))

    def early_s(gain, settings):
        return (gain >= 1.1) * max(0.0, 40.0 - script.now_s)

    found = screened(script, space, costly={"compile": 40.0}, early_s=early_s)
    assert found.put_off and found.settings == {"bf16": True}
    assert script.now_s < 40.0 + 3 * LEAST_PAIRS
    undecided = [each for each in found.values if each.state is ScreenedAs.UNRESOLVED]
    assert {each.knob for each in undecided} >= {"compile", "tf32"}


@pytest.mark.parametrize(("alone", "beside"), [(1.3, 1.02), (1.2, 0.94)])
def test_what_compiles_is_compared_without_the_layout_before_it_is_compiled_in_other_ways(
    alone, beside
):
    """Whether it pays beside the layout or not; there is no time to compile three times."""
    steps = {
        frozenset(): 100.0,
        frozenset({"layout"}): 100 / 1.05,
        frozenset({"layout", "compile"}): 100 / 1.05 / beside,
        frozenset({"compile"}): 100 / alone,
    }

    def model(settings):
        names = {"compile" if name == "graphs" else name for name in settings}
        return steps[frozenset(names - {"bf16"})] / (1.4 if "bf16" in names else 1.0)

    script = LiveScript(model, quiet(), limit_s=165.0)
    script.compile_s = lambda s: 35.0 * bool({"compile", "graphs"} & s.keys())
    space = space_of(
        [
            *map(Switch, ("bf16", "layout")),
            Switch("compile", excludes={"graphs"}),
            Switch("graphs", excludes={"compile"}),
        ]
    )
    costly = {"compile": 40.0, "graphs": 40.0}
    standing = {"bf16": True, "layout": True}
    found = screened(
        script, space, costly=costly, stands_on=standing, brought={"bf16": 1.4, "layout": 1.05}
    )
    assert found.settings == {"bf16": True, "compile": True}


def test_no_value_is_compared_again_before_each_was_once():
    """What took the time of the others had been undecided."""
    script = LiveScript(multiplied({"b": 1.3}, 26.0), quiet(3, 0.2), start_s=1.0, limit_s=24.0)
    told = []
    screened(script, space_of(map(Switch, "ab")), told=lambda each: told.append(each.knob))
    assert set(told[:2]) == {"a", "b"}


def test_beside_what_is_harmless_nothing_compiles_anew():
    model = multiplied({"compile": 2.0, "fused": 1.1})
    script = LiveScript(model, quiet(), limit_s=75.0)
    script.compile_s = lambda settings: 30.0 if settings == {"compile": True} else 0.0
    told = []
    found = screened(
        script, unlikely(space_of(map(Switch, ("fused", "compile", "x"))), "x"),
        costly={"compile": 20.0}, harmless={"fused"}, compiled=lambda s, t: told.append((s, t)),
    )  # fmt: skip
    assert dict(found.settings) == {"compile": True, "fused": True}
    ((settings, seconds),) = told
    assert settings == {"compile": True} and seconds > 30


def test_what_finds_nothing_to_change_is_not_timed():
    script = LiveScript(multiplied({"a": 1.1}), quiet(), compiles, idle=frozenset("b"))
    script.idle |= {"compile"}
    found = screened(
        script, space_of(map(Switch, ("a", "b", "c", "compile"))), costly={"compile": 40}
    )
    assert states(found)["b=True"] == states(found)["compile=True"] == "no_effect"
    assert found.values[1].why == "it found nothing to change in this script"
    assert sum("b" in block.settings for block in script.blocks) == 1
    assert sum("compile" in block.settings for block in script.blocks) == 1


class TestFailures:
    def test_a_value_that_ends_the_process_is_failed_and_the_others_go_on(self):
        def model(settings):
            if "fused" in settings:
                return "the process ended with status 1: RuntimeError: no fused kernel"
            return 80.0 if "tf32" in settings else 100.0

        script = LiveScript(model, quiet())
        found = screened(script, space_of(map(Switch, ("fused", "tf32"))))
        assert states(found) == {"fused=True": "failed", "tf32=True": "kept"}
        assert "no fused kernel" in found.values[0].why
        assert script.starts == 2
        assert sum("fused" in block.settings for block in script.blocks) == 1

    def test_one_that_fails_beside_others_only_leaves_those(self):
        def model(settings):
            return "out of memory" if len(settings) > 1 else 100 / (1 + 0.1 * len(settings))

        found = screened(LiveScript(model, quiet()), space_of(map(Switch, "ab")))
        assert len(found.settings) == 1
        assert sorted(states(found).values()) == ["failed", "kept"]

    def test_where_the_unchanged_script_ends_so_does_the_screening(self):
        found = screened(LiveScript(lambda settings: "it has no steps"), space_of([Switch("a")]))
        assert (found.why, found.settings, found.step_ms) == ("it has no steps", {}, None)
        assert states(found) == {"a=True": "unresolved"}

    def test_also_where_it_ends_later(self):
        script, model = LiveScript(lambda settings: "", quiet()), multiplied({"a": 1.3})
        script.model = lambda settings: model(settings) if len(script.blocks) < 30 else "gone"
        found = screened(script, space_of(map(Switch, "abcdef")))
        assert found.why == "gone"
        assert Counter(states(found).values()) == {"kept": 1, "unresolved": 5}
        assert found.values[1].why == "gone"

    def test_what_fails_together_is_tried_one_by_one(self):
        def model(settings):
            if {"a", "b"} <= settings.keys():
                return "out of memory"
            return multiplied({"a": 1.05, "c": 1.08})(settings)

        found = screened(LiveScript(model, quiet()), space_of(map(Switch, "abcd")))
        assert states(found) == {
            "a=True": "kept",
            "b=True": "failed",
            "c=True": "kept",
            "d=True": "worthless",
        }


class TestTime:
    def screened(self, limit_s, between=0.002, **options):
        script = LiveScript(convolutional, quiet(1, between), compiles, limit_s=limit_s)
        space = space_of(map(Switch, ("tf32", "channels_last", "fused", "compile")))
        return screened(script, space, costly={"compile": 40.0}, **options), script

    @pytest.mark.parametrize("limit_s", [14, 20, 35, 60, 90, 150])
    def test_it_is_kept(self, limit_s):
        found, script = self.screened(limit_s)
        assert script.now_s <= limit_s
        for each in found.values:
            assert (each.state is ScreenedAs.UNRESOLVED) == bool(each.why)

    def test_what_it_had_none_for_is_told(self):
        found, _ = self.screened(60)
        assert states(found)["compile=True"] == "unresolved"
        assert found.values[-1].why == "no time was left for it"
        assert found.settings == {"channels_last": True}

    def test_what_compiles_may_take_more(self):
        """130 s hold the cheap knobs, compile on top of channels_last, and none without it."""
        found, _ = self.screened(60)
        assert found.settings == {"channels_last": True}
        found, script = self.screened(60, more_s=100)
        assert found.settings == {"compile": True}
        assert found.ratio.low > 1.7
        assert script.now_s <= 160

    def test_a_block_may_take_ten_times_as_long_and_three_times_what_compiling_takes(self):
        _, script = self.screened(math.inf)
        most = {("compile" in block.settings): block.most_s for block in script.blocks[3:]}
        assert most == {False: 20.0, True: 140.0}

    def test_only_what_compiles_may(self):
        script = LiveScript(multiplied({}), quiet(1, 0.02), limit_s=60)
        screened(script, space_of(map(Switch, "abcdef")), more_s=100)
        assert script.now_s <= 60

    def test_what_brought_much_is_not_compiled_without(self):
        def model(settings):
            return multiplied({"bf16": 2.0, "layout": 1.1, "compile": 1.3})(settings)

        space = space_of(map(Switch, ("bf16", "layout", "compile")))
        script = LiveScript(model, quiet(), compiles)
        found = screened(script, space, costly={"compile": 40.0})
        assert set(found.settings) == {"bf16", "layout", "compile"}
        compiled = {frozenset(b.settings) for b in script.blocks if "compile" in b.settings}
        assert compiled == {frozenset(found.settings), frozenset({"bf16", "compile"})}
        assert {each.knob for each in found.contributions} == {"layout", "compile"}

    def test_what_changed_nothing_is_not_compiled_again(self):
        script = LiveScript(multiplied({"compile": 1.5}), quiet(), compiles)
        found = screened(script, space_of(map(Switch, ("tf32", "compile"))), costly={"compile": 40})
        assert states(found) == {"tf32=True": "worthless", "compile=True": "kept"}
        assert not any(len(block.settings) > 1 for block in script.blocks)

    def test_a_combination_is_compared_with_the_unchanged_script_before_it_ends(self):
        for limit_s in range(60, 90, 3):
            script = LiveScript(multiplied({"a": 1.2, "b": 1.2}), quiet(), limit_s=limit_s)
            found = screened(script, space_of(map(Switch, "abcd")))
            assert found.ratio is not None

    def test_no_more_pairs_than_it_takes(self):
        found = screened(LiveScript(multiplied({"a": 1.1}), quiet()), space_of([Switch("a")]))
        assert found.values[0].ratio.pairs == LEAST_PAIRS
        noisy = screened(LiveScript(multiplied({}), quiet(2, 0.05)), space_of([Switch("a")]))
        assert noisy.values[0].ratio.pairs == MOST_PAIRS
        assert noisy.values[0].state is ScreenedAs.UNRESOLVED
        assert noisy.values[0].why == "16 pairs of blocks"
        many = screened(LiveScript(multiplied({}), quiet(2, 0.05)), space_of(map(Switch, "abc")))
        assert {each.ratio.pairs for each in many.values} == {MOST_TOGETHER}
        assert many.values[0].why == "96 pairs of blocks"

    @pytest.mark.parametrize("between", ["0.2", "0.5"])
    def test_six_knobs_of_a_step_of_100_ms_within_a_minute(self, errors, between):
        rates = errors.rates(errors.QUIET[f"gaussian, {between} % between blocks"], 30)
        assert rates.minute == 1
        assert rates.found == 1


def test_pairs_come_in_random_order_and_blocks_in_random_lengths():
    script = LiveScript(multiplied({}), quiet(1, 0.05))
    screened(script, space_of([Switch("a")]), "1")
    blocks = script.blocks[4:]  # the unchanged script thrice, and settling
    firsts = [bool(block.settings) for block in blocks[::2]]
    assert len(firsts) == MOST_PAIRS
    assert 3 <= sum(firsts) <= 13
    assert {
        bool(a.settings) != bool(b.settings) for a, b in zip(blocks[::2], blocks[1::2], strict=True)
    } == {True}
    assert len({block.seconds for block in blocks}) == len(blocks)
    assert 0.3 < min(b.seconds for b in blocks) < max(b.seconds for b in blocks) < 0.7


def test_each_comparison_is_told_as_it_ends():
    heard = []
    space = space_of(map(Switch, "ab"))
    screened(LiveScript(multiplied({"a": 1.2}), quiet()), space, told=heard.append)
    assert [(each.knob, str(each.state)) for each in heard[:2]] == [
        ("a", "gains"),
        ("b", "worthless"),
    ]
    assert heard[0].ratio.ratio == pytest.approx(1.2, abs=0.01)
    assert 5 < heard[0].seconds < 10


class TestFactorial:
    """Values that are turned in the same pairs of blocks."""

    KEYS = tuple((name, True) for name in "abcdef")

    def found(self, model, pairs=20, keys=KEYS, slower=1.0):
        """Time pairs of a script without noise, whose second block is slower by a factor."""
        factorial = Factorial([[key] for key in keys], "seed")
        for _ in range(pairs):
            turned = factorial.next()
            first, second = (model(dict(side)) for side in (turned.first, turned.second))
            factorial.add(turned, first, slower * second)
        return {key[0]: ratio.ratio for key, ratio in factorial.ratios().items()}

    def test_each_is_told_from_the_others(self):
        gains = {"a": 1.3, "b": 0.8, "c": 1.02, "e": 1.1}
        found = self.found(multiplied(gains))
        assert found == pytest.approx({**gains, "d": 1.0, "f": 1.0})

    def test_a_job_in_step_with_the_pairs_is_none_of_them(self):
        assert self.found(multiplied({"a": 1.1}), slower=1.5)["a"] == pytest.approx(1.1)

    def test_what_two_do_only_together_is_split_between_them_and_reaches_no_other(self):
        def model(settings):
            return 80.0 if {"a", "b"} <= settings.keys() else 100.0

        found = self.found(model)
        assert found["a"] == found["b"] == pytest.approx(math.sqrt(1.25))
        assert all(found[name] == pytest.approx(1.0) for name in "cdef")

    def test_every_value_is_turned_as_often_in_either_block(self):
        factorial = Factorial([[key] for key in self.KEYS], "seed")
        drawn = [factorial.next() for _ in range(8)]
        for key in self.KEYS:
            assert sum(key in each.first for each in drawn) == 4
            assert sum(key in each.second for each in drawn) == 4

    def test_values_that_exclude_one_another_are_never_on_together(self):
        space = space_of(
            (
                Switch("bf16", excludes={"fp16"}),
                Switch("fp16"),
                Switch("attention", ("flash", "cudnn")),
                Switch("other"),
            )
        )
        keys = [(p.name, value) for p in space.parameters for value in p.values]
        groups = factors_of(space, keys)
        assert [len(group) for group in groups] == [2, 2, 1]
        factorial = Factorial(groups, "seed")
        seen = set()
        for _ in range(40):
            turned = factorial.next()
            seen |= {*turned.first, *turned.second}
            for side in (turned.first, turned.second):
                assert space.allows(dict(side))
                assert len(dict(side)) == len(side)
        assert seen == set(keys)


@pytest.mark.parametrize(
    "noise",
    [
        "recorded runs",
        "drift, 50 % over 40 runs",
        "bimodal, half of runs 20 % slower",
        "throttling, 5 % for some runs",
        "heavy tails (t, 2 degrees)",
        "neighbour, 2.4 s",
        "neighbour, 10.0 s",
    ],
)
def test_noise_is_taken_neither_for_a_gain_nor_for_its_absence(errors, noise):
    """At most 1 in 10 is asked for; 2.5 in 100 were seen in 1000 studies of the worst of these."""
    found = errors.rates(errors.ALL[noise], 25)
    assert found.false_gain <= 0.05
    assert found.missed <= 0.05
    assert found.outside <= 0.05


def test_drift_costs_no_power(errors):
    found = errors.rates(partial(simulation.drifting, total=0.05, runs=75), 20)
    assert found.found == 1
