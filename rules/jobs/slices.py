"""A job on one GPU during a slice: its polls, and the causes of its seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuadvisor.domain.clock_reasons import SLOWING, holds
from gpuadvisor.domain.jobs import UNTOLD, Loss, Slice, Use
from gpuadvisor.domain.telemetry import Number
from gpuadvisor.rules.jobs.cause import name_cause
from gpuadvisor.rules.jobs.phases import Before, Phase, Poll, phases

LEVELS = {
    "power_w": ("energy_j", "energy_s", 1.0),
    "gpu_utilization_pct": ("busy_s", "busy_known_s", 0.01),
    "sm_active_pct": ("sm_s", "sm_known_s", 0.01),
    "tensor_active_pct": ("tensor_s", "tensor_known_s", 0.01),
    "dram_active_pct": ("dram_s", "dram_known_s", 0.01),
    "sm_clock_mhz": ("", "", 0.0),
}
"""Metrics that are integrated: their sum in `Amounts`, the time for which it was known, and what a
value is multiplied by. A clock is for causes alone."""
FLAGS = "throttle_reasons"


@dataclass
class Mean:
    """A mean over time of what is not always known."""

    integral: float = 0.0
    known_s: float = 0.0

    def add(self, value: float | None, seconds: float) -> None:
        if value is not None:
            self.integral += value * seconds
            self.known_s += seconds

    @property
    def value(self) -> float | None:
        return self.integral / self.known_s if self.known_s else None


@dataclass
class Sums:
    """What the polls of one GPU come to, in seconds times values."""

    seconds: float = 0.0
    means: dict[str, Mean] = field(default_factory=dict)
    """Mean of each metric that some poll told, by the metric's name."""
    flags_s: float = 0.0
    """Seconds in which FLAGS were known."""
    held_down_s: dict[str, float] = field(default_factory=dict)

    def add(self, values: Mapping[str, Number], seconds: float) -> None:
        self.seconds += seconds
        for name in LEVELS:
            value = values.get(name)
            if value is not None:
                self.means.setdefault(name, Mean()).add(value, seconds)
        mask = values.get(FLAGS)
        if mask is not None:
            self.flags_s += seconds
            for name in SLOWING if mask else ():
                if holds(int(mask), name):
                    self.held_down_s[name] = self.held_down_s.get(name, 0.0) + seconds

    def mean(self, name: str) -> float | None:
        found = self.means.get(name)
        return found.value if found else None


@dataclass
class Held:
    """A job between two lists of processes: all that is known of it from the earlier one."""

    polls: Sequence[Poll]
    alone: bool
    cpu_since_s: float
    """Unix time from which on the CPU time of the two below was used."""
    cpu_pct: float | None
    """CPU time of the job's busiest process, in percent of a core."""
    children_cpu_pct: float | None
    own_sm_pct: float | None
    parts: list[tuple[Use, float, float]] = field(default_factory=list)
    """The uses that it consists of, one a process, with the share of the GPU's time that each has,
    and the share of the time for which the job held it."""


@dataclass
class _Part:
    """The seconds of a slice in which a job did the same."""

    sums: Sums = field(default_factory=Sums)
    alone: bool = True
    at_work: Mean = field(default_factory=Mean)
    """Utilization of the polls that saw any kernel."""
    cpu: Mean = field(default_factory=Mean)
    children: Mean = field(default_factory=Mean)
    own_sm: Mean = field(default_factory=Mean)
    is_cpu_known: bool = False
    """Whether the CPU time of these seconds, and not of others before, is known or never told."""
    seconds: list[tuple[Use, float, float]] = field(default_factory=list)
    """GPU time and the time for which it was held, of each use."""

    def add(self, poll: Poll, held: Held, is_cpu_known: bool) -> None:
        self.sums.add(poll.values, poll.seconds)
        self.alone = self.alone and held.alone
        self.own_sm.add(held.own_sm_pct, poll.seconds)
        self.at_work.add(None if poll.is_empty else poll.utilization_pct, poll.seconds)
        if is_cpu_known or held.cpu_pct is None:
            self.is_cpu_known = True
            self.cpu.add(held.cpu_pct, poll.seconds)
            self.children.add(held.children_cpu_pct, poll.seconds)
        self.seconds += [(use, g * poll.seconds, h * poll.seconds) for use, g, h in held.parts]


def name_causes(
    helds: Sequence[Held],
    before: Before,
    limits: Mapping[str, Number],
    host: Mapping[str, Mean],
) -> Before:
    """Give every second of a job's slice to the cause that it has, in the uses that it consists of.

    `limits` are metrics of the GPU that hold until they are read again, and `host` what was read of
    the machine. Returns what the job's next slice needs to know.
    """
    polls = [(poll, held) for held in helds for poll in held.polls]
    done, after = phases([poll for poll, _ in polls], before)
    parts: dict[Phase, _Part] = {}
    began_s = polls[0][0].end_s - polls[0][0].seconds - before.empty_s if polls else 0.0
    for (poll, held), phase in zip(polls, done, strict=True):
        began_s = min(began_s, poll.end_s - poll.seconds) if poll.is_empty else poll.end_s
        is_known = phase is not Phase.PAUSED or held.cpu_since_s >= began_s
        parts.setdefault(phase, _Part()).add(poll, held, is_known)
    for phase, part in parts.items():
        cause, share = UNTOLD, 0.0
        if phase is not Phase.UNTOLD and part.is_cpu_known:
            cause, share = name_cause(_slice(part, limits, host))
        for use, gpu_s, held_s in part.seconds:
            use.causes.setdefault(cause, Loss()).add(Loss(gpu_s, share * gpu_s, held_s))
    return after


def _slice(part: _Part, limits: Mapping[str, Number], host: Mapping[str, Mean]) -> Slice:
    sums = part.sums
    return Slice(
        held_s=sums.seconds,
        alone=part.alone,
        utilization_pct=sums.mean("gpu_utilization_pct"),
        at_work_pct=part.at_work.value,
        sm_active_pct=sums.mean("sm_active_pct"),
        own_sm_pct=part.own_sm.value,
        power_w=sums.mean("power_w"),
        power_limit_w=limits.get("power_limit_w"),
        sm_clock_mhz=sums.mean("sm_clock_mhz"),
        sm_clock_max_mhz=limits.get("sm_clock_max_mhz"),
        held_down={n: held / sums.flags_s for n, held in sums.held_down_s.items()},
        cpu_pct=part.cpu.value,
        children_cpu_pct=part.children.value,
        machine_cpu_pct=host["cpu_pct"].value if "cpu_pct" in host else None,
        io_stall_pct=host["io_stall_pct"].value if "io_stall_pct" in host else None,
    )
