"""Recordings of a script, and a script beside those of other days: a gate with stored baselines."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from difflib import SequenceMatcher
from pathlib import Path
from statistics import median

from gpuadvisor.collectors.environment import environment
from gpuadvisor.collectors.gpu_errors import GpuErrors
from gpuadvisor.collectors.script.request import Command
from gpuadvisor.domain.baseline import RecordedRun, Recording
from gpuadvisor.domain.device import Device, Environment
from gpuadvisor.domain.gate import GateResult, GateRun, GateSide, GateVerdict
from gpuadvisor.errors import Interrupted, RefusedError, ScriptError, UsageError
from gpuadvisor.storage.gate import Baselines, add_to_baselines, check_writable, read_baselines
from gpuadvisor.tuners.gate.comparing import MAX_FAILURES, Compared
from gpuadvisor.tuners.gate.metric import measured
from gpuadvisor.tuners.gate.metrics import check_names
from gpuadvisor.tuners.gate.obstacle import left_open
from gpuadvisor.tuners.gate.stored import (
    LEAST,
    RUNS,
    compare_with_days,
    days_of,
    gap_among,
    level_of,
)
from gpuadvisor.tuners.proof import MAX_REPEATED
from gpuadvisor.tuning.gate.options import GateOptions
from gpuadvisor.tuning.gate.runs import GateProgress, Runs
from gpuadvisor.tuning.gate.unfinished import RUN, told_of_check, told_of_recording
from gpuadvisor.tuning.preparation import (
    check_script,
    devices_for,
    refuse_contention,
    reserved,
    target_python,
)
from gpuadvisor.tuning.trials.trial_runner import Side

OTHER_CLOCKS = 1.05
"""Ratio of SM clocks beyond that of any recorded day from which clocks were set differently:
locked, or not any more. The driver does not tell; with temperature and load they move by less."""
GIB = 1 << 30
SCRIPT = "script"
"""What of a recording's key says the script with its arguments."""
ALIKE = 0.75
"""Share of their letters that two names have in common, in order, from which one may be meant to be
the other: of two letters of four that are swapped it is just that. [own]"""
MOST_MEANT = 3
"""Names that are proposed."""


@dataclass(frozen=True)
class Baseline:
    """A name among recordings, and the file that holds them."""

    name: str
    file: Path


@dataclass(frozen=True)
class Recorded:
    """What a new recording adds to."""

    recording: Recording
    days: int
    """Recorded days that a check would compare with, this one included."""


def record(
    baseline: Baseline,
    options: GateOptions,
    progress: GateProgress,
    cancelled: Callable[[], bool] = lambda: False,
    runs: int = RUNS,
) -> Recorded:
    """Run a script a few times and keep what it took.

    Raises UsageError and RefusedError as a gate does, ScriptError where the script fails,
    StoreError where nothing can be kept, and Interrupted, which says what was measured by then,
    when it was cancelled; then nothing is.
    """
    read_baselines(baseline.file)  # a damaged file is said before anything runs
    check_writable(baseline.file)
    with _ready(options) as session:
        began = datetime.now(UTC)
        made = Runs(options, session.device, progress, cancelled, None, session.errors)
        try:
            found = _runs(made, session, "base", runs)
        except Interrupted:
            raise Interrupted(told_of_recording(made.all, runs)) from None
        if isinstance(found, GateRun):
            raise ScriptError(
                f"the script fails ({found.problem}): it has to run before its speed can be kept "
                "or compared",
                made.outputs["base"],
            )
    here = session.environment
    recording = Recording(
        baseline.name,
        began.replace(microsecond=0),
        session.key,
        tuple(RecordedRun.of(each, run.sm_clock_mhz) for run in found if (each := measured(run))),
        here.git_commit,
        here.git_dirty,
    )
    add_to_baselines(baseline.file, recording)
    days, _ = level_of(days_alike(read_baselines(baseline.file), baseline.name, session.key))
    return Recorded(recording, len(days))


