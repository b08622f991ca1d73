"""A profile with its facts and its device's ceilings, for the commands that report on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuadvisor.profiling.naming import Named
    from gpuadvisor.reports.profile_report import ProfileReport


def profile_report(named: Named) -> ProfileReport:
    """Return what is to be said of a profile; facts are computed when they are asked for."""
    from gpuadvisor import __version__
    from gpuadvisor.analysis.summary import Facts
    from gpuadvisor.profiling.naming import peaks_of
    from gpuadvisor.reports.profile_report import ProfileReport

    peaks = peaks_of(named.profile.header)
    ceilings = {name: peak.value for name, peak in peaks.by_quantity.items()} if peaks else {}
    facts = Facts(named.profile, ceilings)
    return ProfileReport(named.name, facts, peaks, named.file, __version__)
