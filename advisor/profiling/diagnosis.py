"""A run, told by a profile or a recording, to what is wrong with it."""

from __future__ import annotations

from collections.abc import Collection

from gpuadvisor import __version__
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.telemetry_window import TelemetryWindow
from gpuadvisor.profiling.evidence import evidence_of
from gpuadvisor.profiling.naming import Named
from gpuadvisor.profiling.rules import chosen
from gpuadvisor.reports.diagnosis_report import DiagnosisReport
from gpuadvisor.reports.profile_report import ProfileReport
from gpuadvisor.rules import engine
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.storage.profiles.stored import StoredProfile


def diagnosed(
    named: Named, only: Collection[str] = (), measured: Measurement | None = None
) -> DiagnosisReport:
    """Return what the rules say of a profile; UsageError where there is no rule of a name.

    `measured` is what the harness saw of the script.
    """
    return of_evidence(named, evidence_of(named, measured), only)


def of_evidence(named: Named, evidence: Evidence, only: Collection[str] = ()) -> DiagnosisReport:
    """Return what the rules say of what is known of a profile's run."""
    assert evidence.facts is not None  # a profile has some
    rules = chosen(only)
    diagnosis = engine.diagnose(evidence, rules)
    profile = ProfileReport(
        named.name,
        evidence.facts,
        evidence.ceilings,
        named.file,
        __version__,
        diagnosis=diagnosis,
        rules=rules,
    )
    stored = named.name if isinstance(named.profile, StoredProfile) else None
    return DiagnosisReport(
        named.name, diagnosis, rules, profile, None, stored, named.file, version=__version__
    )


def diagnosed_telemetry(
    name: str, window: TelemetryWindow, only: Collection[str] = (), file: str | None = None
) -> DiagnosisReport:
    """Return what the rules say of telemetry alone."""
    rules = chosen(only)
    diagnosis = engine.diagnose(Evidence(telemetry=window), rules)
    return DiagnosisReport(name, diagnosis, rules, telemetry=window, file=file, version=__version__)
