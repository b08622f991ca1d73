"""The gate: runs two versions of a script in turns, and says whether the new one got worse."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from gpuadvisor.collectors.clocks import ClockSampler
from gpuadvisor.collectors.environment import environment
from gpuadvisor.collectors.interpreter import TargetPython
from gpuadvisor.collectors.script.request import Command, Event
from gpuadvisor.collectors.script.specification import Schedule
from gpuadvisor.collectors.worktrees import Repository, Version
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.gate import GateResult, GateRun, GateSide, GateVerdict
from gpuadvisor.domain.knobs import Level
from gpuadvisor.domain.study import Objective, TrialState
from gpuadvisor.errors import RefusedError, ScriptError, UsageError
from gpuadvisor.tuners.gate import LIMIT, TOLERANCE, Compared, Comparing
from gpuadvisor.tuners.proof import Delay
from gpuadvisor.tuning.preparation import (
    check_script,
    devices_for,
    gpu_contention,
    reserved,
    target_python,
)
from gpuadvisor.tuning.trial_runner import Progress, Side, Silent, TrialRunner
from gpuadvisor.tuning.validator import TrialValidator

MEASURE_S = 4.0
"""Time for which a run is measured: 80 steps of 50 ms. Runs differ by more than steps do, so longer
ones tell little more."""
FIRST = Schedule(warmup_s=0.0, measure_s=0.2, min_steps=2)
"""The first run of a version only shows whether it works. It is not compared: it finds caches of
files, byte code and compiled kernels empty."""
KNOWN = 2
"""Runs of the base before the pairs, which say how much its runs differ: with them four pairs can
show a gross regression."""
OF_GPU = "GPU"
"""Word by which `collectors.load` tells what disturbed the GPU, not the CPU."""


@dataclass(frozen=True)
class GateOptions:
    """What to compare, and how closely."""

    command: Command
    """As in the user's folder; its script and folder are looked for in both versions."""
    base: str | None = None
    """A commit; None where folders are compared."""
    head: str | None = None
    """A commit; None for the work tree as it is."""
    folders: tuple[Path, Path] | None = None
    """Folders of the base and of the head, instead of commits."""
    links: tuple[str, ...] = ()
    """Files and folders that git does not hold, relative to the user's folder, which both versions
    get as symbolic links."""
    tolerance: float = TOLERANCE
    limit: float = LIMIT
    seed: int = 0
    samples_per_step: float | None = None
    timeout_s: float = 600.0
    """Longest wait for the first step of the base."""
    measure_s: float = MEASURE_S


class GateProgress(Protocol):
    """Hears of everything as it happens."""

    def on_message(self, sentence: str) -> None:
        """Show a sentence to the user."""

    def on_run_start(self, side: str, place: str) -> None:
        """Note that a run of a version begins, and what it is for."""

    def on_run_end(self, run: GateRun) -> None:
        """Note that it ended."""


def gate(
    options: GateOptions, progress: GateProgress, cancelled: Callable[[], bool] = lambda: False
) -> GateResult:
    """Compare two versions of a script on the first GPU that it would see, else on the CPU.

    Raises UsageError for what cannot be done, RefusedError where something else uses the GPU or
    holds it down, ScriptError where the script fails in both versions, and Interrupted when it was
    cancelled. No work tree and no process is left in any case.
    """
    if options.tolerance >= options.limit:
        raise UsageError("--tolerance has to be smaller than --limit")
    python = target_python(options.command)
    options = replace(options, command=replace(options.command, python=python.executable))
    device = devices_for(python, 1)[0]
    with reserved([device]), _sides(options, python) as (base, head, notes):
        if warning := gpu_contention(device):
            raise RefusedError(f"{warning}; wait until it is free, or choose another GPU")
        for note in notes:
            progress.on_message(note)
        return _Gate(options, python, device, base, head, progress, cancelled, notes).run()


@dataclass(frozen=True)
class _Version:
    """One side, ready to be run."""

    side: GateSide
    command: Command
    environment: dict[str, str]


