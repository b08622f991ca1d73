"""Which knobs are tried, in which order, and why the others are not."""

import pytest

from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import Level, LoaderFacts, ScriptFacts
from gpuadvisor.domain.measurement import StepWindow
from gpuadvisor.domain.study import Objective
from gpuadvisor.tuners.knob_space import Selection, knob_parameter, select_knobs
from tests.simulation import Switch, measurement

CPU = Device("cpu", 0, "cpu")
FACTS = ScriptFacts()


class Leveled(Switch):
    def __init__(self, name, level, **options):
        super().__init__(name, **options)
        self._level = level

    def level_for(self, facts):
        return self._level


class Unfit(Switch):
    def unavailable(self, device, facts):
        return "there is no GPU here"


class Risky(Switch):
    risk = "something that no rehearsal shows"


class Speed(Switch):
    serves = frozenset({Objective.THROUGHPUT})


KNOBS = {
    knob.name: knob
    for knob in (
        Leveled("workers", Level.CONSERVATIVE),
        Leveled("bf16", Level.BALANCED),
        Leveled("fp16", Level.AGGRESSIVE),
        Unfit("graphs"),
        Switch("has_it", ()),
        Speed("batch_size"),
        Risky("memory"),
    )
}


def selected(first=(), **options):
    options = {
        name: frozenset(v) if name in ("only", "without") else v for name, v in options.items()
    }
    return select_knobs(KNOBS, Selection(**options), CPU, FACTS, first)


def names(chosen):
    return [parameter.name for parameter in chosen.space.parameters]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["workers", "bf16", "batch_size"]),
        ({"level": Level.CONSERVATIVE}, ["workers", "batch_size"]),
        ({"level": Level.AGGRESSIVE}, ["workers", "bf16", "fp16", "batch_size"]),
        ({"only": ["bf16"]}, ["bf16"]),
        ({"only": ["memory", "bf16"]}, ["bf16", "memory"]),
        ({"without": ["bf16"]}, ["workers", "batch_size"]),
        ({"only": ["bf16"], "without": ["bf16"]}, []),
        ({"objective": Objective.MEMORY}, ["workers", "bf16"]),
    ],
)
def test_the_users_choice(options, expected):
    assert names(selected(**options)) == expected


def test_what_findings_point_to_leads():
    found = selected(first=["batch_size", "graphs", "bf16"])
    assert names(found) == ["batch_size", "bf16", "workers"]


def test_what_cannot_work_is_explained():
    assert selected().unavailable == {
        "graphs": "there is no GPU here",
        "has_it": "the script already has what it could be set to",
    }


def test_a_knob_that_was_asked_for_by_name_is_explained_too():
    assert "--level aggressive" in selected(only=["fp16"]).unavailable["fp16"]
    memory = selected(only=["batch_size"], objective=Objective.MEMORY)
    assert memory.unavailable == {"batch_size": "it cannot improve the memory"}
    assert "fp16" not in selected().unavailable


def test_values_are_found_by_name():
    assert selected().space["bf16"].values == (True,)
    assert "fp16" not in selected().space


class Finding(Switch):
    finds = True


def test_a_value_that_the_script_shows_leads_the_others_and_why_there_is_none_is_kept():
    knobs = {**KNOBS, "shown": Finding("shown", ())}
    chosen = select_knobs(knobs, Selection(), CPU, FACTS)
    assert chosen.unfound == ("shown",)
    assert "shown" not in chosen.space
    assert "shown" not in chosen.unavailable
    found = chosen.with_found("shown", knob_parameter(knobs["shown"], ["a line"], CPU, FACTS))
    assert names(found)[0] == "shown"
    assert found.space["shown"].values == ("a line",)
    assert found.unfound == ()
    nothing = chosen.with_found("shown", None, "no other blocks pay")
    assert names(nothing) == names(chosen)
    assert nothing.unavailable["shown"] == "no other blocks pay"


def test_what_cannot_work_is_not_asked_for():
    class Unable(Finding):
        def unavailable(self, device, facts):
            return "there is no Triton here"

    chosen = select_knobs({"shown": Unable("shown", ())}, Selection(), CPU, FACTS)
    assert (chosen.unfound, chosen.unavailable) == ((), {"shown": "there is no Triton here"})


class OnGpu(Switch):
    saves_gpu_time_only = True


def on_gpu(waiting=0.0, workers=2):
    loaders = (LoaderFacts(8, workers, False, False, 2),)
    facts = ScriptFacts(device="cuda", loaders=loaders)
    windows = (StepWindow(10, 1.0, data_wait_s=waiting),)
    return measurement([100.0], windows=windows, facts=facts)


@pytest.mark.parametrize(("share", "order"), [
    (None, ["tf32", "fused"]), (0.9, ["tf32", "fused"]), (0.12, ["fused", "tf32"]),
])  # fmt: skip
def test_where_the_host_decides_what_only_saves_gpu_time_comes_last(share, order):
    knobs = {"tf32": OnGpu("tf32"), "fused": Switch("fused")}
    chosen = select_knobs(knobs, Selection(), CPU, FACTS, ["tf32"], share)
    assert names(chosen) == order
    assert [each.unlikely for each in chosen.space.parameters] == [False, order[0] == "fused"]


@pytest.mark.parametrize(("waiting", "workers", "is_pointless"), [
    (0.8, 2, True), (0.3, 2, False), (0.8, 0, False),
])  # fmt: skip
def test_computing_faster_is_pointless_while_workers_decide(waiting, workers, is_pointless):
    chosen = select_knobs({"tf32": Switch("tf32")}, Selection(), CPU, FACTS)
    why = chosen.space["tf32"].pointless(on_gpu(waiting, workers))
    assert (why is not None) == is_pointless
    if why:
        assert why == "the script waits for its workers in 80% of the time, however it computes"


def test_it_is_not_for_energy():
    selection = Selection(objective=Objective.ENERGY)
    chosen = select_knobs({"tf32": OnGpu("tf32")}, selection, CPU, FACTS, (), 0.1)
    assert not chosen.space["tf32"].unlikely
    assert chosen.space["tf32"].pointless(on_gpu(0.9)) is None