def check(
    baseline: Baseline,
    options: GateOptions,
    progress: GateProgress,
    cancelled: Callable[[], bool] = lambda: False,
) -> GateResult:
    """Run a script as often as it was recorded, and compare it with the recorded days.

    It is inconclusive, and nothing is run, with fewer days than `LEAST`. Raises RefusedError where
    recordings are of another machine or other software, and as a gate does; UsageError as
    `check_known` and a gate do, Interrupted as a gate does, StoreError where the file cannot be
    read.
    """
    check_names(options.metrics)
    began_s = time.monotonic()
    known = read_baselines(baseline.file)
    check_known(known, baseline, options.command)
    with _ready(options) as session:
        days, changes = level_of(days_alike(known, baseline.name, session.key))
        side = _side(options.command, "now", session.environment)
        base = replace(side, name=f"{len(days)} days of {baseline.name}", commit=None)
        result = GateResult(
            GateVerdict.INCONCLUSIVE, "", base, side, environment=session.environment
        )
        if len(days) < LEAST:
            refuse_others(known, baseline.name, session.key)
            since = f" since {changes[-1].metric.lower()} changed" if changes else ""
            return replace(result, reason=too_few(known, baseline, len(days), since))
        made = Runs(options, session.device, progress, cancelled, None, session.errors)
        count = max(len(day.runs) for day in days)
        try:
            found = _runs(made, session, "head", count)
        except Interrupted:
            told = told_of_check(made.all, count, days, baseline.name)
            raise Interrupted(told) from None
    result = replace(result, runs=tuple(made.all), wall_s=time.monotonic() - began_s)
    if isinstance(found, GateRun):
        reason = f"the script is broken, and ran when it was recorded: {found.problem}"
        return replace(
            result,
            verdict=GateVerdict.FAIL,
            reason=reason,
            broken="head",
            output=made.outputs["head"],
        )
    refuse_other_clocks(days, found)
    new = [each for run in found if (each := measured(run))]
    compared = Compared(
        compare_with_days(days, new, options.tolerance, options.limit, options.metrics)
    )
    missing = sorted(set(options.metrics) - {each.metric for each in compared.differences})
    compared.unanswered = bool(missing)
    notes = []
    if changes:
        newest = changes[-1]
        notes.append(
            f"only days since {newest.at:%Y-%m-%d} count, when {newest.metric.lower()} changed by "
            f"{newest.ratio - 1:+.1%}: `gpuadvisor gate history` shows it"
        )
    notes += filter(None, [gap_among(days, datetime.now(UTC))])
    if compared.verdict is GateVerdict.INCONCLUSIVE:
        notes += filter(None, [left_open(compared.differences)])
    return replace(
        result,
        verdict=compared.verdict,
        differences=compared.differences,
        unmeasured=tuple((name, "not every recording has it") for name in missing),
        notes=tuple(notes),
    )


def key_of(here: Environment, options: GateOptions) -> dict[str, str]:
    """Return what must be equal for two recordings of a name to be compared."""
    device, command = here.device, options.command
    of_device = {
        "GPU": device.name,
        "memory": f"{round((device.memory_bytes or 0) / GIB)} GiB",
        "driver": (here.driver or "unknown").partition(".")[0],
        "power limit": "unknown" if here.power_limit_w is None else f"{here.power_limit_w:.0f} W",
    }
    if not device.is_gpu:
        of_device = {"CPU": device.name, "cores": str(device.cores)}
    found = {
        **of_device,
        "torch": here.torch or "unknown",
        "Python": ".".join(here.python.split(".")[:2]),
        SCRIPT: script_of(command),
        "measured for": f"{options.measure_s:g} s",
    }
    if options.samples_per_step is not None:
        found["samples a step"] = f"{options.samples_per_step:g}"
    return found


def script_of(command: Command) -> str:
    """Return a script with its arguments, as recordings of it have it in their key."""
    script = command.script
    if not command.is_module and Path(script).is_absolute():
        script = str(Path(script).resolve())
        if Path(script).is_relative_to(Path.cwd().resolve()):
            script = str(Path(script).relative_to(Path.cwd().resolve()))
    words = ["-m", script] if command.is_module else [str(Path(script))]
    return shlex.join([*words, *command.args])


def check_known(known: Baselines, baseline: Baseline, command: Command) -> None:
    """Raise UsageError for a name without recordings where one with recordings seems to be meant:
    it has those of the same script, or is spelled nearly so.

    A check of a wrong name would never come to anything, and pass where inconclusive ones may. Any
    other name is new.
    """
    name, script = baseline.name, script_of(command)
    if name in known.names:
        return
    same = {each.name for each in known.recordings if each.key.get(SCRIPT) == script}
    spelled = [each for each in known.names if _is_spelled_like(name, each)]
    if meant := sorted({*spelled} & same) or spelled or sorted(same):
        raise UsageError(
            f"there is no recording of {name} in {baseline.file}: did you mean --name "
            f"{' or '.join(meant[:MOST_MEANT])}? If not, a new name begins with "
            f"`gpuadvisor gate record --name {shlex.quote(name)}`"
        )


def _is_spelled_like(one: str, other: str) -> bool:
    """Say whether a name may be another one with a slip; other digits are meant to be others."""
    digits = ["".join(filter(str.isdigit, each)) for each in (one, other)]
    letters = SequenceMatcher(None, one.casefold(), other.casefold())
    return digits[0] == digits[1] and letters.ratio() >= ALIKE


