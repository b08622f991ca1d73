"""The gate: runs two versions of a script in turns, and says whether the new one got worse."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from gpuadvisor.collectors.environment import environment
from gpuadvisor.collectors.gpu_errors import GpuErrors
from gpuadvisor.collectors.interpreter import TargetPython
from gpuadvisor.collectors.script.run_folder import run_folder
from gpuadvisor.collectors.script.templates import NoTemplateError
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.explanation import EXPLAINED, Explanation
from gpuadvisor.domain.gate import GateResult, GateRun, GateVerdict
from gpuadvisor.domain.knobs import Settings
from gpuadvisor.errors import AdvisorError, Interrupted, RefusedError, ScriptError, UsageError
from gpuadvisor.tuners.gate.comparing import Compared, Comparing
from gpuadvisor.tuners.gate.decision import LOOKS
from gpuadvisor.tuners.gate.metrics import check_names, chosen
from gpuadvisor.tuners.gate.obstacle import left_open
from gpuadvisor.tuning.gate.counting import Counting
from gpuadvisor.tuning.gate.forking import DependsError, FailedError
from gpuadvisor.tuning.gate.in_turns import STARTUP, InTurns
from gpuadvisor.tuning.gate.lengths import AGAIN
from gpuadvisor.tuning.gate.options import GateOptions
from gpuadvisor.tuning.gate.runs import GateProgress, Runs
from gpuadvisor.tuning.gate.setting_up import SetUp, SetUps
from gpuadvisor.tuning.gate.sides import (
    ReadySide,
    both_places,
    differences,
    files_in,
    ready,
    settings_of,
)
from gpuadvisor.tuning.gate.unfinished import told_of
from gpuadvisor.tuning.preparation import (
    devices_for,
    refuse_contention,
    reserved,
    target_python,
)
from gpuadvisor.tuning.trials.in_turns import ApartError
from gpuadvisor.tuning.trials.trial_runner import Side

SIDES = ("base", "head")
MISSING = ("FileNotFoundError", "ModuleNotFoundError", "No such file")
"""Words in the error of a run, any of which tells that the script did not find a file."""
Explain = Callable[[Side, Side, GateOptions, GateResult], Explanation]
"""Says why the head of a gate that failed is slower than its base, while both are still there."""


def gate(
    options: GateOptions, progress: GateProgress, cancelled: Callable[[], bool] = lambda: False
) -> GateResult:
    """Compare two versions of a script on the first GPU that it would see, else on the CPU.

    Raises UsageError for what cannot be done, RefusedError where something else uses the GPU or
    holds it down, ScriptError where the script fails in both versions, and Interrupted when it was
    cancelled, which says what the pairs so far have shown. No work tree and no process is left in
    any case.
    """
    with closing(gates([options], progress, cancelled)) as found:
        result = next(found)
    if isinstance(result, AdvisorError):
        raise result
    return result


def gates(
    benchmarks: Sequence[GateOptions],
    progress: GateProgress,
    cancelled: Callable[[], bool] = lambda: False,
    explain: Explain | None = None,
) -> Generator[GateResult | AdvisorError]:
    """Compare several benchmarks of the same two sides one after the other, as `gate` does one.

    What both sides are, all have in common. Yields the result of each, or the RefusedError or
    ScriptError because of which there is none. `explain` is asked why a time or energy failed; the
    verdict stands whatever it says. Work trees are gone when it is closed.
    """
    check_names(tuple(name for each in benchmarks for name in (*each.metrics, *each.only)))
    first = benchmarks[0]
    settings = [settings_of(own) for own in first.own]
    found = {python: target_python(each) for each in first.commands() if (python := each.python)}
    pythons = [found[each.python] for each in first.commands()]
    device = _common_device(pythons)
    with (
        reserved([device], both_places(*benchmarks)) as (*places, notes),
        run_folder() as above,
        closing(GpuErrors(device)) as errors,
    ):
        setups = SetUps(above, progress.on_message, cancelled)
        own = {place.folder: str(place.root or place.folder) for place in places}
        roots = tuple(own.values()) if len(own) == 2 else ()
        tops = [place.root or place.folder for place in places]
        for options in benchmarks:
            try:
                refuse_contention(device)
                sides = map(ready, places, options.commands(), options.own, pythons, settings)
                done = [setups.of(side, options.setup) for side in sides]
                base, head = (each.side for each in done)
                said = (*notes, *differences(base, head))
                for note in said:
                    progress.on_message(note)
                of = options, device, base, head, progress, cancelled, said, roots, errors, tops
                made = _Gate(*of)
                result = made.run(done)
                yield result if explain is None else made.explained(result, explain)
            except (RefusedError, ScriptError) as error:
                yield error


def _without_startup(compared: Compared, why: str) -> Compared:
    """Return what was found without what only a process that starts by itself has."""
    rest = tuple(each for each in compared.differences if each.metric != STARTUP)
    if len(rest) == len(compared.differences):
        return compared
    why = f"{why}: --metric {STARTUP} has fresh ones measured, one after the other"
    return replace(compared, differences=rest, unmeasured=(*compared.unmeasured, (STARTUP, why)))


def _common_device(pythons: Sequence[TargetPython]) -> Device:
    """Return the device on which both sides run; UsageError where one of them cannot use it."""
    devices = [devices_for(python, 1)[0] for python in pythons]
    if devices[0].kind != devices[1].kind:
        blind = pythons[0] if devices[1].is_gpu else pythons[1]
        why = blind.cuda_problem or "its torch is built without CUDA"
        raise UsageError(
            f"both sides run on one device, but {blind.executable} can use no GPU ({why}): "
            "CUDA_VISIBLE_DEVICES= in the environment compares them on the CPU"
        )
    return devices[0]


@dataclass
class _Gate:
    """A gate in progress."""

    options: GateOptions
    device: Device
    base: ReadySide
    head: ReadySide
    progress: GateProgress
    cancelled: Callable[[], bool]
    notes: tuple[str, ...]
    own: tuple[str, ...]
    """Folders in which nothing is a library, but both versions have their own."""
    errors: GpuErrors
    """What the driver tells of the GPU meanwhile."""
    tops: Sequence[Path]
    """Top folders of both sides."""

    def __post_init__(self) -> None:
        self._there = [files_in(top) for top in self.tops]
        """What both had when they were ready."""
        self._began_s = time.monotonic()
        options, progress, cancelled = self.options, self.progress, self.cancelled
        self._metrics = chosen(options.metrics, options.only)
        self._counted_from = 0
        """The first of all runs that is compared; those of pairs before it do not count."""
        counting = Counting(self.device, self._metrics)
        self._runs = Runs(
            options, self.device, progress, cancelled, counting, self.errors, saves=True
        )
        self._said: list[str] = []
        """What the user should know of how both versions were run."""

    def run(self, setups: Sequence[SetUp]) -> GateResult:
        try:
            return self._run_both(setups)
        except Interrupted:
            names = self.base.side.name, self.head.side.name
            count = self._runs.all[self._counted_from :]
            raise Interrupted(told_of(count, *names, self._metrics)) from None
        finally:
            self._runs.end_forks()

    def _run_both(self, setups: Sequence[SetUp]) -> GateResult:
        self._runs.outputs |= dict(zip(SIDES, (each.output for each in setups), strict=True))
        failed = zip(SIDES, (each.problem for each in setups), strict=True)
        problems = {side: f"set-up failed: {why}" for side, why in failed if why}
        if self.base.lacks or self.head.lacks:
            return self._of_one_script(problems.get("head", ""))
        if problems:
            return self._broken(problems)
        first = self._begun_both()
        if "base" not in first:
            first["base"] = self._run("base", "first")
            if self._may_fork and not first["base"].problem:
                self._runs.fork_ahead(self._side("base"), self.own)
        if "head" not in first:
            first["head"] = self._run("head", "first")
        if problems := {side: why for side, run in first.items() if (why := run.problem)}:
            return self._failed(problems)
        self._check_samples(first)
        compared = self._compared(first)
        if compared.failed is not None:
            return self._failed({compared.failed.side: compared.failed.problem}, compared)
        return self._result(compared.verdict, "", compared)

    def _compared(self, first: Mapping[str, GateRun]) -> Compared:
        """Return what pairs of runs show: of forked ones, unless forking is found to matter."""
        if self._runs.only_counts:  # a few starts, none of them timed
            return self._comparing(first).go()
        if self._may_fork:
            try:
                self._runs.fork({side: self._side(side) for side in SIDES}, self.own)
            except NoTemplateError as error:
                self._runs.end_forks()
                self._said.append(f"each run imports anew: {error}")
        try:
            compared = self._pairs(first)
        except DependsError as error:
            self._runs.end_forks()
            why = f"each run imports anew: in a process that had imported before, {error}"
            if not isinstance(error, FailedError):
                self._said.append(why)
                self.progress.on_message(why)
                return self._pairs(first)
            self.progress.on_message(f"{error}: runs that import anew show whether it fails anyway")
            compared = self._pairs(first)
            if compared.failed is None:  # what fails anyway is no matter of that process
                self._said.append(f"{why}, and afresh it could")
            return compared
        if not (forked := self._runs.how_forked):
            return compared
        self._said.append(forked)
        # Of forked runs it lacks what was imported before.
        return _without_startup(compared, "runs were forked")

    def _pairs(self, first: Mapping[str, GateRun]) -> Compared:
        """Return what pairs of runs show: in turns, unless that is found not to do."""
        folders = self.base.side.folder, self.head.side.folder
        of = self.options, self.device, self._runs, folders, first, self._run_pair
        turns = InTurns(*of, self._plans)
        comparing = self._comparing(first, turns)
        try:
            compared = comparing.go()
        except ApartError as error:
            turns.give_up(f"{error}, when both were alive and took turns")
            self.progress.on_message(
                f"{error}: from here on pairs are run one after the other, and those that took "
                "turns do not count"
            )
            known, comparing = comparing.known, self._comparing(first, turns)
            comparing.known = known
            compared = comparing.go()
        if compared.failed is None:  # else runs that are alone fail, too
            self._said += filter(None, [turns.told])
        if turns.were_taken:
            compared = _without_startup(compared, "both versions started at the same time")
        return compared

    def _begun_both(self) -> dict[str, GateRun]:
        """Return those first runs that could be made while both versions started side by side.

        On a CPU they would start on the same cores, which takes as long. In one folder each would
        find what the other one writes.
        """
        folders = {side.side.folder for side in (self.base, self.head)}
        if not (self.device.is_gpu and self._may_fork and len(folders) == 2):
            return {}
        return self._runs.begin_both(self._side("base"), self._side("head"), self.own)

    @property
    def _may_fork(self) -> bool:
        """Whether runs are forked, unless something speaks against it."""
        wants_startup = STARTUP in (*self.options.metrics, *self.options.only)
        return not (self._runs.only_counts or wants_startup)

    @property
    def _plans(self) -> tuple[Settings, Settings] | None:
        """The settings of both sides, where they differ in nothing else."""
        base, head = self.base, self.head
        same = (base.command, base.environment) == (head.command, head.environment)
        return (base.settings, head.settings) if same and base.settings != head.settings else None

    def _comparing(self, first: Mapping[str, GateRun], turns: InTurns | None = None) -> Comparing:
        self._counted_from = len(self._runs.all)
        return Comparing(
            self._run,
            tuple(first.values()),
            self.options.tolerance,
            self.options.limit,
            str(self.options.seed),
            self._runs.disturbed,
            self.progress.on_message,
            self.options.metrics,
            self.options.only,
            self.options.error_share,
            self._runs.same_steps,
            *((turns.both, turns.disturbs) if turns is not None else ()),
        )

    def explained(self, result: GateResult, explain: Explain) -> GateResult:
        """Return a result with why the head is slower, where a time or energy of it failed."""
        failed = [e for e in result.differences if e.verdict is GateVerdict.FAIL]
        if result.broken or not any(e.metric in EXPLAINED for e in failed):
            return result
        explanation = explain(self._side("base"), self._side("head"), self.options, result)
        wall_s = time.monotonic() - self._began_s
        return replace(result, explanation=explanation, wall_s=wall_s)

    def _run(self, side: str, place: str) -> GateRun:
        return self._runs.run(self._side(side), side, place)

    def _run_pair(self, sides: Sequence[str], place: str) -> Mapping[str, GateRun]:
        return self._runs.run_both({side: self._side(side) for side in sides}, sides, place)

    def _side(self, side: str) -> Side:
        version = self.base if side == "base" else self.head
        return Side(version.command, self.device, version.settings, version.environment)

    def _check_samples(self, first: Mapping[str, GateRun]) -> None:
        """Raise UsageError where a plan may change what a step is, and samples are not counted."""
        sources = {m.samples_source for run in first.values() if (m := run.trial.measurement)}
        for side in (self.base, self.head):
            if sources & {None, "user"} and self._runs.resizes(side.settings):
                raise UsageError(
                    f"{side.side.name} may change how much work a step is, and the samples of a "
                    "step are not known: let the script read its batches from a DataLoader, or "
                    "leave that setting out of the plan"
                )

    def _of_one_script(self, problem: str) -> GateResult:
        """Return what follows where one version lacks the script: it was lost, or it is new.

        A new one has to run; `problem` says why it cannot, if that is known already.
        """
        base, head = self.base.side.name, self.head.side.name
        if self.head.lacks:
            reason = f"{head} lacks {self.head.lacks}, which {base} has"
            return replace(self._result(GateVerdict.FAIL, reason, Compared()), broken="head")
        new = f"{self.base.lacks} is new, {base} lacks it"
        if problem := problem or self._run("head", "first").problem:
            reason = f"{new}, and in {head} it does not run: {problem}"
            found = self._result(GateVerdict.FAIL, reason, Compared())
            return replace(found, broken="head", output=self._runs.outputs["head"])
        reason = f"{new}, so that there is nothing to compare it with; it runs"
        return self._result(GateVerdict.PASS, reason, Compared())

    def _failed(self, why: Mapping[str, str], compared: Compared | None = None) -> GateResult:
        """Return what follows where runs failed; RefusedError where it is not the versions' doing.

        It is not where files of the failed one are gone, unless the other one lost the same, as
        what a script removes itself. Nor where the other version fails, too, by now.
        """
        names = dict(zip(SIDES, (self.base.side.name, self.head.side.name), strict=True))
        now = zip(self._there, self.tops, strict=True)
        gone = dict(zip(SIDES, (there - files_in(top) for there, top in now), strict=True))
        for side, other in (SIDES, SIDES[::-1]):
            lost = sorted(gone[side] - gone[other])
            if side in why and lost:
                more = f" and {len(lost) - 1} more files" if lost[1:] else ""
                raise RefusedError(
                    f"{names[side]} fails ({why[side]}), but {lost[0]}{more} of its folder "
                    f"{'are' if more else 'is'} gone since the gate began: whatever removed that, "
                    "nothing can be compared so; keep it from that, and try again"
                )
        side, other = SIDES if "base" in why else SIDES[::-1]
        last = self._runs.all[-1]
        if len(why) == 1 and (last.side == side or last.problem):
            self._runs.end_forks()
            if problem := self._run(other, AGAIN).problem:
                raise RefusedError(
                    f"{names[side]} fails ({why[side]}), but by now so does {names[other]}, which "
                    f"ran before ({problem}): something besides the versions has changed since the "
                    f"gate began{self._left_behind()}; try again"
                )
        return self._broken(why, compared)

    def _left_behind(self) -> str:
        """Return, as clauses, that runs may fail by what earlier ones of the same version left."""
        grown = zip(self._there, self.tops, strict=True)
        new = sorted(path for there, top in grown for path in files_in(top) - there)
        found = f"such as {new[0]}" if new else "if it is that"
        return (
            ", or the script fails by what its earlier runs left behind: a version's runs share a "
            f"folder, so have it remove or bear that, {found}"
        )

    def _broken(self, why: Mapping[str, str], compared: Compared | None = None) -> GateResult:
        """Return what follows where a version does not run; ScriptError where neither does."""
        if len(why) == 2:
            raise ScriptError(
                f"the script fails in both versions ({why['base']}): it has to run before its "
                f"speed can be compared{self._may_be_ignored(why['base'])}",
                self._runs.outputs["base"],
            )
        (broken,) = why
        base, head = self.base.side.name, self.head.side.name
        if broken == "head":
            verdict = GateVerdict.FAIL
            reason = f"{head} {self._how_often('head')} where {base} runs: {why['head']}"
        else:
            verdict = GateVerdict.INCONCLUSIVE
            reason = (
                f"{base} {self._how_often('base')}, so there is nothing to compare with, but with "
                f"a version that runs there is: {why['base']}"
            )
        result = self._result(verdict, reason, compared or Compared())
        return replace(result, broken=broken, output=self._runs.outputs[broken])

    def _how_often(self, side: str) -> str:
        """Return that a version does not run, and in how many of its runs where that is not all."""
        problems = [run.problem for run in self._runs.all if run.side == side]
        failed = len(list(filter(None, problems)))
        if failed == len(problems):
            return "is broken"
        return f"fails in {failed} of {len(problems)} runs"

    def _failures(self) -> Iterator[str]:
        """Yield, of each version that runs, in how many of its runs it failed, if it did."""
        for side, version in zip(SIDES, (self.base, self.head), strict=True):
            problems = [why for run in self._runs.all if run.side == side and (why := run.problem)]
            if problems:
                how_often = self._how_often(side)
                yield f"{version.side.name} {how_often}, which do not count: {problems[-1]}"

    def _may_be_ignored(self, why: str) -> str:
        """Return, as a clause, what gives a new work tree a file that a script does not find."""
        is_missing = any(error in why for error in MISSING)
        if not is_missing or self.base.side.commit is None:
            return ""
        return "; what it reads that git ignores can be given with --link"

    def _saved(self, compared: Compared) -> Iterator[str]:
        """Yield what kept a comparison from being decided, and what ending early has saved."""
        if compared.verdict is GateVerdict.INCONCLUSIVE and not compared.failed:
            helps = compared.obstacle or left_open(compared.differences)
            yield from filter(None, [helps])
        if compared.hopeless:
            left = LOOKS[-1] - compared.pairs
            pair_s = 2 * median(run.trial.wall_s for run in self._runs.all)
            yield (
                f"it ended after {compared.pairs} pairs, as runs differ so much that {left} more, "
                f"of about {left * pair_s / 60:.0f} min, would hardly have told"
            )

    def _result(self, verdict: GateVerdict, reason: str, compared: Compared) -> GateResult:
        here = environment(self.head.python, self.device, self.head.command.script)
        idle = sorted(self._runs.untried({**self.base.settings, **self.head.settings}))
        limited = filter(None, [self._runs.limited])
        failed = [] if reason else self._failures()
        nothing = [f"found nothing to change: {', '.join(idle)}"] if idle and compared.pairs else []
        return GateResult(
            verdict,
            reason,
            self.base.side,
            self.head.side,
            compared.differences,
            compared.pairs,
            tuple(self._runs.all),
            None,
            (*self.notes, *nothing, *failed, *self._said, *limited, *self._saved(compared)),
            replace(here, git_commit=None, git_dirty=None),
            time.monotonic() - self._began_s,
            unmeasured=compared.unmeasured,
        )
