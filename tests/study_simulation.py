"""Whole studies on a clock of their own: the real `tune`, on a machine that runs nothing.

Runs, blocks and lives let time pass on the machine's clock, and cost what its model and its noise
say, so a study of ten minutes takes half a second.
"""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuadvisor.collectors.interpreter import TargetPython
from gpuadvisor.collectors.script.child.torch_profiler import NAME as PROFILER
from gpuadvisor.collectors.script.request import Command, RunOutcome
from gpuadvisor.collectors.script.runner import is_forked
from gpuadvisor.collectors.script.templates import NoTemplateError
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.finding import Diagnosis
from gpuadvisor.domain.knobs import AppliedKnob, Level, LoaderFacts, ScriptFacts
from gpuadvisor.domain.measurement import StepWindow, Trace
from gpuadvisor.domain.rehearsal import Call, Life
from gpuadvisor.domain.screening import BlockTime
from gpuadvisor.domain.study import StudyResult, TrialState
from gpuadvisor.storage.database import Store
from gpuadvisor.tuners.loader.ceiling import CACHED
from gpuadvisor.tuning import measuring, rehearsal, study
from gpuadvisor.tuning.budgeting import budget
from gpuadvisor.tuning.budgeting.budget_limit import BudgetLimit, schedule_for
from gpuadvisor.tuning.live import screening, supply_timer
from gpuadvisor.tuning.options import TuneOptions
from gpuadvisor.tuning.trials import cold_start, first_run, forking, trial_runner
from gpuadvisor.tuning.trials.trial_runner import Silent
from tests.live_simulation import LiveScript
from tests.simulation import measurement

START_S, LIFE_S, STEPS_S = 16.0, 39.0, 5.0
"""Seconds until the first step, of a shortened life, and of the steps that a run measures."""
COMPUTED_MS, LOADED_MS = 113.0, 500.0
"""What a step takes without waiting, and one worker to make a batch."""
BRINGS = {"channels_last": 1.3, "bf16_autocast": 1.4, "compile": 1.15, "tf32": 1.03}
COMPILES_S = 35.0
SLOW = {"compile", "compile_max_autotune", "compile_cudagraphs"}
WORKERS = 4
FACTS = ScriptFacts(
    device="cuda",
    roots=("ResNet",),
    has_convolution=True,
    optimizers=("SGD",),
    loaders=(LoaderFacts(256, WORKERS, True, False, 2),),
)


