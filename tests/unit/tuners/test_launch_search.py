"""The search over launches of a script that is only simulated."""

from __future__ import annotations

from collections import Counter

import pytest

from gpuadvisor.domain.inquiry import Ended
from gpuadvisor.tuners.kernels import launch_points, launch_search
from gpuadvisor.tuners.kernels.launch_points import values_of
from gpuadvisor.tuners.kernels.launch_search import LaunchTuning
from gpuadvisor.tuners.knobs._triton.precise import IMPRECISE, ROUNDED
from gpuadvisor.tuners.knobs._triton.search import MOST_LAUNCHES

STEP_MS = 10.0


class Launch:
    """A launch whose time is known for all that it may have."""

    def __init__(
        self, name, time_ms, launches=1.0, wrong=lambda point: False, parameters=None, **more
    ):
        self.parameters = parameters or {"BLOCK": 256, "num_warps": 4}
        self.time_ms, self.wrong = time_ms, wrong
        self.fixed = more.pop("fixed", {})
        self.judged_wrong = more.pop("judged_wrong", lambda point: "")
        self.note, self.held = more.pop("note", ""), more.pop("held", [])
        self.in_place_ms = more.pop("in_place_ms", time_ms)
        self.kills = more.pop("kills", lambda point: False)
        self.refused, self.lost = more.pop("refused", ""), more.pop("lost", "")
        own = time_ms(self.parameters)
        self.told = {
            "kernel": name,
            "text": f"train.{name}@00000000(x: float32[8], n: 8) -> ",
            "why_not": "",
            "share": more.pop("share", launches * own / STEP_MS),
            "ms": launches * own,
            "launches": launches,
            "free": [],
            **more,
        }


class SimulatedScript:
    """Answers as a script does whose launches take as long as is known."""

    left_s = 1000.0

    def __init__(self, *launches, at_once=1, **seen):
        self.launches = launches
        self.at_once, self.compiled = at_once, []
        self.seen = {"unable": "", "captured": [], "compiled": [], "bare": [], **seen}
        self.starts, self.measured = 0, []
        self.open = None

    def begin(self):
        self.starts += 1
        return {"step_ms": STEP_MS, "entries": len(self.launches), **self.seen}

    def tell(self, order):
        assert order == {"do": "close"}
        assert self.open is not None
        self.open = None

    def ask(self, order, limit_s):
        return getattr(self, f"_{order['do']}")(order)

    def _entry(self, order):
        return self.launches[order["entry"]].told

    def _open(self, order):
        launch = self.launches[order["entry"]]
        if launch.refused:
            return {"refused": launch.refused}
        if launch.lost:
            return {"lost": launch.lost}
        self.open = launch
        told = {"parameters": launch.parameters, "fixed": launch.fixed, "held": launch.held}
        return {**told, "at_once": self.at_once}

    def _compile(self, order):
        assert 0 < len(order["points"]) <= self.at_once
        self.compiled.append(order["points"])
        return {"compiled": len(order["points"])}

    def _measure(self, order):
        launch, point = self.open, order["point"]
        self.measured.append((launch.told["kernel"], dict(point)))
        if launch.kills(point):
            self.open = None
            raise Ended("signal SIGSEGV")
        if launch.wrong(point):
            said = launch.wrong(point)
            reason = said if isinstance(said, str) else "8 of 8 elements differ"
            return {"state": "wrong", "reason": reason}
        if order["judge"] and (reason := launch.judged_wrong(point)):
            return {"state": "wrong", "reason": reason}
        times = {
            "times_ms": [launch.time_ms(point)],
            "default_ms": [launch.time_ms(launch.parameters)],
        }
        return {"state": "complete", "reason": launch.note, **times}

    def _compare(self, order):
        text = order["value"]
        launch = next(each for each in self.launches if text.startswith(each.told["text"]))
        pairs = (pair.split(": ") for pair in text.removeprefix(launch.told["text"]).split(", "))
        point = {name: int(value) for name, value in pairs}
        return {"ms": [[launch.in_place_ms(launch.parameters), launch.in_place_ms(point)]]}


def wants_large_blocks(point):
    return 2.0 * 256 / point["BLOCK"] + 0.1 * abs(point["num_warps"] - 8)


