"""What pairs say whose runs took turns: of blocks beside each other, whatever the machine did."""

import math
import random

import pytest

from gpuadvisor.domain.gate import GateRun, GateVerdict
from gpuadvisor.domain.measurement import StepWindow
from gpuadvisor.domain.study import Trial, TrialState
from gpuadvisor.tuners.gate.comparing import Comparing
from gpuadvisor.tuners.gate.decision import LOOKS
from gpuadvisor.tuners.turns import TRIMMED, is_precise, ratio_of_blocks
from tests.simulation import STEPS, measurement

BLOCKS = 40


def blocks_of(slower=0.0, seed=0):
    """Return the blocks of both beside a machine that is up to ten times slower for a while."""
    generator = random.Random(seed)
    level = [50.0 * 10 ** generator.random() for _ in range(BLOCKS)]
    base, head = ([each * math.exp(generator.gauss(0, 0.01)) for each in level] for _ in range(2))
    return base, [each * (1 + slower) for each in head]


def test_what_slows_down_both_is_no_difference():
    assert ratio_of_blocks(*blocks_of(slower=0.05)) == pytest.approx(1.05, abs=0.005)


def test_single_stalls_are_no_difference():
    base, head = [10.0] * BLOCKS, [10.0] * BLOCKS
    for place in range(int(TRIMMED * BLOCKS)):
        head[place] = 50.0
    assert ratio_of_blocks(base, head) == 1.0


def test_what_recurs_in_every_fifth_block_counts():
    base, head = [10.0] * BLOCKS, [15.0 if n % 5 == 0 else 10.0 for n in range(BLOCKS)]
    assert ratio_of_blocks(base, head) > 1.04


def test_no_block_has_no_ratio():
    with pytest.raises(ValueError, match="needs a block"):
        ratio_of_blocks([], [])


@pytest.mark.parametrize(("spread", "precise"), [(0.01, True), (0.2, False)])
def test_blocks_that_differ_much_say_less(spread, precise):
    generator = random.Random(1)
    head = [10.0 * math.exp(generator.gauss(0, spread)) for _ in range(BLOCKS)]
    assert is_precise([10.0] * BLOCKS, head) is precise
    assert is_precise([10.0] * BLOCKS, [2 * each for each in head]) is precise


def test_a_few_stalls_are_no_reason_to_measure_on():
    assert is_precise([10.0] * BLOCKS, [10.0] * (BLOCKS - 3) + [30.0] * 3)


def test_two_blocks_are_not_known_to_agree():
    assert not is_precise([10.0], [10.0])


class Machine:
    """Runs whose level is another one in each pair, alone and in turns."""

    def __init__(self, slower=0.0, samples=(1.0, 1.0), disturbance=""):
        self.slower, self.samples, self.disturbance = slower, samples, disturbance
        self.made = []

    def alone(self, side, place):
        level = 50.0 * 1.5 ** (len(self.made) % 3)
        return self._run(side, place, [level] * 8, ())

    def both(self, sides, place):
        slower = (1 + self.slower) * self.samples[1] / self.samples[0] - 1
        of = dict(zip(("base", "head"), blocks_of(slower, seed=len(self.made)), strict=True))
        return {side: self._run(side, place, of[side], tuple(of[side])) for side in sides}

    def _run(self, side, place, windows_ms, blocks_ms):
        samples = STEPS * self.samples[side == "head"]
        windows = tuple(StepWindow(STEPS, STEPS * ms / 1e3, samples) for ms in windows_ms)
        made = measurement(windows_ms, windows=windows, samples_source="dataloader")
        trial = Trial(0, {}, "proof", TrialState.COMPLETE, measurement=made)
        run = GateRun(side, trial, None, place, blocks_ms=blocks_ms)
        self.made.append(run)
        return run

    def gated(self, **options):
        return Comparing(self.alone, in_turns=lambda: self.both, **options).go()


@pytest.mark.parametrize(
    ("slower", "verdict"),
    [(0.0, GateVerdict.PASS), (0.05, GateVerdict.FAIL), (-0.1, GateVerdict.PASS)],
)
def test_pairs_in_turns_decide_where_runs_differ_by_half(slower, verdict):
    found = Machine(slower).gated()
    assert found.verdict is verdict
    assert found.pairs <= LOOKS[2]
    assert found.differences[0].ratio == pytest.approx(1 + slower, abs=0.01)


def test_runs_one_after_the_other_do_not_decide_there():
    machine = Machine()
    found = Comparing(machine.alone).go()
    assert found.verdict is GateVerdict.INCONCLUSIVE


def test_a_block_is_of_samples_where_steps_have_others():
    found = Machine(samples=(32.0, 64.0)).gated()
    assert found.verdict is GateVerdict.PASS
    assert found.differences[0].ratio == pytest.approx(1.0, abs=0.01)