@dataclass
class _Gate:
    """A gate in progress."""

    options: GateOptions
    python: TargetPython
    device: Device
    base: _Version
    head: _Version
    progress: GateProgress
    cancelled: Callable[[], bool]
    notes: tuple[str, ...]
    runs: list[GateRun] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)
    """The end of what each side's last run printed."""

    def __post_init__(self) -> None:
        self._began_s = time.monotonic()
        self._clock = ClockSampler(self.device)
        self._delay = Delay(str(self.options.seed))
        self._validator = TrialValidator(Objective.THROUGHPUT, Level.BALANCED, None, {})
        listen: Callable[[GateProgress, ClockSampler], Progress] = _Ears
        self._runner = TrialRunner(
            {},
            self._validator,
            FIRST,
            self.options.seed,
            self.options.samples_per_step,
            self.options.timeout_s,
            cancelled=self.cancelled,
            progress=listen(self.progress, self._clock),
            delay_s=lambda: self._delay.next_s([run.trial for run in self.runs]),
        )

    def run(self) -> GateResult:
        first = {side: self._run(side, "first") for side in ("base", "head")}
        if any(run.trial.state is not TrialState.COMPLETE for run in first.values()):
            return self._broken(first)
        self._runner.schedule = Schedule(measure_s=self.options.measure_s)
        known = [self._run("base", "known") for _ in range(KNOWN)]
        compared = Comparing(
            self._run,
            [run for run in known if run.trial.state is TrialState.COMPLETE],
            self.options.tolerance,
            self.options.limit,
            str(self.options.seed),
            self._disturbed,
        ).go()
        if compared.failed is not None:
            return self._broken({compared.failed.side: compared.failed}, compared)
        return self._result(compared.verdict, "", compared)

    def _run(self, side: str, place: str) -> GateRun:
        version = self.base if side == "base" else self.head
        self.progress.on_run_start(side, place)
        # A new process for each; the phase is one in which none is forked and delays are drawn.
        self._clock.end()
        trial, outcome = self._runner.run(
            Side(version.command, self.device, environment=version.environment), "proof"
        )
        self.outputs[side] = outcome.output
        # `Delay` and readers of the trials tell the sides apart by their settings.
        trial = replace(trial, settings={} if side == "base" else {"version": "head"})
        if self._validator.baseline is None and side == "base" and trial.measurement is not None:
            self._validator.baseline = trial.measurement  # limits of all further runs
        run = GateRun(side, trial, self._clock.end(), place)
        self.runs.append(run)
        self.progress.on_run_end(run)
        return run

    def _disturbed(self, disturbance: str, repeated: bool) -> None:
        """Refuse where something else has the GPU or holds it down; else say it."""
        if repeated:
            self.progress.on_message(f"this pair is run again: {disturbance}")
        elif OF_GPU in disturbance:
            raise RefusedError(
                f"{disturbance}, also when runs were repeated: versions cannot be compared so; "
                "wait until the GPU is free and cool, or choose another one"
            )

    def _broken(self, failed: dict[str, GateRun], compared: Compared | None = None) -> GateResult:
        """Return what follows where a version does not run; ScriptError where neither does."""
        why = {
            side: f"{str(run.trial.state).replace('_', ' ')}: {run.trial.reason}"
            for side, run in failed.items()
            if run.trial.state is not TrialState.COMPLETE
        }
        if len(why) == 2:
            raise ScriptError(
                f"the script fails in both versions ({why['base']}): it has to run before its "
                "speed can be compared",
                self.outputs["base"],
            )
        (broken,) = why
        version = self.base if broken == "base" else self.head
        if broken == "head":
            verdict = GateVerdict.FAIL
            reason = (
                f"{version.side.name} is broken where {self.base.side.name} runs: {why['head']}"
            )
        else:
            verdict = GateVerdict.INCONCLUSIVE
            reason = (
                f"{version.side.name} is broken, so there is nothing to compare with: {why['base']}"
            )
        result = self._result(verdict, reason, compared or Compared())
        return replace(result, broken=broken, output=self.outputs[broken])

    def _result(self, verdict: GateVerdict, reason: str, compared: Compared) -> GateResult:
        here = environment(self.python, self.device, self.head.command.script)
        return GateResult(
            verdict,
            reason,
            self.base.side,
            self.head.side,
            compared.differences,
            compared.pairs,
            tuple(self.runs),
            None,
            self.notes,
            replace(here, git_commit=None, git_dirty=None),
            time.monotonic() - self._began_s,
        )


class _Ears(Silent):
    """Hears of a run for the gate: it has clocks read while steps are measured."""

    def __init__(self, progress: GateProgress, clock: ClockSampler) -> None:
        self._progress, self._clock = progress, clock

    def on_message(self, sentence: str) -> None:
        self._progress.on_message(sentence)

    def on_event(self, number: int, event: Event) -> None:
        if event["event"] == "warm":
            self._clock.begin()
        elif event["event"] == "measured":
            self._clock.pause()


# -- the two sides -------------------------------------------------------------------------------


