"""Two real processes that start side by side: nothing of one is timed while the other starts."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psutil
import pytest

from gpuadvisor.collectors.script import start_line
from gpuadvisor.collectors.script.request import Command, Limits
from gpuadvisor.collectors.script.runner import run_script
from gpuadvisor.collectors.script.specification import Schedule
from gpuadvisor.collectors.script.start_line import StartLine
from gpuadvisor.domain.study import TrialState
from gpuadvisor.tuning.gate.options import GateOptions
from gpuadvisor.tuning.gate.runs import Runs
from gpuadvisor.tuning.trials import in_turns
from gpuadvisor.tuning.trials.trial_runner import Side
from tests.integration import runs

SCHEDULE = Schedule(warmup_s=0.05, measure_s=0.1, window_s=0.02)
PATIENT = Limits(startup_s=120, idle_s=60, total_s=180)


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """However busy the machine is, and what others take of its memory."""
    monkeypatch.setattr(start_line, "PATIENCE_S", 3600.0)
    monkeypatch.setattr(in_turns, "free_memory_bytes", lambda device: 1 << 40)


@pytest.fixture
def both(tmp_path):
    """Run the script twice from one line, with these faults; returns the line and outcomes."""

    def both(*faults, full=lambda: ""):
        line = StartLine(full)
        places = line.first, line.second

        def run(number):
            lost = "missing" if faults[number] == "lost" else ""
            args = str(tmp_path / lost / str(number)), faults[number]
            command = Command(sys.executable, "turns.py", args, folder=str(runs.SCRIPTS))
            request = replace(runs.request(command, SCHEDULE, PATIENT), seat=places[number])
            try:
                return run_script(request)
            finally:
                places[number].leave()

        with ThreadPoolExecutor(1) as pool:
            second = pool.submit(run, 1)
            first = run(0)
            if first.measurement is None:
                line.give_up("the first failed")
            line.follow()
            outcomes = [first, second.result()]
        assert not [p for p in psutil.Process().children() if "turns.py" in str(p.cmdline())]
        return line, outcomes

    return both


def test_one_is_measured_after_the_other(both, tmp_path):
    line, outcomes = both("", "")
    assert [each.state for each in outcomes] == [TrialState.COMPLETE] * 2
    assert (line.first.was_let, line.second.was_let, line.why_apart) == (True, True, "")
    one, two = (
        [json.loads(each) for each in (tmp_path / str(n)).read_text("utf-8").splitlines()]
        for n in range(2)
    )
    counted = [sum(w.steps for w in each.measurement.windows) for each in outcomes]
    began, ended = one[-counted[0]][0], one[-1][1]  # what was counted of the first
    assert not [b for b, e in two if b < ended and e > began]
    assert two[-counted[1]][0] > ended
    assert two[0][0] < began  # its start was beside that of the first


def test_one_that_fails_as_it_starts_keeps_the_first_not_waiting(both):
    line, (first, second) = both("", "lost")
    assert first.state is TrialState.COMPLETE and line.first.was_let
    assert second.state is TrialState.CRASHED and not line.second.was_let


def test_the_second_ends_where_both_do_not_fit(both):
    line, (first, second) = both("", "", full=lambda: "they took 50 of 80 GiB")
    assert first.state is TrialState.COMPLETE and line.first.was_let
    assert (second.state, second.measurement) == (TrialState.PRUNED, None)
    assert not line.second.was_let


class Said:
    """Hears what a gate says, and which of its runs ended."""

    def __init__(self):
        self.sentences, self.ended = [], []

    def on_message(self, sentence):
        self.sentences.append(sentence)

    def on_run_start(self, side, place):
        """Not looked at."""

    def on_run_end(self, run):
        self.ended.append((run.side, run.place, run.trial.state))


@pytest.mark.parametrize("lost", [False, True])
def test_a_gates_first_runs_count_where_they_started_side_by_side(tmp_path, lost):
    sides = [
        Side(Command(sys.executable, "turns.py", (str(path),), folder=str(runs.SCRIPTS)), runs.CPU)
        for path in (tmp_path / "base", tmp_path / ("missing/head" if lost else "head"))
    ]
    heard = Said()
    made = Runs(GateOptions(sides[0].command), runs.CPU, heard, lambda: False, saves=True)
    try:
        found = made.begin_both(*sides, ())
    finally:
        made.end_forks()
    names = ["base"] if lost else ["base", "head"]
    assert list(found) == names
    assert heard.ended == [(name, "first", TrialState.COMPLETE) for name in names]
    assert made.all == list(found.values())
    (again,) = heard.sentences or [""]
    assert again.startswith("the head starts anew, alone") is lost
