"""A profile with its facts, ceilings and diagnosis, for the commands that report on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuadvisor.profiling.naming import Named
    from gpuadvisor.reports.profile_report import ProfileReport


def profile_report(named: Named) -> ProfileReport:
    """Return what is to be said of a profile; facts are computed when they are asked for."""
    from gpuadvisor.profiling.diagnosis import diagnosed

    report = diagnosed(named).profile
    assert report is not None  # there is a profile
    return report
