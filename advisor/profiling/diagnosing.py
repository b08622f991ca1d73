"""Say what is wrong with a run: of a script, a stored profile, a trace file or a recording."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from gpuadvisor.collectors.script.request import Command
from gpuadvisor.collectors.script.run_folder import run_folder
from gpuadvisor.collectors.telemetry.recording import DAMAGED
from gpuadvisor.daemon.sources import window_of_recording
from gpuadvisor.domain.device import Device
from gpuadvisor.domain.finding import Diagnosis
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.unprofiled import Steadiness, UnprofiledSteps
from gpuadvisor.errors import AdvisorError, MissingError, ScriptError, StoreError, UsageError
from gpuadvisor.profiling.evidence import HarnessEvents, evidence_of, of_other_rank
from gpuadvisor.profiling.importing import Progress, import_recorded
from gpuadvisor.profiling.progress import Stages
from gpuadvisor.profiling.rank_runs import import_folder
from gpuadvisor.profiling.reading import is_recording, read_profile, trace_files
from gpuadvisor.profiling.recording import (
    DEFAULT_STEPS,
    FEWEST_STEPS,
    Recorded,
    RecordOptions,
    record,
    record_steps,
)
from gpuadvisor.profiling.resolving import (
    ResolvedProfile,
    newest_profile,
    resolve_profile,
    stored_profile,
)
from gpuadvisor.profiling.rules import select_rules
from gpuadvisor.reports.diagnosis.report import DiagnosisReport
from gpuadvisor.reports.profile.report import ProfileReport
from gpuadvisor.rules import engine
from gpuadvisor.rules.calibration import calibration
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.storage.profiles.library import open_profiles
from gpuadvisor.storage.profiles.stored import StoredProfile
from gpuadvisor.version import __version__

BASELINE_MS = 10_000.0
"""Longest time of the steps that are recorded before tuning, unless two take longer: it is the
budget's."""


def diagnose_target(
    target: str | None, rules: Collection[str], *, whole: bool = False
) -> DiagnosisReport:
    """Return what the rules of these names, or all, say of a profile or a recording.

    `target` is a stored profile (None for the newest), a trace file or a recording of telemetry.
    Of a large profile a part is judged unless the whole is asked for. UsageError where there is no
    such target.
    """
    if target is not None and is_recording(Path(target)):
        return _diagnose_recording(Path(target), rules)
    return diagnose_profile(_resolve_target(target), rules, whole=whole)


def diagnose_profile(
    resolved: ResolvedProfile, rules: Collection[str] = (), *, whole: bool = False
) -> DiagnosisReport:
    """Return what the rules of these names, or all, say of a profile."""
    report = _report(resolved, evidence_of(resolved, whole=whole), rules)
    return replace(report, notes=tuple(resolved.profile.header.warnings))


def diagnose_folder(
    folder: Path,
    rules: Collection[str],
    progress: Callable[[], AbstractContextManager[Progress]],
    *,
    whole: bool = False,
) -> DiagnosisReport:
    """Store the traces of a folder, one for each rank of a run, and return what the rules of these
    names, or all, say of the run: of all ranks together, and of the one that the others wait for.

    Of large traces the same part of each is judged unless the whole is asked for. A folder with
    one trace is that trace, which is not stored. UsageError where it has none, or
    lone ones of several runs.
    """
    files = trace_files([folder])
    if len(files) == 1:
        return diagnose_target(str(files[0].path), rules, whole=whole)
    found = import_folder(folder, progress)
    profiles = open_profiles()
    records = found.run.records
    first = stored_profile(profiles.get(records[0].id))
    evidence = evidence_of(first, whole=whole)
    decides = _deciding(evidence)
    place = decides or 0
    resolved = first if not place else stored_profile(profiles.get(records[place].id))
    if place:
        evidence = of_other_rank(evidence, place)
    report = _report(resolved, evidence, rules)
    rank = "" if records[place].rank is None else f" (rank {records[place].rank})"
    size = f" of {found.run.world_size}" if found.run.world_size else ""
    told = (
        f"{len(records)}{size} ranks are stored; what is said of one rank is of"
        f" {resolved.name}{rank}"
        + (", which the others wait for most" if decides is not None else ""),
    )
    notes = (*told, *found.notes, *resolved.profile.header.warnings)
    name = f"{folder.absolute().name}{rank}" if rank else report.name
    return replace(report, name=name, notes=notes)


