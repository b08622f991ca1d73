"""Gates whose pairs take turns, on simulated scripts: where they do, and where they do not."""

import json
import math
import random
import threading
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from select import select

import psutil
import pytest

from gpuadvisor.collectors.script.child.turns import BLOCK, GO, WARM
from gpuadvisor.collectors.script.request import RunOutcome
from gpuadvisor.collectors.script.turns import Seat
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.knobs import LoaderFacts, ScriptFacts
from gpuadvisor.domain.measurement import StepWindow
from gpuadvisor.domain.screening import BlockTime
from gpuadvisor.domain.study import TrialState
from gpuadvisor.tuners.gate.metric import PROFILER
from gpuadvisor.tuning.gate import comparison
from gpuadvisor.tuning.trials.in_turns import goes_on
from tests.simulation import measurement
from tests.unit.tuning import test_gate
from tests.unit.tuning.test_gate import commit, git, write

machine, gated = test_gate.machine, test_gate.gated
CPU = Device("cpu", 0, "a CPU", memory_bytes=1 << 40, cores=2)
STEPS = 10
"""Steps of a block."""


class Player:
    """Plays the runs of a machine whose speed changes all the time, alone or in turns."""

    def __init__(self, machine, folder):
        self.plain, self.folder = machine.run, folder
        self.level = random.Random(5)
        self.noise = random.Random(6)
        self.spread = 0.3
        """By how much runs differ that are alone, as a standard deviation."""
        self.facts = ScriptFacts()
        self.fault = lambda side, blocks: None
        self.in_turns = 0
        self._lock = threading.Lock()

    def run(self, request, *meters):
        outcome = self.plain(request, *meters)
        if outcome.measurement is None:
            return outcome
        factor = math.exp(self.level.gauss(0, self.spread))
        measured = replace(outcome.measurement, facts=self.facts)
        windows = tuple(replace(w, seconds=w.seconds * factor) for w in measured.windows)
        outcome = replace(outcome, measurement=replace(measured, windows=windows))
        if not isinstance(request.seat, Seat):
            return outcome
        problem = self._play(
            request.seat, self.side(request), float(outcome.measurement.mean_step_ms) / factor
        )
        return problem or outcome

    def side(self, request):
        return "base" if "base" in request.command.folder else "head"

    def _play(self, seat, side, step_ms):
        with self._lock:
            self.in_turns += 1
            folder = self.folder / f"run {self.in_turns}"
            folder.mkdir()
        blocks = 0
        with Path(seat.pipe(folder)).open("r+b", buffering=0) as orders:
            seat.take({"event": WARM})
            while True:
                while not select([orders], [], [], 0.02)[0]:
                    if seat.is_abandoned:
                        return RunOutcome(TrialState.PRUNED, "stopped", None, "", 1.0)
                if orders.read(99).decode().strip() != GO:
                    return None
                if (problem := self.fault(side, blocks)) is not None:
                    return problem
                blocks += 1
                ms = step_ms * self._now()
                seat.take({"event": BLOCK, "steps": STEPS, "seconds": STEPS * ms / 1e3})

    def _now(self):
        """Return how slow the machine is, and how a block of it differs from the next."""
        with self._lock:
            return math.exp(self.noise.gauss(0.5, 0.02))


@pytest.fixture
def player(machine, monkeypatch, tmp_path):
    made = Player(machine, tmp_path)
    monkeypatch.setattr(test_gate.trial_runner, "run_script", made.run)
    monkeypatch.setattr(comparison, "devices_for", lambda python, jobs: [CPU])
    commit("100 1000")
    return made


@pytest.fixture
def found(player, gated):
    """Gate a head that takes so long; returns the status, the document and its notes."""

    def found(*words, head="100 1000"):
        write(head)
        status, out, _ = gated("--base", "HEAD", "--json", *words)
        assert git("worktree", "list").count("\n") == 0
        document = json.loads(out)
        return status, document, " ".join(document["notes"])

    return found


@pytest.mark.parametrize(("head", "status"), [("100 1000", 0), ("105 1000", 4)])
def test_they_tell_what_runs_one_after_the_other_do_not(found, head, status):
    told, document, notes = found(head=head)
    assert told == status
    assert "took turns" in notes
    paired = [run for run in document["runs"] if run["place"].startswith("pair")]
    assert all(len(run["blocks_ms"]) >= 8 for run in paired)
    alone = [run for run in document["runs"] if run not in paired]
    assert [run["blocks_ms"] for run in alone] == [None] * 4
    assert "startup" in {each["metric"] for each in document["unmeasured"]}
    assert found("--no-turns", head=head)[0] == 6


