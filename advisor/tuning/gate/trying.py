"""One version of a script, measured as a gate would, to tell what a gate of it will cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from gpuadvisor.collectors.worktrees import Repository
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.errors import ScriptError
from gpuadvisor.tuners.gate.comparing import KNOWN
from gpuadvisor.tuners.gate.decision import LOOKS
from gpuadvisor.tuning.gate.options import GateOptions
from gpuadvisor.tuning.gate.runs import GateProgress, Runs
from gpuadvisor.tuning.gate.sides import both_places, ready
from gpuadvisor.tuning.preparation import devices_for, refuse_contention, reserved, target_python
from gpuadvisor.tuning.trials.trial_runner import Side

BEFORE = 2 + KNOWN
"""Runs of a gate before its pairs: one of each version, and those that say how much runs differ."""
FEWEST_RUNS, MOST_RUNS = BEFORE + 2 * LOOKS[0], BEFORE + 2 * LOOKS[-1]


@dataclass(frozen=True)
class Tried:
    """What a script took in a run as a gate makes it."""

    device: Device
    measurement: Measurement
    run_s: float
    """Time of the whole run."""

    @property
    def fewest_s(self) -> float:
        """Time of a gate where nothing got worse and the machine is quiet."""
        return FEWEST_RUNS * self.run_s

    @property
    def most_s(self) -> float:
        """Time of a gate that stays inconclusive."""
        return MOST_RUNS * self.run_s


def try_script(
    options: GateOptions, progress: GateProgress, cancelled: Callable[[], bool]
) -> Tried:
    """Run the script in a work tree of what the user's folder holds: to see it work, then measured.

    ScriptError where it does not run there, RefusedError where something else uses the GPU.
    """
    python = target_python(options.command)
    options = replace(options, command=replace(options.command, python=python.executable))
    commit = Repository.around(Path(options.command.folder or ".")).work_tree().commit
    options = replace(options, base=commit, head=commit)
    device = devices_for(python, 1)[0]
    with reserved([device], both_places(options)) as (place, _, _):
        refuse_contention(device)
        side = ready(place, options.command, options.own[1], python, {})
        runs = Runs(options, device, progress, cancelled)
        version = Side(side.command, device, side.settings, side.environment)
        run = runs.run(version, "base", "first")
        if not run.problem:
            run = runs.run(version, "base", "what it takes")
    if run.problem or run.trial.measurement is None:
        raise ScriptError(
            f"{options.command.script} does not run in a new work tree, as a gate needs it "
            f"({run.problem}); what it reads that git ignores can be given with --link",
            runs.outputs["base"],
        )
    return Tried(device, run.trial.measurement, run.trial.wall_s)