def _deciding(evidence: Evidence) -> int | None:
    """Return the place of the profile whose rank waits least for others, so that its time is the
    run's; None where that is not known."""
    together = evidence.together
    if together is None or together.unmatched is not None:
        return None
    known = [each for each in together.ranks if each.waiting_ns is not None]
    return min(known, key=lambda each: each.waiting_ns or 0).place if known else None


def diagnose_script(
    record: RecordOptions,
    stages: Stages,
    name: str | None,
    rules: Collection[str],
    *,
    whole: bool = False,
) -> tuple[DiagnosisReport, bool]:
    """Profile a script and store the profile; return what the rules say, and if the script failed.

    `name` is that of the profile in the store, None for the script's; the rules are those of these
    names, or all. Of a large profile a part is judged unless the whole is asked for.

    Raises:
        ScriptError: if the script cannot be profiled.
        Interrupted: if it was cancelled.
    """
    command = record.command
    with run_folder() as folder:
        stages.say(f"Running {command.script} until it is warm")
        recorded = record_steps(record, folder, stages)
        stages.say("Reading the trace")
        stored = import_recorded(recorded.file, command.stem, name, is_temporary=True).profile
        stages.say("Looking for what to fix")
        report = diagnose_run(stored, recorded, stages.harness, rules, whole=whole)
    words = ("-m", command.script) if command.is_module else (command.script,)
    return replace(report, script=(*words, *command.args)), recorded.failed


def diagnose_run(
    profile: StoredProfile,
    recorded: Recorded,
    harness: HarnessEvents,
    rules: Collection[str] = (),
    *,
    whole: bool = False,
) -> DiagnosisReport:
    """Return what the rules say of a recorded run, with what the harness saw meanwhile."""
    resolved = stored_profile(profile)
    evidence = evidence_of(resolved, whole=whole)
    if evidence.facts is not None:
        evidence = replace(evidence, measured=harness.measurement(evidence.facts))
    if recorded.stacks is not None:
        evidence = replace(evidence, stacked=_stacked(recorded.stacks))
    report = _report(resolved, evidence, rules)
    notes = recorded.notes
    if recorded.with_gpu and not profile.rows("kernels") and profile.rows("operators"):
        notes += (
            "the script uses the GPU, but no kernel was recorded: another profiler may hold it "
            "(CUPTI serves one at a time)",
        )
    return replace(report, notes=notes)


def _stacked(trace: Path) -> Facts | None:
    """Return the facts of a step with stacks; None where its trace cannot be read."""
    try:
        return Facts(read_profile(trace))
    except UsageError:  # the other steps can do without
        return None


def profile_report(resolved: ResolvedProfile, *, whole: bool = False) -> ProfileReport:
    """Return what is to be said of a profile; facts are computed when they are asked for.

    Of a large one they are those of a part unless the whole is asked for.
    """
    report = _report(resolved, evidence_of(resolved, whole=whole)).profile
    assert report is not None  # there is a profile
    return report