@contextmanager
def _sides(
    options: GateOptions, python: TargetPython
) -> Iterator[tuple[_Version, _Version, tuple[str, ...]]]:
    """Yield both versions and what the user should know of them; work trees go with the block."""
    if options.folders is not None:
        base, head = (_in_folder(options.command, folder) for folder in options.folders)
        yield base, head, ()
        return
    assert options.base is not None  # the command asked for one of both
    repository = Repository.around(Path.cwd())
    command = _relative(options.command, repository)
    named = repository.version(options.base)
    head_version = (
        repository.work_tree() if options.head is None else repository.version(options.head)
    )
    base_version = repository.base_of(named, head_version)
    notes = []
    if base_version.commit != named.commit:
        notes.append(
            f"{named.name} went on since: compared is {base_version.commit[:12]}, where "
            f"{head_version.name} left it"
        )
    if base_version.commit == head_version.commit:
        notes.append(f"both are commit {base_version.commit[:12]}: what differs is noise")
    _check_versions(repository, command, base_version, head_version)
    with repository.checked_out(base=base_version, head=head_version) as folders:
        sides = []
        for version, root in zip((base_version, head_version), folders.values(), strict=True):
            folder = root / repository.inside
            folder.mkdir(parents=True, exist_ok=True)
            for link in options.links:
                _link(repository.root / repository.inside / link, folder / link)
            placed = replace(command, folder=str(folder))
            variables = _python_path(repository.root, root, python)
            commit = version.commit if version.is_committed else None
            side = GateSide(version.name, commit, tuple(placed.line()), str(folder))
            sides.append(_Version(side, placed, variables))
        yield sides[0], sides[1], tuple(notes)


def _in_folder(command: Command, folder: Path) -> _Version:
    """Return the script of a folder that the user names."""
    if Path(command.script).is_absolute() and not command.is_module:
        raise UsageError(f"{command.script}: give its path relative to the two folders")
    placed = replace(command, folder=str(folder.resolve()))
    check_script(placed)
    side = GateSide(str(folder), None, tuple(placed.line()), str(folder.resolve()))
    return _Version(side, placed, {})


def _relative(command: Command, repository: Repository) -> Command:
    """Return the command with a script that is found in any work tree; UsageError if it cannot."""
    check_script(command)
    script = Path(command.script)
    if command.is_module:
        return command
    top = repository.root.resolve()
    if not (Path.cwd() / script).resolve().is_relative_to(top):
        raise UsageError(f"{script} is not in the repository {top}, so it has no versions there")
    return replace(command, script=os.path.relpath(script.absolute(), Path.cwd()))


def _check_versions(repository: Repository, command: Command, base: Version, head: Version) -> None:
    """Raise UsageError where a version lacks the script or needs more than a work tree holds."""
    for version in (base, head):
        if repository.submodules(version):
            raise UsageError(
                f"{version.name} has submodules, which a new work tree lacks: clone both versions "
                "with `git clone --recurse-submodules` and give --base-folder and --head-folder"
            )
    if command.is_module:
        return
    path = Path(os.path.normpath(repository.inside / command.script))
    have = {version.name: repository.holds(version, path) for version in (base, head)}
    if all(have.values()):
        return
    lacking = base if not have[base.name] else head
    if have[base.name] != have[head.name]:
        other = head if lacking is base else base
        raise UsageError(
            f"{path} is in {other.name}, but not in {lacking.name} ({lacking.commit[:12]}): there "
            "is nothing to compare it with; name a script that both have, or another --base"
        )
    raise UsageError(f"{path} is in neither version: git does not hold it; `git add` it first")


def _link(source: Path, link: Path) -> None:
    """Give a version what git does not hold, unless it holds it all the same."""
    if not source.exists():
        raise UsageError(f"--link {source.name}: there is no {source}")
    if not link.exists() and not link.is_symlink():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(source.resolve())


def _python_path(top: Path, root: Path, python: TargetPython) -> dict[str, str]:
    """Return where Python looks for packages whose source is in the repository.

    A package that is installed from the user's folder (`pip install -e .`) would else be the same
    in both versions, and so would what $PYTHONPATH names there.
    """
    here = top.resolve()
    entries = []
    for folder in python.editable:
        path = Path(folder).resolve()
        if path.is_relative_to(here):
            mapped = root / path.relative_to(here)
            # Only where its packages are: a folder `datasets` beside them is no package of theirs.
            entries.append(str(mapped / "src" if (mapped / "src").is_dir() else mapped))
    for entry in filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        path = Path(entry).resolve()
        inside = path.is_relative_to(here)
        entries.append(str(root / path.relative_to(here)) if inside else entry)
    return {"PYTHONPATH": os.pathsep.join(entries)} if entries else {}