def of_one_time(point):
    return 1.0


def test_the_best_of_each_launch_is_one_line():
    script = SimulatedScript(
        Launch("scale", wants_large_blocks), Launch("total", wants_large_blocks, 0.5)
    )
    found = LaunchTuning(script).run()
    assert found.value.splitlines() == [
        "train.scale@00000000(x: float32[8], n: 8) -> BLOCK: 1024, num_warps: 8",
        "train.total@00000000(x: float32[8], n: 8) -> BLOCK: 1024, num_warps: 8",
    ]
    assert (
        "500.0 us instead of 2.4 ms by itself, 500.0 us instead of 2.4 ms in the script, "
        "with BLOCK 1024, num_warps 8"
    ) in found.sentences[0]
    assert script.starts == 1


def test_what_little_of_a_step_is_left_of_a_launch_is_not_searched_further():
    """Of 0.3 ms in 10 ms a launch that is twice as fast takes less than what is left alone."""

    def much(point):
        return 0.3 if point == {"BLOCK": 256, "num_warps": 4} else 0.15

    script = SimulatedScript(Launch("little", much), Launch("rest", of_one_time, share=0.9))
    found = LaunchTuning(script).run()
    assert found.value.startswith("train.little@")
    searched = Counter(name for name, _ in script.measured)
    # By itself, with half and twice of its block, and with both once more.
    assert searched["little"] == 1 + 2 + 2
    assert searched["rest"] > launch_points.PATIENCE


def test_configurations_are_compiled_side_by_side_before_they_are_measured():
    one, eight = (SimulatedScript(Launch("scale", wants_large_blocks), at_once=n) for n in (1, 8))
    assert LaunchTuning(eight).run().value == LaunchTuning(one).run().value
    assert not one.compiled
    near, *later = eight.compiled
    assert len(near) == 4
    assert max(map(len, later)) == launch_points.AHEAD
    at_work = [point for _, point in eight.measured if point != {"BLOCK": 256, "num_warps": 4}]
    compiled = [point for points in eight.compiled for point in points]
    assert all(compiled.index(point) <= at_work.index(point) for point in at_work)
    assert len(compiled) == len({*map(str, compiled)}), "each of them once"


def test_those_that_come_next_are_judged_where_the_best_are_refused():
    launch = Launch(
        "narrow",
        wants_large_blocks,
        judged_wrong=lambda point: point["BLOCK"] == 1024 and IMPRECISE,
    )
    script = SimulatedScript(launch)
    found = LaunchTuning(script).run()
    assert found.value.endswith(" -> BLOCK: 512, num_warps: 8")
    judged = len([point for _, point in script.measured if point["BLOCK"] == 1024]) // 2
    assert f"{judged} refused as they are less precise" in found.sentences[0]


def test_what_an_autotuner_has_beside_is_part_of_the_line():
    script = SimulatedScript(Launch("tuned", wants_large_blocks, fixed={"GROUP": 3, "num_ctas": 2}))
    found = LaunchTuning(script).run()
    assert found.value.endswith(" -> BLOCK: 1024, num_warps: 8, GROUP: 3, num_ctas: 2")
    assert all(point["GROUP"] == 3 for _, point in script.measured)


def test_what_takes_less_than_two_percent_of_a_step_is_not_tried():
    little = Launch("little", of_one_time, share=0.019)
    waits = Launch("waits", lambda point: 0.1, share=0.5)  # for the CPU, in the script
    script = SimulatedScript(little, waits)
    found = LaunchTuning(script).run()
    assert found.value is None
    assert [name for name, _ in script.measured] == ["waits"], "by itself, once"
    assert found.sentences == (
        "waits (1.0% of a step) is left alone: by itself it takes 100.0 us, less than 2% of a step",
    )


def test_a_block_that_is_part_of_the_arithmetic_is_not_searched():
    script = SimulatedScript(
        Launch(
            "softmax",
            lambda point: 2.0 + 0.2 * abs(point["num_warps"] - 16),
            wrong=lambda point: point["BLOCK"] != 256,
        )
    )
    found = LaunchTuning(script).run()
    assert found.value.endswith(" -> BLOCK: 256, num_warps: 16")
    assert {point["BLOCK"] for _, point in script.measured} == {128, 256, 512}
    assert (
        "2 refused as they compute something else, BLOCK held: with another" in found.sentences[0]
    )


