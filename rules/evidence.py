"""All that is known of a run, which the rules look at."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # numpy is loaded with the facts of a profile, and the daemon has none
    from gpuadvisor.domain.finding import Category, Place, Scope
    from gpuadvisor.domain.measurement import Measurement
    from gpuadvisor.domain.telemetry_window import TelemetryWindow
    from gpuadvisor.rules.facts.ceilings import Ceilings
    from gpuadvisor.rules.facts.intervals import IntArray
    from gpuadvisor.rules.facts.kernel_loads import Loads
    from gpuadvisor.rules.facts.kernel_metrics import KernelMetrics
    from gpuadvisor.rules.facts.ncu_kernels import KernelCounters
    from gpuadvisor.rules.facts.ranks import Ranks
    from gpuadvisor.rules.facts.summary import Facts


@dataclass(frozen=True)
class Evidence:
    """What was measured of one run; None is what was not."""

    facts: Facts | None = None
    """Facts of the run's profile."""
    ranks: tuple[Facts, ...] = ()
    """Facts of the profiles of all ranks of the same run, this one among them."""
    telemetry: TelemetryWindow | None = None
    """Telemetry of the time of the run."""
    no_telemetry: str | None = None
    """Why there is none, in words, where a daemon recorded before and after; else None."""
    measured: Measurement | None = None
    """What the harness saw of the script."""
    ceilings: Ceilings | None = None
    """Ceilings of the run's GPU; measured ones where there are some."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Versions and settings, such as `torch`."""
    stacked: Facts | None = None
    """Facts of another step of the same run, recorded with stacks: they tell where something comes
    from, and nothing about time, which stacks make longer."""

    @property
    def known_facts(self) -> Facts:
        """Facts of the run's profile, for a rule that needs something of it and so has one."""
        assert self.facts is not None
        return self.facts

    @cached_property
    def kernel_counters(self) -> tuple[KernelCounters, ...]:
        """Kernels with hardware counters, alike ones together, those with most time first."""
        if self.facts is None:
            return ()
        from gpuadvisor.rules.facts.ncu_kernels import kernel_counters

        return kernel_counters(self.facts.profile)

    @cached_property
    def kernel_loads(self) -> tuple[tuple[KernelMetrics, Loads | None], ...]:
        """Metrics of kernels with hardware counters, with how busy they keep the GPU's units."""
        from gpuadvisor.rules.facts.kernel_loads import loads
        from gpuadvisor.rules.facts.kernel_metrics import KernelMetrics

        devices = () if self.facts is None else self.facts.profile.header.devices
        device = next(iter(devices), None)
        dram = None if self.ceilings is None else self.ceilings.get("dram")
        reached = dram.value if dram is not None and dram.is_measured else None
        found = [KernelMetrics(kernel, device) for kernel in self.kernel_counters]
        return tuple((kernel, loads(kernel, reached)) for kernel in found)

    @cached_property
    def captured_ns(self) -> float:
        """Time of all launches that have hardware counters, in nanoseconds."""
        return math.fsum(each.time_ns for each in self.kernel_counters)

    @cached_property
    def untimed(self) -> tuple[str, ...]:
        """Names of kernels that were to be counted one by one and of which no launch has its time,
        beside others that do: their collection failed."""
        if self.facts is None or not self.captured_ns:
            return ()
        columns = self.facts.profile.columns("kernels", ("name", "duration_ns"))
        texts = self.facts.profile.header.texts
        names = [texts[name] for name in columns["name"].tolist()]
        took = columns["duration_ns"].tolist()
        timed = {name for name, time_ns in zip(names, took, strict=True) if time_ns > 0}
        return tuple(dict.fromkeys(name for name in names if name not in timed))

    @cached_property
    def together(self) -> Ranks | None:
        """All ranks of the run beside each other; None where only one is known."""
        from gpuadvisor.rules.facts.ranks import ranks_of

        known = self.ranks or (() if self.facts is None else (self.facts,))
        return ranks_of(known) if any(each.communication for each in known) else None

    @cached_property
    def run_ns(self) -> float:
        """The time that all improvements are of, in nanoseconds; 0 where it is not known.

        Of a profile with a timeline that is the time of its steps. Hardware counters alone do not
        tell how often a program launches what: each kernel is a run of its own there.
        """
        return float(self.facts.window.run_ns) if self.facts is not None else 0.0

    def share(self, time_ns: float) -> float:
        """Return which share of the run a time is; 0 where the run's time is not known."""
        return self.facts.window.share(time_ns) if self.facts is not None else 0.0

    def place_of(
        self,
        scope: Scope,
        category: Category,
        parts: Mapping[str, float],
        work: IntArray | None,
        calls: IntArray | None,
    ) -> tuple[str | None, Place | None]:
        """Return the source line that most of a finding comes from, and what else is known: of rows
        of the devices' work or of the calls into CUDA, else of the parts of the run that it is
        about."""
        if self.facts is None:
            return None, None
        from gpuadvisor.rules.facts.placing import place_of

        return place_of(self.facts, self.stacked, scope, category, parts, work, calls)

    @property
    def has_timeline(self) -> bool:
        """Whether it is known when things ran."""
        return self.facts is not None and self.facts.has_timeline

    @property
    def too_short(self) -> bool:
        """Whether the profile is too short for anything in it to be called slow."""
        return self.facts is not None and self.facts.too_short is not None