def profile_baseline(
    command: Command,
    measured: Measurement,
    device: Device,
    cores: tuple[int, ...] = (),
    trace: Path | None = None,
    cancelled: Callable[[], bool] = lambda: False,
    scratch: bool = False,
) -> Diagnosis:
    """Profile some steps of a script on one GPU and return what is wrong with it.

    Tuning begins with it. The profile is stored, where that is possible, and the diagnosis has its
    name. The script keeps to `cores` (empty for all),
    as the runs do that it is compared with, and with `scratch` has a private view of the file
    system as they have. Where a `trace` was recorded at the end of one of them, the script is not
    run again.

    Raises:
        ScriptError: if it cannot be profiled, or its trace not be read.
        Interrupted: if it was cancelled.
    """
    if trace is not None:
        return _diagnose_baseline(command, measured, trace)
    steps = min(DEFAULT_STEPS, max(FEWEST_STEPS, int(BASELINE_MS / measured.mean_step_ms)))
    with run_folder() as folder:
        options = RecordOptions(
            command, steps, device=device, cores=cores, cancelled=cancelled, scratch=scratch
        )
        return _diagnose_baseline(command, measured, record(options, folder).file)


def _diagnose_baseline(command: Command, measured: Measurement, trace: Path) -> Diagnosis:
    try:
        steady = Steadiness.of([1e6 * each for each in measured.step_ms], DEFAULT_STEPS)
        steps = UnprofiledSteps(1e6 * measured.mean_step_ms, steady)
        resolved, name = _kept(command, trace, steps)
        diagnosis = engine.diagnose(evidence_of(resolved, measured), fitted=calibration())
        return replace(diagnosis, profile=name)
    except AdvisorError as error:
        raise ScriptError(f"its trace cannot be read: {error}") from error
    except Exception as error:  # tuning can do without
        what = f"{type(error).__name__}: {error}"
        raise ScriptError(f"its trace cannot be read ({what}): report this bug") from error


def _kept(command: Command, trace: Path, steps: UnprofiledSteps) -> tuple[ResolvedProfile, str]:
    """Store the trace of a script and return the profile with its name in the store; where it
    cannot be stored, it is only read and the name is empty."""
    try:
        kept = import_recorded(trace, command.stem, None, is_temporary=True, unprofiled=steps)
    except StoreError:  # tuning can do without
        return ResolvedProfile(command.script, str(trace), read_profile(trace, steps)), ""
    return stored_profile(kept.profile), kept.profile.record.name


def _report(
    resolved: ResolvedProfile, evidence: Evidence, names: Collection[str] = ()
) -> DiagnosisReport:
    """Return what the rules of these names, or all, say of a profile's run."""
    assert evidence.facts is not None  # a profile has some
    rules = select_rules(names)
    diagnosis = engine.diagnose(evidence, rules, calibration())
    name, file = resolved.name, resolved.file
    facts, ceilings = evidence.facts, evidence.ceilings
    profile = ProfileReport(
        name, facts, ceilings, file, __version__, diagnosis=diagnosis, rules=rules,
        ranks=evidence.together,
    )  # fmt: skip
    stored = name if isinstance(resolved.profile, StoredProfile) else None
    return DiagnosisReport(
        name,
        diagnosis,
        rules,
        profile,
        evidence.stacked,
        stored=stored,
        file=file,
        version=__version__,
    )


def _diagnose_recording(path: Path, names: Collection[str]) -> DiagnosisReport:
    """Return what the rules say of a recording of telemetry alone."""
    rules = select_rules(names)
    window = window_of_recording(path)
    diagnosis = engine.diagnose(Evidence(telemetry=window), rules)
    file = str(path.absolute())
    notes = tuple(
        f"{path.name}, {_moment(event.began_s)}: {event.message}"
        for event in window.events
        if event.key == DAMAGED
    )
    return DiagnosisReport(
        path.name, diagnosis, rules, telemetry=window, file=file, notes=notes, version=__version__
    )


def _moment(time_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_s))


def _resolve_target(target: str | None) -> ResolvedProfile:
    if target is not None:
        return resolve_profile(target)
    newest = newest_profile()
    if newest is None:
        raise MissingError(
            "no profile is stored yet: name a script or a trace file, as in "
            "`gpuadvisor diagnose train.py`"
        )
    return newest
