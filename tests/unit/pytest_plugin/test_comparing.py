"""Comparisons of many benchmarks at once, with runs that are only simulated."""

import random
import re
from dataclasses import replace

import pytest

from gpuadvisor.domain.gate import GateVerdict
from gpuadvisor.errors import RefusedError
from gpuadvisor.pytest_plugin.comparing import Compared, Comparing, SideRun
from gpuadvisor.tuners.gate.comparing import FUTILE_FROM
from gpuadvisor.tuners.gate.decision import LOOKS


class Machine:
    """Runs benchmarks that take what `costs` says of both versions, give or take `spread`."""

    def __init__(self, costs, spread=0.003, seed=1):
        self.costs, self.spread = costs, spread
        self.random = random.Random(seed)
        self.asked = []
        self.disturbed = set()
        """Numbers of the processes beside which something else used the machine."""
        self.what = "others"
        self.clock = lambda: None
        """SM clock of a process, by which its times go."""

    def run(self, side, only):
        self.asked.append((side, tuple(only)))
        times, clock = {}, self.clock()
        for test in only:
            cost = self.costs[test][side == "head"]
            cost = cost(len(self.asked)) if callable(cost) else cost
            if cost is not None:
                times[test] = cost * (1 + self.random.gauss(0, self.spread)) / (clock or 1.0)
        disturbance = self.what if len(self.asked) in self.disturbed else ""
        why = "" if len(times) == len(only) else "it raised"
        return SideRun(times, why, disturbance, 3.0, dict.fromkeys(only, clock))

    def compare(self, told=None):
        tell = (lambda sentence: None) if told is None else told.append
        return Comparing(self.run, list(self.costs), Compared("main (abc)"), "seed", tell).go()


def verdicts(found):
    return {test: str(difference.verdict) for test, (difference, _) in found.differences.items()}


def test_each_benchmark_has_its_own_verdict_and_ends_with_it():
    costs = {"same": (1e-3, 1e-3), "slower": (1e-3, 2e-3), "faster": (2.0, 1.0)}
    machine = Machine(costs, spread=0.02, seed=2)
    found = machine.compare()
    assert verdicts(found) == {"same": "pass", "slower": "fail", "faster": "pass"}
    assert found.regression("same") is found.regression("faster") is None
    assert machine.asked[-1][1] == ("same",)  # what is decided is not run again


def test_the_sentence_says_how_much_slower_than_what():
    sentence = Machine({"slower": (1e-3, 1.1e-3)}).compare().regression("slower")
    assert "longer than in main (abc)" in sentence and "1 % that is tolerated" in sentence


def test_runs_are_in_pairs_after_one_of_each_and_two_of_the_base():
    told = []
    machine = Machine({"same": (1e-3, 1e-3)}, spread=0.0005)
    machine.compare(told)
    sides = [side for side, _ in machine.asked]
    assert sides[:4] == ["base", "head", "base", "base"]
    pairs = list(zip(sides[4::2], sides[5::2], strict=True))
    assert len(pairs) == LOOKS[0] and {frozenset(pair) for pair in pairs} == {
        frozenset({"base", "head"})
    }
    assert "a pair of pytest processes takes about 6 s" in told[0]


def test_all_benchmarks_share_the_error_of_one_gate():
    def fails(others):
        costs = {"slower": (1e-3, 1.0135e-3)} | {f"other {n}": (1.0, 1.0) for n in range(others)}
        machine = Machine(costs, spread=0.0)
        machine.random.gauss = lambda mean, spread: 0.001 * (-1) ** len(machine.asked)
        found = machine.compare()
        difference, pairs = found.differences["slower"]
        return difference.low, pairs

    (alone, few), (beside, many) = fails(0), fails(400)
    assert many > few or beside < alone


def test_what_a_version_lacks_is_no_statistic():
    machine = Machine({"new": (None, 1.0), "gone": (1.0, None), "both": (1.0, 1.0)})
    found = machine.compare()
    assert set(found.differences) == {"both"}
    assert found.notes == {
        "new": "it gave no time in main (abc) (it raised)",
        "gone": "it gave no time in the work tree (it raised)",
    }