class Machine:
    """A clock, and a script whose runs, blocks and lives let time pass on it.

    As it stands, ResNet-50 of pytorch/examples as it was on an H200: a loader of four workers that
    just keeps up, and runs of the unchanged script that differ by a tenth and more.
    """

    start_s, life_s, compiles_s, profile_s = START_S, LIFE_S, COMPILES_S, 25.0
    warm_s = 0.0
    """What a start takes longer with what was compiled before."""
    between, within = 0.08, 0.02
    """Relative deviations of fresh runs from each other, and of blocks of one process."""
    imports_s = 0.0
    """How much sooner a forked run has its first step; 0 where none can be forked."""
    traced_s = 5.0
    """What recording a few steps at the end of a run takes."""
    diagnosis = Diagnosis(())
    computed_ms, loaded_ms = COMPUTED_MS, LOADED_MS
    brings = BRINGS
    workers = WORKERS
    """The script's own."""
    facts = FACTS
    cores, computes_on = 20, "cuda"
    uneven = 0.1
    """Relative deviation of blocks of the loader alone from each other."""
    timed_slower = 1.0
    """Times what a batch takes in a run that it takes when the loader is timed alone."""
    idle_while_waiting: float | None = None
    """What runs tell of the GPU while they wait for batches."""

    def __init__(self, seed="a"):
        self.now_s = self.warmup_s = 0.0
        self.lives = 0
        self.spent, self.began_s = {}, {}
        """Seconds by phase, and when each began first."""
        self.phase, self._since_s = "baseline", 0.0
        self.proven_s = None
        """When a gain was first told to be proven; None where none was."""
        self.supplied, self.cold_starts = [], []
        self._random = random.Random(seed)
        self._compiled, self.compiled_s = set(), 0.0

    def monotonic(self):
        return self.now_s

    def enter(self, phase):
        self.spent[self.phase] = self.spent.get(self.phase, 0.0) + self.now_s - self._since_s
        self.phase, self._since_s = phase, self.now_s
        self.began_s.setdefault(phase, self.now_s)

    def step_ms(self, settings):
        """A step, and how much of it is waiting."""
        computed = self.computed_ms
        for name in settings:
            computed /= self.brings.get(name, 1.0)
        if CACHED in settings or not self.loaded_ms:
            return computed, 0.0
        supplied = self.supply_ms(settings.get("dataloader_workers", self.workers))
        # Batches come unevenly: where both take as long, each waits for the other now and then.
        step = (computed**6 + supplied**6) ** (1 / 6)
        return step, step - computed

    def supply_ms(self, workers):
        """What such a number of workers takes for a batch."""
        return self.loaded_ms / max(1, workers)

    def gain(self, settings):
        return self.step_ms({})[0] / self.step_ms(settings)[0]

    def factor(self):
        """What a run costs beside what it would."""
        return self._random.lognormvariate(0, self.between)

    def profile(self, command, measured, device, cores, trace):
        if trace is None:
            self.now_s += self.profile_s
        return self.diagnosis

    def run_cold(self, request):
        """Start with empty caches of the compilers, to the first step."""
        self.cold_starts.append(request)
        settings = {each.knob: each.value for each in request.specification.applications}
        self._compiled.clear()
        self.now_s += self.start_s + self._compiling_s(settings)
        request.on_event({"event": "step"})
        assert request.cancelled()  # what comes after it is of no interest

    def run(self, request, read_energy_j, load, start=None):
        """Run a process to its end; one that turns its knobs itself has those of `start` first."""
        settings = {each.knob: each.value for each in request.specification.applications}
        settings.update(start or {})
        if (recording := settings.pop(PROFILER, None)) is not None:
            self.now_s += self.traced_s
            Path(json.loads(recording)["file"]).write_text("{}")
        wall_s = self._start_s(request) + STEPS_S + self._compiling_s(settings)
        wall_s += max(0.0, request.specification.schedule.warmup_s - self.warmup_s)
        self.now_s += wall_s
        ms, waited_ms = self.step_ms(settings)
        factor = self.factor()
        ms, waited_ms = ms * factor, waited_ms * factor
        workers = settings.get("dataloader_workers", self.workers)
        loaders = tuple(replace(each, num_workers=workers) for each in self.facts.loaders)
        measured = measurement(
            [ms] * 8,
            windows=(StepWindow(10, ms / 100, 2560.0, waited_ms / 100),) * 8,
            facts=replace(self.facts, loaders=loaders, idle_while_waiting=self.idle_while_waiting),
            trace=Trace((1.0, 0.9, 0.8)),
            applied=tuple(AppliedKnob(name, "effective") for name in settings),
            startup_s=wall_s - STEPS_S,
            wall_s=wall_s,
        )
        forked = is_forked(request)
        return RunOutcome(TrialState.COMPLETE, "", measured, "", wall_s, forked=forked)

    def _start_s(self, request):
        return self.start_s - self.imports_s * is_forked(request)

    def template(self, *_):
        """Return what stands for a process that has imported what the script does."""
        if not self.imports_s:
            raise NoTemplateError("its first process does not import torch")
        return Imported(self.imports_s)

    def _compiling_s(self, settings):
        compiled = self.brings.keys() - {"fused_optimizer"}
        key = frozenset(n for n in settings if n in compiled) if SLOW & settings.keys() else None
        if key is None or key in self._compiled:
            return 0.0 if key is None else self.warm_s
        self._compiled.add(key)
        self.compiled_s += self.compiles_s
        return self.compiles_s

    def run_in_turns(self, request, live, start, blocks, *meters):
        """Run what would time both sides in turns: here none can."""
        return self.run(request, *meters, start), None

    def live(self, request, live, wanted):
        fixed = {each.knob: each.value for each in request.specification.applications}
        noise = ([self._random.lognormvariate(0, self.within)] for _ in itertools.count())
        running = LiveScript(
            lambda settings: self.step_ms({**fixed, **settings})[0],
            noise,
            compile_s=self._compiling_s,
            start_s=self._start_s(request),
        )

        def run(block):
            before_s = running.now_s
            told = running.run(block)
            self.now_s += running.now_s - before_s
            return told

        return self._sent(wanted, run)

    def supply(self, request, loader, wanted):
        self.now_s += self.start_s

        def run(block):
            workers = block.settings["dataloader_workers"]
            batch_ms = self.supply_ms(workers) * self._random.lognormvariate(0, self.uneven)
            batch_ms *= self.timed_slower
            if block.settings not in self.supplied:
                self.supplied.append(block.settings)
                self.now_s += 0.1 * workers + 2 * self.supply_ms(1) / 1e3
            batches = max(workers, block.seconds * 1e3 / batch_ms)
            self.now_s += batches * batch_ms / 1e3
            return BlockTime(batch_ms, int(batches))

        return self._sent(wanted, run)

    @staticmethod
    def _sent(wanted, run):
        blocks = next(wanted)
        while True:
            try:
                blocks = wanted.send([run(block) for block in blocks])
            except StopIteration as end:
                return end.value

    def life(self, request, shortening):
        names = [each.knob for each in request.specification.applications]
        self.lives += 1
        limit_s = request.limits.total_s
        if limit_s < self.life_s:
            self.now_s += limit_s
            return Life(TrialState.HUNG, wall_s=limit_s)
        self.now_s += self.life_s
        calls = tuple(Call(n, 8, 8, True, ((1.0,),)) for n in range(40))
        return Life(
            TrialState.COMPLETE,
            wall_s=self.life_s,
            losses=(1.0,) * 8,
            calls=calls,
            written={},
            applied=tuple(AppliedKnob(name, "effective") for name in names),
        )