@dataclass(frozen=True)
class _Session:
    """What a script is measured on."""

    device: Device
    version: Side
    environment: Environment
    key: Mapping[str, str]
    errors: GpuErrors
    """What the driver tells of the GPU meanwhile."""


@contextmanager
def _ready(options: GateOptions) -> Iterator[_Session]:
    """Keep others away from the device until the block ends; errors as of a gate."""
    check_script(options.command)
    python = target_python(options.command)
    device = devices_for(python, 1)[0]
    command = replace(options.command, python=python.executable, folder=str(Path.cwd()))
    with reserved([device], closing(GpuErrors(device))) as errors:
        refuse_contention(device)
        here = environment(python, device, command.script)
        yield _Session(device, Side(command, device), here, key_of(here, options), errors)


def _runs(made: Runs, session: _Session, side: str, count: int) -> list[GateRun] | GateRun:
    """Return so many runs that were measured, or the one that failed for good."""
    first = made.run(session.version, side, "first")
    if measured(first) is None:
        return first
    found: list[GateRun] = []
    repeated = failures = 0
    while len(found) < count:
        run = made.run(session.version, side, f"{RUN}{len(found) + 1}")
        if measured(run) is None:
            failures += 1
            if failures > MAX_FAILURES:
                return run
            continue
        if run.trial.disturbance:
            may = repeated < MAX_REPEATED
            repeated += may
            made.disturbed(run.trial.disturbance, may, "this run is")
            if may:
                continue
        found.append(run)
    return found


ASKED_FOR = frozenset({SCRIPT, "measured for"})
"""What of a recording's key the command says, and no machine."""


def days_alike(known: Baselines, name: str, key: Mapping[str, str]) -> list[Recording]:
    """Return the days of a baseline that can be compared with this machine."""
    accepted = known.accepted(name)
    alike = [each for each in known.recordings_of(name) if dict(each.key) == dict(key)]
    return days_of(alike, accepted.at if accepted else None)


def refuse_others(known: Baselines, name: str, key: Mapping[str, str]) -> None:
    """Raise RefusedError where all recordings of a name are of something else."""
    recordings = known.recordings_of(name)
    if not recordings or any(dict(each.key) == dict(key) for each in recordings):
        return
    newest = recordings[-1].key
    others = [w for w in dict.fromkeys((*key, *newest)) if key.get(w) != newest.get(w)]
    differ = "; ".join(
        f"{what} is {key.get(what, 'none')}, and was {newest.get(what, 'none')}" for what in others
    )
    way = "check it where it was recorded, or record it here"
    if ASKED_FOR.issuperset(others):
        way = "check it as it was recorded (script, arguments, --measure), or record it so"
    raise RefusedError(f"the recordings of {name} cannot be compared with: {differ}: {way}")


def refuse_other_clocks(days: Sequence[Recording], runs: Sequence[GateRun | RecordedRun]) -> None:
    """Raise RefusedError where the SM clock is beyond that of all recorded days."""
    then = [[run.sm_clock_mhz for run in day.runs if run.sm_clock_mhz] for day in days]
    now = [run.sm_clock_mhz for run in runs if run.sm_clock_mhz]
    if not now or not all(then):
        return
    low, high, clock = min(map(median, then)), max(map(median, then)), median(now)
    if not low / OTHER_CLOCKS <= clock <= high * OTHER_CLOCKS:
        raise RefusedError(
            f"the SM clock was {clock:.0f} MHz, and {low:.0f} to {high:.0f} MHz when it was "
            "recorded: lock clocks, or leave them free, as they were then, or record it anew"
        )


def too_few(
    known: Baselines,
    baseline: Baseline,
    days: int,
    since: str,
    how: str = "`gpuadvisor gate record` makes one",
) -> str:
    """Return what a baseline lacks for a check; `since` says why earlier days do not count."""
    name, recordings = baseline.name, known.recordings_of(baseline.name)
    if not recordings:
        return f"{known.lacks(name, baseline.file)}: {how}"
    accepted = known.accepted(name)
    if accepted and not since:
        since = f" since a new level was accepted on {accepted.at:%Y-%m-%d}"
    return (
        f"{name} was recorded on {days} day{'s' * (days != 1)}{since}, and how much days differ is "
        f"known from {LEAST}: record it on {LEAST - days} more, 20 hours apart or more"
    )


def _side(command: Command, name: str, here: Environment) -> GateSide:
    commit = None if here.git_dirty else here.git_commit
    return GateSide(name, commit, tuple(command.line()), str(Path.cwd()))