class Planned:
    """Plays processes of a plan that costs 4 %, each of which is as fast as it happens to be."""

    def __init__(self, machine):
        self.plain, self.chance = machine.run, random.Random(5)
        self.spread, self.turned, self.ends_early = 0.1, 0, False

    def run(self, request, *meters):
        knobs = [a for a in request.specification.applications if a.knob != PROFILER]
        return self._run(request, bool(knobs), math.exp(self.chance.gauss(0, self.spread)))

    def run_in_turns(self, request, live, start, blocks, *meters):
        self.turned += 1
        level = math.exp(self.chance.gauss(0, self.spread))
        told = [
            BlockTime(level * (104 if each.settings else 100) * self.chance.gauss(1, 0.001))
            for each in blocks
        ]
        return self._run(request, bool(start), level), told[: 2 if self.ends_early else None]

    def _run(self, request, is_slower, level):
        bare = replace(request, specification=replace(request.specification, applications=()))
        outcome = self.plain(bare)
        factor = level * (1.04 if is_slower else 1.0)
        windows = tuple(replace(w, seconds=w.seconds * factor) for w in outcome.measurement.windows)
        return replace(outcome, measurement=replace(outcome.measurement, windows=windows))


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "slow.plan.toml"
    head = 'format = 2\nscript = "train.py"\nlevel = "balanced"\nobjective = "throughput"\n'
    path.write_text(f"[plan]\n{head}[knobs]\ntf32 = true\n")
    return path


@pytest.fixture
def planned(machine, gated, monkeypatch, plan):
    """Gate the plan; returns the status, the document and what is printed."""
    made = Planned(machine)
    monkeypatch.setattr(test_gate.trial_runner, "run_script", made.run)
    monkeypatch.setattr(test_gate.trial_runner, "run_in_turns", made.run_in_turns)
    write("100 1000")

    def planned(*words):
        written = ("--output", f"json={plan.parent / 'gate.json'}")
        status, out, _ = gated("--head-plan", str(plan), "--no-explain", *written, *words)
        return status, json.loads((plan.parent / "gate.json").read_text()), " ".join(out.split())

    planned.machine = made
    return planned


def test_plans_take_turns_within_each_process(planned):
    status, document, told = planned()
    assert (status, document["pairs"]) == (4, 3)
    time = document["metrics"][0]
    assert time["in_turns"] and time["ratio"] == pytest.approx(1.04, abs=0.002)
    assert "step time was compared as both sides took turns within each process" in told.lower()
    paired = [run["in_turns"] for run in document["runs"] if run["place"].startswith("pair")]
    assert all(each["head_ms"] > 1.03 * each["base_ms"] for each in paired)
    assert planned("--no-turns")[0] == 6
    assert planned.machine.turned == 6


@pytest.mark.parametrize(
    ("change", "turned", "sentence"),
    [
        (lambda machine, plan: setattr(machine, "spread", 0.001), 0, ""),
        (
            lambda machine, plan: plan.write_text(plan.read_text() + "persistent_workers = true\n"),
            0,
            "each process timed one side only: persistent_workers is set before the script starts",
        ),
        (
            lambda machine, plan: setattr(machine, "ends_early", True),
            1,
            "each process timed one side only: one ended, or failed, before both were timed",
        ),
    ],
)
def test_where_plans_do_not(planned, plan, change, turned, sentence):
    change(planned.machine, plan)
    _, document, told = planned()
    assert planned.machine.turned == turned
    assert not document["metrics"][0]["in_turns"]
    assert "took turns" not in told
    assert sentence in told.replace("Each process", "each process")


def many_workers(player):
    player.facts = ScriptFacts(loaders=(LoaderFacts(8, 2, False, False, 2),))


@pytest.mark.parametrize(
    ("words", "change", "sentence"),
    [
        ((), many_workers, "its loaders' workers would read ahead"),
        (("--metric", "startup"), None, "of two that live at the same time nobody knows the start"),
        (("--no-turns",), None, ""),
    ],
)
def test_where_they_do_not_they_follow_one_another(found, player, words, change, sentence):
    if change is not None:
        change(player)
    _, _, notes = found(*words)
    assert player.in_turns == 0
    assert "took turns" not in notes
    assert sentence in notes


def test_a_configuration_may_have_them_follow_one_another(gated, player):
    table = "[gate]\nturns = false\n[[gate.benchmark]]\nname = 'small'\nscript = 'train.py'\n"
    write(table, "gpuadvisor.toml")
    gated("--base", "HEAD", script="small")
    assert player.in_turns == 0


