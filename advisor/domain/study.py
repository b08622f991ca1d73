"""A tuning study: its trials, what was concluded, and the plan that keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from gpuadvisor.domain.device import Environment
from gpuadvisor.domain.knobs import Contribution, Level, Settings
from gpuadvisor.domain.measurement import Measurement


class TrialState(str, Enum):
    """How one run of the script ended."""

    COMPLETE = "complete"
    PRUNED = "pruned"
    """Stopped early: clearly slower than what was found, or the budget had no room for more."""
    OUT_OF_MEMORY = "out_of_memory"
    CRASHED = "crashed"
    HUNG = "hung"
    """No step within the time limit."""
    WRONG = "wrong"
    """Results differ from the baseline's by more than the level allows, or are NaN or infinite."""
    NO_EFFECT = "no_effect"
    """A knob found nothing to change."""
    UNSUPPORTED = "unsupported"
    """A knob cannot work on this device or script."""

    def __str__(self) -> str:
        return self.value


class Objective(str, Enum):
    """What is to be improved."""

    THROUGHPUT = "throughput"
    """Samples (else steps) a second: higher is better."""
    LATENCY = "latency"
    """Median step time: lower is better."""
    MEMORY = "memory"
    """Peak memory: lower is better."""
    ENERGY = "energy"
    """Energy a sample (else a step): lower is better."""

    def __str__(self) -> str:
        return self.value

    def cost(self, measurement: Measurement) -> float | None:
        """Return what is to be made small, or None where it was not measured."""
        if self is Objective.THROUGHPUT:
            return 1 / measurement.throughput
        if self is Objective.LATENCY:
            return measurement.percentile_ms(50)
        if self is Objective.MEMORY:
            return float(measurement.peak_memory_bytes)
        energy = measurement.energy_j_per_step
        return None if energy is None else energy / (measurement.samples_per_step or 1.0)


@dataclass(frozen=True)
class Equivalence:
    """Whether a run computed what the baseline computes."""

    status: str
    """`equivalent`, `wrong` or `not_checked`."""
    metric: str
    """What was compared, in words: `mean relative difference of 10 losses`."""
    value: float | None = None
    limit: float | None = None
    reason: str = ""
    """Why it was not checked."""


@dataclass(frozen=True)
class Trial:
    """One run of the script under given settings."""

    number: int
    settings: Settings
    phase: str
    """`baseline`, `search`, `ablation` or `proof`."""
    state: TrialState
    reason: str = ""
    """Why the state is what it is, in one sentence; empty for `complete`."""
    measurement: Measurement | None = None
    equivalence: Equivalence | None = None
    gain: float | None = None
    """Baseline's cost over this trial's on the same GPU; above 1 is better."""
    gpu: int = 0
    wall_s: float = 0.0


@dataclass(frozen=True)
class Speedup:
    """Ratio of the baseline's cost to the best's, from interleaved fresh processes."""

    ratio: float
    ci99_low: float
    ci99_high: float
    pairs: int
    """Pairs of runs (baseline and best) behind the interval."""


@dataclass(frozen=True)
class Plan:
    """Settings that were proven, as kept in a TOML file."""

    script: str
    args: tuple[str, ...]
    settings: Settings
    speedup: Speedup | None
    level: Level
    objective: Objective
    contributions: tuple[Contribution, ...] = ()
    equivalence: Equivalence | None = None
    environment: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    created: str = ""
    """UTC, ISO 8601."""
    is_module: bool = False
    """Whether `script` is a module, as after `python -m`."""


@dataclass(frozen=True)
class Expectation:
    """What a finding promised before the search, and what its knobs then brought."""

    rule: str
    severity: str
    """`info`, `notice`, `warning` or `critical`."""
    summary: str
    low_pct: float | None
    """Least percentage of its time that the run would save; None where it was not estimated."""
    high_pct: float | None
    """Largest such percentage; None where it was not estimated."""
    knobs: tuple[str, ...] = ()
    """Knobs that would try the cure."""
    measured_pct: float | None = None
    """Percentage of the unchanged script's time that they saved in the search; below 0 they cost
    some."""
    settings: Settings = field(default_factory=dict)
    """Settings with which that was measured."""
    why: str = ""
    """Why nothing was measured; empty where something was."""

    @property
    def is_met(self) -> bool | None:
        """Whether the measured improvement lies in the estimated range; None if one is missing."""
        if self.low_pct is None or self.high_pct is None or self.measured_pct is None:
            return None
        return self.low_pct <= self.measured_pct <= self.high_pct


@dataclass(frozen=True)
class StudyResult:
    """All that a finished (or interrupted) study has to say."""

    study: str
    """Name of the study, unique in the store."""
    script: str
    args: tuple[str, ...]
    environment: Environment
    level: Level
    objective: Objective
    verdict: str
    """`faster` or `no_gain`."""
    baseline: Measurement
    best: Measurement | None = None
    """Run of median cost under the best settings; None where nothing better was found."""
    settings: Settings = field(default_factory=dict)
    speedup: Speedup | None = None
    contributions: tuple[Contribution, ...] = ()
    equivalence: Equivalence | None = None
    trials: tuple[Trial, ...] = ()
    expectations: tuple[Expectation, ...] = ()
    """What the diagnosis of the unchanged script promised, the most expensive first."""
    no_effect: Mapping[str, str] = field(default_factory=dict)
    """Knobs that did nothing or could not work, and why."""
    notes: tuple[str, ...] = ()
    """Sentences the user should read: what was not measured, what to watch."""
    plan: str | None = None
    """Path of the plan; None where there is no gain."""
    interrupted: str = ""
    """Why it ended early; empty otherwise."""
    started: str = ""
    """UTC, ISO 8601."""
    wall_s: float = 0.0
    is_module: bool = False
    """Whether `script` is a module, as after `python -m`."""
