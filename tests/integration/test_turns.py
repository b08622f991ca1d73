"""Two real processes that take turns: one works, the other waits, and neither for who is gone."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psutil
import pytest

from gpuadvisor.collectors.devices import list_gpus
from gpuadvisor.collectors.script.request import Command, Limits
from gpuadvisor.collectors.script.runner import run_script
from gpuadvisor.collectors.script.specification import Schedule
from gpuadvisor.collectors.script.turns import BLOCK_S, BUSY, LEAST_BLOCKS, Turns
from gpuadvisor.domain.study import TrialState
from tests.integration import runs

SCHEDULE = Schedule(warmup_s=0.0, window_s=0.01)
PATIENT = Limits(startup_s=120, idle_s=60, total_s=180)


@pytest.fixture
def both(tmp_path):
    """Run the script twice at the same time, with these faults; returns turns and outcomes."""

    def both(*faults, limits=PATIENT, cancelled=None, measure_s=0.1, template=None):
        turns = Turns(measure_s, 20, 60.0, "seed")

        def run(number):
            args = str(tmp_path / str(number)), faults[number]
            command = Command(sys.executable, "turns.py", args, folder=str(runs.SCRIPTS))
            request = runs.request(command, SCHEDULE, limits)
            request = replace(request, template=template, cancelled=cancelled)
            try:
                return run_script(replace(request, seat=turns.seats[number]))
            finally:
                turns.seats[number].leave()

        with ThreadPoolExecutor(2) as pool:
            outcomes = list(pool.map(run, range(2)))
        assert not [p for p in psutil.Process().children() if "turns.py" in str(p.cmdline())]
        return turns, outcomes

    return both


TRAINING = """
import torch
weights = torch.randn(1024, 1024, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([weights], lr=1e-9)
while True:
    optimizer.zero_grad()
    (weights @ weights).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.gpu
def test_two_contexts_of_one_gpu_work_one_at_a_time(tmp_path):
    (tmp_path / "train.py").write_text(TRAINING)
    device = list_gpus()[0]
    command = Command(sys.executable, "train.py", folder=str(tmp_path))
    schedule = Schedule(measure_s=1.0, window_s=BLOCK_S)
    turns = Turns(schedule.measure_s, 20, 60.0, "seed")

    def run(seat):
        request = replace(runs.request(command, schedule, PATIENT), device=device, seat=seat)
        try:
            return run_script(request)
        finally:
            seat.leave()

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(run, turns.seats))
    assert [each.state for each in outcomes] == [TrialState.COMPLETE] * 2, outcomes
    assert {each.measurement.facts.device for each in outcomes} == {"cuda"}
    assert len(turns.blocks_ms[0]) >= LEAST_BLOCKS
    assert max(seat.busy for seat in turns.seats) < BUSY  # it waits without a core, and idle


def steps_of(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_one_of_both_works_at_a_time(both, tmp_path):
    turns, outcomes = both("", "")
    assert [each.state for each in outcomes] == [TrialState.COMPLETE] * 2
    first, second = turns.blocks_ms
    assert len(first) == len(second) >= LEAST_BLOCKS
    assert [each.measurement.steps >= 20 for each in outcomes] == [True, True]
    one, two = (steps_of(tmp_path / str(number)) for number in range(2))
    for in_turns, others in ((one[-20:], two), (two[-20:], one)):
        for began, ended in in_turns:  # 20 of each were measured, so these were in turns
            assert not [b for b, e in others if b < ended and e > began]


@pytest.mark.parametrize(
    ("fault", "words"), [("crash", "ValueError: no"), ("kill", "killed by SIGKILL")]
)
def test_one_that_dies_leaves_no_other_waiting(both, fault, words):
    turns, (left, died) = both("", fault, measure_s=1e6)
    assert died.state is TrialState.CRASHED
    assert words in died.reason
    assert left.state is TrialState.PRUNED
    assert [seat.broke for seat in turns.seats] == [False, True]


@pytest.mark.slow
def test_one_that_hangs_leaves_no_other_waiting(both):
    limits = replace(PATIENT, idle_s=10)
    turns, (hung, left) = both("hang", "", limits=limits, measure_s=1e6)
    assert hung.state is TrialState.HUNG
    assert "no sign of life for 10 s" in hung.reason
    assert left.state is TrialState.PRUNED
    assert [seat.broke for seat in turns.seats] == [True, False]


def test_one_that_ends_by_itself_lets_the_other_report(both):
    _, outcomes = both("end", "", measure_s=1e6)
    assert [each.state for each in outcomes] == [TrialState.COMPLETE] * 2


def test_ctrl_c_ends_both(both):
    asked = []

    def cancelled():
        asked.append(True)
        return len(asked) > 4

    _, outcomes = both("", "", cancelled=cancelled, measure_s=1e6)
    assert [each.state for each in outcomes] == [TrialState.PRUNED] * 2


@pytest.mark.slow
def test_two_of_one_template_end_one_after_the_other(both):
    with runs.torch_imported() as template:
        if template is None:
            pytest.skip("needs torch, on Linux")
        _, outcomes = both("", "", template=template)
        assert [each.forked for each in outcomes] == [True, True]
        assert [each.state for each in outcomes] == [TrialState.COMPLETE] * 2
        _, (left, died) = both("", "kill", template=template, measure_s=1e6)
    assert (left.state, died.state) == (TrialState.PRUNED, TrialState.CRASHED)


@pytest.mark.slow
def test_what_goes_on_while_it_waits_is_seen(both):
    turns, _ = both("busy", "", measure_s=1.0)
    busy, quiet = (seat.busy for seat in turns.seats)
    assert busy > quiet