@pytest.mark.parametrize(("spread", "in_turns"), [(0.0, False), (0.3, True)])
def test_on_a_gpu_they_do_where_its_runs_differ(found, player, monkeypatch, spread, in_turns):
    monkeypatch.setattr(comparison, "devices_for", lambda python, jobs: [test_gate.GPU])
    player.spread = spread
    status, _, notes = found()
    assert status == 0
    assert bool(player.in_turns) is ("took turns" in notes) is in_turns


def test_both_have_to_fit_into_the_memory(found, player, monkeypatch):
    free = namedtuple("free", "available")(1 << 30)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    _, _, notes = found()
    assert player.in_turns == 0
    assert "both together need 2.0 of 1.0 GiB of memory" in notes


def test_two_sides_in_one_folder_follow_one_another(gated, player):
    commands = "--base-cmd", "A=1 python train.py", "--head-cmd", "A=2 python train.py"
    _, out, _ = gated("--json", *commands, script="")
    assert player.in_turns == 0
    assert "each would find what the other one writes" in " ".join(json.loads(out)["notes"])


@pytest.mark.parametrize("by_itself", [True, False])
def test_one_that_fails_beside_the_other_is_run_alone(found, player, by_itself):
    crashed = RunOutcome(TrialState.CRASHED, "the port is in use", None, "", 1.0)
    player.fault = lambda side, blocks: crashed if side == "head" and blocks == 3 else None
    if not by_itself:
        player.plain = _alone_too(player.plain, crashed)
    status, document, notes = found("--no-explain")
    assert player.in_turns == 2
    if by_itself:
        assert "the head could not be measured (the port is in use), when both were" in notes
        assert status == 6
        assert len([run for run in document["runs"] if run["place"] == "known"]) == 2
    else:
        assert status == 4
        assert document["broken"] == "head"
        assert (
            "fails in 3 of 4 runs where HEAD runs: crashed: the port is in use"
            in (document["reason"])
        )
        places = [run["place"] for run in document["runs"] if run["state"] == "crashed"]
        assert places == ["pair 1, in turns", "pair 1", "pair 1"]
        assert "took turns" not in notes


def _alone_too(plain, crashed):
    """Return what lets the head's first run end well, and no other one of it."""
    seen = []

    def run(request, *meters):
        outcome = plain(request, *meters)
        if "head" not in request.command.folder or request.seat is not None:
            return outcome
        seen.append(request)
        return outcome if len(seen) == 1 else crashed

    return run


def test_one_that_works_while_it_waits_is_run_alone(found, player, monkeypatch):
    seat = "gpuadvisor.collectors.script.turns.Seat.busy"
    monkeypatch.setattr(seat, property(lambda self: 0.8 if player.in_turns > 2 else 0.0))
    _, document, notes = found()
    assert player.in_turns == 4
    places = [run["place"] for run in document["runs"]]
    assert (places.count("pair 1, in turns"), places.count("pair 1")) == (2, 2)
    assert "the base keeps 0.8 CPU cores busy while it waits" in notes or (
        "the head keeps 0.8 CPU cores busy while it waits" in notes
    )


@pytest.mark.parametrize(
    ("blocks_ms", "found"),
    [
        ([(60.7, 59.7), (0.5, 60.5, 60.4), (60.2, 60.1), (0.7, 60.7), (0.6, 60.6)], True),
        ([(120.4,), (119.5,), (0.6, 120.6), (0.8, 120.4), (0.8, 120.8), (119.1,)], True),
        ([(10.0, 60.0, 10.0, 60.0)] * 3, True),
        ([(66.0, 60.0), (64.0, 60.5), (59.0, 60.0), (61.0, 60.0)], False),
        ([(120.0,), (0.6,), (120.0,)], False),
    ],
)
def test_steps_that_follow_a_wait_tell_whether_the_script_went_on_meanwhile(blocks_ms, found):
    """The first two are of a script that sleeps until a step has lasted 60 and 120 ms; of the third
    blocks that begin alike are no sample of its steps, whatever it does meanwhile."""
    windows = tuple(StepWindow(len(each), sum(each) / 1e3) for each in blocks_ms)
    steps_ms = tuple(step for each in blocks_ms for step in each)
    run = measurement([60.0], windows=windows, step_ms=steps_ms)
    assert goes_on(run) is found
    assert not goes_on(replace(run, step_ms=steps_ms[1:])), "not all of them were timed"