def test_what_the_text_shows_to_be_a_size_is_named():
    script = SimulatedScript(Launch("heads", wants_large_blocks, held=["HEAD"]))
    found = LaunchTuning(script).run()
    assert "tried, HEAD held: with another it computes something else)" in found.sentences[0]


def test_beyond_a_block_that_is_refused_none_is_tried():
    script = SimulatedScript(
        Launch("softmax", wants_large_blocks, wrong=lambda point: point["BLOCK"] < 256)
    )
    found = LaunchTuning(script).run()
    assert found.value.endswith(" -> BLOCK: 1024, num_warps: 8")
    assert {point["BLOCK"] for _, point in script.measured} == {128, 256, 512, 1024}
    assert "tried, 1 refused as they compute something else)" in found.sentences[0]


def test_warps_that_are_always_refused_are_not_tried_with_every_block():
    script = SimulatedScript(
        Launch("race", wants_large_blocks, wrong=lambda point: point["num_warps"] != 4)
    )
    found = LaunchTuning(script).run()
    assert found.value.endswith(" -> BLOCK: 1024, num_warps: 4")
    assert (
        "2 refused as they compute something else, num_warps held: with another"
        in (found.sentences[0])
    )


def test_what_is_to_be_said_of_results_is_said():
    script = SimulatedScript(Launch("sums", wants_large_blocks, note=ROUNDED))
    found = LaunchTuning(script).run()
    assert found.sentences[0].endswith(f"tried); {ROUNDED}")


def test_what_is_refused_for_its_precision_is_told_apart():
    less = f"{IMPRECISE}: root mean square of its errors 4.8, at most 3.2 as it is"
    halves = Launch("sums", wants_large_blocks, wrong=lambda point: point["BLOCK"] < 256 and less)
    found = LaunchTuning(SimulatedScript(halves)).run()
    assert "others tried, 1 refused as they are less precise)" in found.sentences[0]


def test_where_nothing_is_faster_that_is_said():
    found = LaunchTuning(SimulatedScript(Launch("scale", of_one_time))).run()
    assert (found.value, found.why) == (
        None,
        "no other blocks, warps or stages make a kernel 3% faster",
    )
    assert "nothing was 3% faster" in found.sentences[0]


def test_a_gain_that_is_gone_in_the_script_is_none():
    script = SimulatedScript(
        Launch("scale", wants_large_blocks, in_place_ms=of_one_time),
        Launch("total", wants_large_blocks),
    )
    found = LaunchTuning(script).run()
    assert found.value.startswith("train.total@")
    assert "\n" not in found.value
    assert any("in the script no less than before" in each for each in found.sentences)


@pytest.mark.parametrize(
    ("launch", "reason"),
    [
        (Launch("tensors", of_one_time, why_not="its argument x is a list"), "x is a list"),
        (Launch("large", of_one_time, refused="copies of its arguments take 60 GiB"), "60 GiB"),
        (Launch("own", of_one_time, wrong=lambda point: True), "cannot be launched once more"),
    ],
)
def test_what_is_left_alone_is_named_with_the_reason(launch, reason):
    script = SimulatedScript(launch, Launch("scale", wants_large_blocks))
    found = LaunchTuning(script).run()
    assert found.value.startswith("train.scale@")
    assert reason in next(each for each in found.sentences if "is left alone" in each)


def test_launches_that_are_not_seen_are_named():
    script = SimulatedScript(captured=["scale"], compiled=["total", "largest"], bare=["own"])
    found = LaunchTuning(script).run()
    assert found.why == "no launch of a Triton kernel that can be changed takes 2% of a step"
    assert "launches of scale inside a CUDA graph were not seen" in found.sentences[0]
    assert "launches of total, largest inside code that torch compiled" in found.sentences[1]
    assert found.sentences[2] == (
        "launches of own without `kernel[grid]`, or of what was compiled of them, stay as they are"
    )


def test_every_launch_that_takes_two_percent_is_told_of():
    assert MOST_LAUNCHES * launch_points.LEAST_SHARE >= 1


