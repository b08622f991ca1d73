"""All that is known of a run, which the rules look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from gpuadvisor.analysis.counters import KernelCounters, kernel_counters
from gpuadvisor.analysis.peaks import Ceilings
from gpuadvisor.analysis.summary import Facts
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.domain.telemetry_window import TelemetryWindow


@dataclass(frozen=True)
class Evidence:
    """Of one run; None is what was not measured."""

    facts: Facts | None = None
    """Of its profile."""
    ranks: tuple[Facts, ...] = ()
    """Of the profiles of all ranks of the same run, this one among them."""
    telemetry: TelemetryWindow | None = None
    """Of the time of the run."""
    measured: Measurement | None = None
    """What the harness saw of the script."""
    ceilings: Ceilings | None = None
    """Of its GPU; measured ones where there are some."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Versions and settings, such as `torch`."""

    @cached_property
    def counted(self) -> tuple[KernelCounters, ...]:
        """Kernels with hardware counters, alike ones together, those with most time first."""
        return () if self.facts is None else kernel_counters(self.facts.profile)

    @cached_property
    def run_ns(self) -> float:
        """The time that all improvements are of, in nanoseconds; 0 where it is not known.

        Of a profile with a timeline that is the time of its steps. Hardware counters alone do not
        tell how often a program launches what: each kernel is a run of its own there.
        """
        return float(self.facts.run_ns) if self.facts is not None else 0.0

    @property
    def has_timeline(self) -> bool:
        """Whether it is known when things ran."""
        return self.facts is not None and self.facts.profile.header.source != "ncu"
