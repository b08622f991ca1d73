"""Rules: pure functions from evidence to a finding. One rule is one file with a `check` in it."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from gpuadvisor.domain.finding import Finding
from gpuadvisor.domain.measurement import Measurement


def diagnose(measurement: Measurement) -> tuple[Finding, ...]:
    """Return what all rules find in a run, the most expensive first."""
    found = [
        import_module(f"{__name__}.{module.name}").check(measurement)
        for module in pkgutil.iter_modules(__path__)
    ]
    return tuple(sorted(filter(None, found), key=lambda finding: -finding.share))
