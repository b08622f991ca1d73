"""A study of Triton kernels alone where each start of the script takes an eighth of the budget."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import ClassVar

import pytest

from gpuadvisor.collectors.script.child.live_blocks import LEAST_STEPS, SETTLING_STEPS
from gpuadvisor.domain.knobs import LoaderFacts
from gpuadvisor.domain.screening import BlockTime
from gpuadvisor.domain.study import Verdict
from gpuadvisor.reports.study.wording import advice
from gpuadvisor.tuners.statistics import LOOKS
from gpuadvisor.tuning.budgeting.budget import OVERDRAFT
from gpuadvisor.tuning.live import value_finding
from gpuadvisor.tuning.turning import LEAST_PAIRS
from tests.study_simulation import FACTS, Machine, studies
from tests.unit.tuners.test_launch_search import Launch, SimulatedScript

ONLY: dict = {"only": frozenset({"triton_kernels"})}


class SlowStart(Machine):
    """FlashKAT as it was on an H100: 50 s until it trains, of which torch's import takes 4."""

    start_s, life_s, asked_s = 50.0, 100.0, 15.0
    between, within = 0.002, 0.003
    computed_ms, loaded_ms = 139.0, 0.0
    brings: ClassVar = {"triton_kernels": 1.04}
    level = 1.0
    """Times what blocks take of a quiet process that those of the one that runs take."""
    facts = replace(FACTS, triton_kernels=True, loaders=(LoaderFacts(64, 14, True, False, 2),))

    def __init__(self, *seed):
        super().__init__(*seed)
        self.blocks = []
        """Blocks of each process that timed both sides."""

    def factor(self):
        self.level = super().factor()
        return self.level

    def run_in_turns(self, request, live, start, blocks, *meters):
        outcome, told = self.run(request, *meters, start), []
        self.blocks.append(len(blocks))
        for block in blocks:
            noise = self._random.lognormvariate(0, self.within)
            ms = self.level * noise * self.step_ms(block.settings)[0]
            steps = max(LEAST_STEPS, math.ceil(1e3 * block.seconds / ms))
            self.now_s += (SETTLING_STEPS + steps) * ms / 1e3
            told.append(BlockTime(ms, steps))
        return outcome, told


class Witness(SimulatedScript):
    """Starts, and takes the time of what it is asked."""

    def __init__(self, machine, request, knob, allowed_s):
        self.machine, self.end_s = machine, machine.now_s + allowed_s
        super().__init__(
            Launch(
                "rational_bwd",
                lambda point: 4.0 / point["num_warps"],
                share=0.1,
                parameters={"num_warps": 4},
            )
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.machine.now_s += self.machine.asked_s

    @property
    def left_s(self):
        return max(0.0, self.end_s - self.machine.now_s)

    def begin(self):
        self.machine.now_s += self.machine.start_s
        return super().begin()


@pytest.fixture
def tune(tmp_path, monkeypatch):
    with studies(tmp_path) as tuned:

        def run(machine, seconds):
            monkeypatch.setattr(
                value_finding, "ScriptWitness", lambda *args: Witness(machine, *args)
            )
            return tuned(machine, seconds, **ONLY)

        yield run


def test_a_knob_alone_is_proven_at_once_where_there_is_no_time_to_try_it_before(tune):
    machine = SlowStart()
    result, _ = tune(machine, 496.0)
    phases = [trial.phase for trial in result.trials]
    assert phases == ["baseline"] * 2 + ["proof"] * 2 * LOOKS[0]
    assert result.verdict is Verdict.FASTER_UNVERIFIED
    assert machine.now_s <= 545


def test_where_a_start_takes_long_both_sides_are_timed_though_two_runs_agree(tune):
    machine = SlowStart()
    result, said = tune(machine, 496.0)
    assert result.speedup.in_turns and set(machine.blocks) == {2 * LEAST_PAIRS}
    assert any(each.startswith("that takes little beside a start: ") for each in said)
    machine = SlowStart()
    machine.start_s = 30.0
    result, _ = tune(machine, 496.0)
    assert result.speedup and not machine.blocks, "they would add a fifth of a run"


def test_processes_that_differ_time_both_sides_in_turns(tune):
    machine = SlowStart()
    machine.between = 0.03
    result, said = tune(machine, 496.0)
    assert result.speedup.in_turns and result.verdict is Verdict.FASTER_UNVERIFIED
    assert result.speedup.pairs == LOOKS[0] and machine.now_s <= 580 < (1 + OVERDRAFT) * 496
    assert any("times both sides in turns" in each for each in said)
    assert set(machine.blocks) == {2 * LEAST_PAIRS}, "as few as may be, beyond the budget"


def test_a_proof_that_shows_nothing_is_no_study_that_tried_nothing(tune):
    machine = SlowStart()
    machine.brings = {}
    result, said = tune(machine, 496.0)
    assert result.settings.keys() == {"triton_kernels"} and result.speedup.pairs == LOOKS[0]
    assert result.verdict in (Verdict.INCONCLUSIVE, Verdict.NO_GAIN)
    assert not [each for each in said if each.startswith("not tried")]


def test_without_room_for_a_proof_it_is_tried_and_the_budget_of_a_proof_is_named(tune):
    result, _ = tune(SlowStart(), 300.0)
    assert [trial.phase for trial in result.trials] == ["baseline"] * 2 + ["search"]
    assert result.verdict is Verdict.INCONCLUSIVE and result.speedup is None
    assert re.search(r"`--budget \d+m` \(.*has room for the proof", advice(result))


def test_without_room_to_ask_the_script_a_budget_that_has_it_is_named_and_has_it(tune):
    result, _ = tune(SlowStart(), 200.0)
    assert result.verdict is Verdict.NOT_TRIED and len(result.trials) == 2
    named = re.search(r"`--budget (\d+)m` would have", result.untried["triton_kernels"])
    assert f"`--budget {named[1]}m`" in advice(result) and not result.no_effect
    machine = SlowStart("b")
    result, _ = tune(machine, 60.0 * int(named[1]))
    assert result.speedup is not None and machine.now_s <= 60.0 * int(named[1])