def test_a_kernel_with_many_shapes_none_of_which_matters():
    shapes = [Launch("any", of_one_time, share=0.01, text=f"t.any@0(n: {n}) -> ") for n in range(9)]
    found = LaunchTuning(SimulatedScript(*shapes)).run()
    assert found.sentences == (
        "any takes 9.0% of a step in 9 shapes, none of which takes 2%: it stays as it is",
    )


def test_a_launch_that_ends_the_script_is_left_alone_and_the_others_go_on():
    deadly = Launch("deadly", wants_large_blocks, 2.0, kills=lambda point: point["BLOCK"] == 512)
    script = SimulatedScript(deadly, Launch("scale", wants_large_blocks))
    found = LaunchTuning(script).run()
    assert found.value.startswith("train.scale@")
    assert "the script ended as it was tried (signal SIGSEGV)" in found.sentences[0]
    assert script.starts == 2


def test_a_launch_after_which_the_gpu_takes_no_more_work_is_left_alone():
    lost = Launch("lost", wants_large_blocks, 2.0, lost="illegal memory access")
    script = SimulatedScript(lost, Launch("scale", wants_large_blocks))
    found = LaunchTuning(script).run()
    assert found.value.startswith("train.scale@")
    assert "(illegal memory access)" in found.sentences[0]


class Short(SimulatedScript):
    """A script that comes to its own end after so many answers."""

    answers = 12

    def begin(self):
        self.left = self.answers
        self.open = None
        return super().begin()

    def ask(self, order, limit_s):
        self.left -= 1
        if not self.left:
            raise Ended("ended after 100 steps", by_itself=True)
        return super().ask(order, limit_s)


def test_a_script_that_comes_to_its_own_end_is_started_again():
    script = Short(Launch("softmax", of_one_time, wrong=lambda point: point["BLOCK"] != 256))
    script.answers = 60
    found = LaunchTuning(script).run()
    assert "softmax" in found.sentences[0]
    assert script.starts == 1
    script = Short(Launch("scale", wants_large_blocks))
    script.answers = 5
    found = LaunchTuning(script).run()
    assert found.value is None
    assert "the script has too few steps for it: ended after 100 steps" in found.sentences[0]
    assert script.starts == 1 + launch_search.MOST_ENDS


def test_a_script_that_always_ends_is_not_started_for_ever():
    deadly = [Launch(f"k{n}", of_one_time, kills=lambda point: True) for n in range(6)]
    script = SimulatedScript(*deadly)
    assert LaunchTuning(script).run().value is None
    assert script.starts == launch_search.MOST_STARTS


def test_a_plan_has_room_for_so_many_launches(monkeypatch):
    monkeypatch.setattr(launch_search, "LONGEST_VALUE", 100)
    script = SimulatedScript(
        Launch("small", wants_large_blocks, 0.5), Launch("large", wants_large_blocks, 3.0)
    )
    found = LaunchTuning(script).run()
    assert found.value.startswith("train.large@")
    assert "\n" not in found.value
    assert any("no room for more launches" in each for each in found.sentences)


def test_without_time_nothing_is_begun():
    script = SimulatedScript(Launch("scale", wants_large_blocks))
    script.left_s = launch_search.KEPT_S + 1
    found = LaunchTuning(script).run()
    assert script.measured == []
    assert "there was no time for it" in found.sentences[0]


def test_a_triton_that_cannot_be_watched():
    found = LaunchTuning(SimulatedScript(unable="its Triton launches kernels otherwise")).run()
    assert found.why == "its Triton launches kernels otherwise"


def test_values_are_powers_of_two_around_the_scripts_own():
    assert values_of("BLOCK", 256) == (64, 128, 256, 512, 1024)
    assert values_of("BLOCK", 16) == (16, 32, 64), "tensor cores and whole sectors ask for 16"
    assert values_of("GROUP", 8) == (8, 16, 32)
    assert values_of("num_warps", 4) == (1, 2, 4, 8, 16)
    assert values_of("num_stages", 7) == (1, 2, 3, 4, 5, 7)


def test_a_large_space_keeps_near_values_only():
    start = {**{f"B{n}": 64 for n in range(6)}, "num_warps": 4}
    space = launch_points._space(start, {n: values_of(n, own) for n, own in start.items()})
    assert [len(each.values) for each in space.parameters] == [3] * 7