def test_nothing_in_common_ends_after_one_run_of_each():
    machine = Machine({"new": (None, 1.0)})
    assert machine.compare().differences == {} and len(machine.asked) == 2


def test_what_fails_once_is_run_again_and_what_fails_twice_is_given_up():
    once = Machine({"test": (1.0, lambda number: None if number == 6 else 1.0)})
    assert verdicts(once.compare()) == {"test": "pass"}
    twice = Machine({"test": (1.0, lambda number: None if number > 4 else 1.0)})
    found = twice.compare()
    assert not found.differences and "now and then" in found.notes["test"]


def test_a_disturbed_pair_is_run_again_in_the_same_order():
    told = []
    machine = Machine({"same": (1e-3, 1e-3)}, spread=0.0005)
    machine.disturbed = {5}
    found = machine.compare(told)
    assert len(machine.asked) == 4 + 2 * (LOOKS[0] + 1) and found.differences["same"][1] == LOOKS[0]
    assert machine.asked[4:6] == machine.asked[6:8]
    assert "this pair is run again: others" in told


def test_a_gpu_that_others_have_all_the_time_is_refused():
    machine = Machine({"same": (1e-3, 1e-3)})
    machine.disturbed, machine.what = range(5, 99), "another process used the GPU (7)"
    with pytest.raises(RefusedError, match="wait until the GPU is free"):
        machine.compare()


def test_times_are_compared_as_at_one_clock():
    """By a clock that goes up and down by 10 % nobody sees 3 % without that."""
    found = {}
    for known in (True, False):
        machine = Machine({"slower": (1.0, 1.03)}, spread=0.0005)
        clocks = random.Random(2)
        machine.clock = lambda clocks=clocks: clocks.choice([1800.0, 1900.0, 1980.0])
        if not known:
            machine.run = lambda *of, run=machine.run: replace(run(*of), clocks_mhz={})
        found[known] = machine.compare()
    assert verdicts(found[True]) == {"slower": "fail"}
    assert verdicts(found[False]) == {"slower": "inconclusive"}
    assert "as at one clock" in found[True].regression("slower")


def test_what_hardly_can_be_told_ends_early_inconclusive_and_fails_nothing():
    found = Machine({"noisy": (1.0, 1.03)}, spread=0.2).compare()
    assert verdicts(found) == {"noisy": "inconclusive"} and found.regression("noisy") is None
    assert FUTILE_FROM <= found.differences["noisy"][1] < LOOKS[-1]


@pytest.mark.parametrize("spread", [0.003, 0.02, 0.1])
def test_unchanged_versions_with_many_benchmarks_fail_nowhere(spread):
    costs = {f"test {number}": (1e-3, 1e-3) for number in range(20)}
    found = Machine(costs, spread).compare()
    assert GateVerdict.FAIL not in [
        difference.verdict for difference, _ in found.differences.values()
    ]


def test_json_has_every_pair():
    found = Machine({"slower": (1e-3, 1.1e-3), "new": (None, 1.0)}).compare()
    document = found.document("slower")
    assert (
        document["verdict"] == "fail" and len(document["pairs"]) == found.differences["slower"][1]
    )
    assert found.document("new") == {
        "base": "main (abc)",
        "verdict": None,
        "reason": "it gave no time in main (abc) (it raised)",
    }


def test_runs_that_differ_too_much_are_said_with_what_they_can_show():
    found = Machine({"same": (1.0, 1.0), "steady": (1.0, 2.0)}, spread=0.2).compare()
    assert verdicts(found)["same"] == "inconclusive"
    assert list(found.undecided) == ["same"]
    assert re.match(r"same: runs of one version differ by [12]\d%: even", found.undecided["same"])
    assert "a longer --gpu-benchmark-max-time may help" in found.undecided["same"]