class Imported:
    """Stands for a process that has imported what the script does."""

    def __init__(self, import_s):
        self.import_s = import_s

    def serves(self, start):
        """Say whether a run begins as the unchanged script's, which sets no variable of glibc."""
        return "GLIBC_TUNABLES" not in start.environment

    def close(self):
        pass


class Telling(Silent):
    """Has the machine count time by phase, and keeps what is said."""

    def __init__(self, machine):
        self.machine, self.said, self.phases = machine, [], []

    def on_phase(self, name, detail=""):
        self.machine.enter(name)
        self.phases.append((name, detail))
        assert self.phases[-2:-1] != self.phases[-1:], "told twice in a row"

    def on_message(self, sentence):
        self.said.append(sentence)
        if sentence.startswith("proven so far: ") and self.machine.proven_s is None:
            self.machine.proven_s = self.machine.now_s


@contextmanager
def studies(folder: Path) -> Iterator[Callable[..., tuple[StudyResult, list[str]]]]:
    """Yield a function that runs a study of so many seconds on a machine, in a new folder.

    It returns the result, and the sentences that were told meanwhile.
    """
    from optuna.storages import InMemoryStorage

    (folder / "train.py").write_text("")
    python = TargetPython("/usr/bin/python3", "3.12.3", torch="2.7.1")
    h200 = Device("cuda", 0, "H200", f"GPU-{os.getpid()}-0", 140 << 30, (9, 0), cores=20)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("GPUADVISOR_HOME", str(folder / "store"))
        patch.setattr(Store, "optuna_storage", InMemoryStorage())
        patch.setattr(Store, "add_trial", lambda *_: None)  # `finish_study` adds all trials
        patch.setattr(rehearsal, "unavailable", lambda: None)
        patch.setattr(first_run, "target_python", lambda command: python)

        def tuned(machine: Any, seconds: float, **changes: Any) -> tuple[StudyResult, list[str]]:
            limit = BudgetLimit(seconds=seconds)
            device = replace(h200, cores=machine.cores, kind=machine.computes_on)
            patch.setattr(first_run, "devices_for", lambda python, jobs: [device])
            machine.warmup_s = schedule_for(limit).warmup_s
            clock = SimpleNamespace(monotonic=machine.monotonic)
            for module in (budget, measuring, supply_timer, screening, cold_start, rehearsal):
                patch.setattr(module, "time", clock)
            patch.setattr(trial_runner, "run_script", machine.run)
            patch.setattr(cold_start, "run_script", machine.run_cold)
            patch.setattr(trial_runner, "run_in_turns", machine.run_in_turns)
            patch.setattr(supply_timer, "run_supply", machine.supply)
            patch.setattr(screening, "run_live", machine.live)
            patch.setattr(forking, "start_template", machine.template)
            patch.setattr(rehearsal, "run_life", machine.life)
            telling = Telling(machine)
            known = {"budget": limit, "level": Level.BALANCED}
            options = TuneOptions(Command("python", "train.py"), **{**known, **changes})
            result = study.tune(options, telling, lambda: False, machine.profile)
            machine.enter("end")
            return result, telling.said

        yield tuned
