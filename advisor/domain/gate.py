"""A gate: two versions of a script compared, and whether the new one is slower or needs more."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gpuadvisor.domain.device import Environment
from gpuadvisor.domain.study import Trial


class GateVerdict(str, Enum):
    """What a gate showed, of one metric or of all together."""

    PASS = "pass"
    """Shown: it did not get worse by as much as the limit."""
    FAIL = "fail"
    """Shown: it got worse by more than the tolerance; or the new version is broken."""
    INCONCLUSIVE = "inconclusive"
    """Neither was shown."""

    def __str__(self) -> str:
        return self.value


class MetricRole(str, Enum):
    """What a metric means for the verdict of its gate."""

    DECIDES = "decides"
    """The gate passes only if this one does, and fails if it does."""
    GUARDS = "guards"
    """The gate fails if this one does; it passes all the same where this one is inconclusive."""
    REPORTED = "reported"
    """It is measured, and no matter."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Difference:
    """What pairs of runs say of one metric, of which more is worse."""

    metric: str
    """Its name: `step_time`, `peak_memory`, or another of `gpuadvisor.tuners.gate.metrics`."""
    verdict: GateVerdict
    ratio: float
    """The new version's figure over the old one's; above 1 it got worse, infinite from 0."""
    low: float
    high: float
    """Ends of the interval of `ratio` that holds over all looks of the gate; `ratio` itself of what
    is counted."""
    unadjusted: float
    """The ratio as measured; `ratio` is the same unless it was adjusted for clocks."""
    tolerance: float
    """Relative difference up to which nothing is a regression."""
    limit: float
    """Relative difference that has to be ruled out to pass."""
    clock_share: float = 0.0
    """How a figure was found to follow the GPU's SM clock: 1 is inversely; 0 where it was not
    adjusted."""
    title: str = ""
    """What people call it."""
    unit: str = ""
    """Of the figures: `ms`, `s`, `bytes`, `J`; empty for a number."""
    base: tuple[float, ...] = ()
    head: tuple[float, ...] = ()
    """Figures of the runs of each side that were compared, in the order of pairs."""
    role: MetricRole = MetricRole.DECIDES
    exact: bool = False
    """Whether it is counted, and every run of the old version counted the same."""
    detail: str = ""
    """What is new, as a clause: names of kernels, reasons of graph breaks."""


@dataclass(frozen=True)
class GateRun:
    """One run of one version."""

    side: str
    """`base` or `head`."""
    trial: Trial
    sm_clock_mhz: float | None = None
    """Mean SM clock while it was measured; None where nobody could read it."""
    place: str = ""
    """`first` for the run that shows whether the script works at all, `known` for one that only
    says how much runs differ, `pair 3` or `pair 1, short` for one that was compared. A pair that
    was disturbed comes again under the same number, and the last one counts."""


@dataclass(frozen=True)
class GateSide:
    """One of the two versions."""

    name: str
    """As the user named it, such as `origin/main`."""
    commit: str | None
    """Its full commit; None for what is no commit: a folder, or a work tree with changes."""
    command: tuple[str, ...]
    """How it was started."""
    folder: str
    """The working directory; a work tree that was made for the gate is gone."""


@dataclass(frozen=True)
class GateResult:
    """What a gate measured and concluded."""

    verdict: GateVerdict
    reason: str
    """Why a version could not be measured, without a full stop; empty where both were."""
    base: GateSide
    head: GateSide
    differences: tuple[Difference, ...] = ()
    """One a metric; empty where a version could not be measured."""
    pairs: int = 0
    """Pairs that were compared."""
    runs: tuple[GateRun, ...] = ()
    """Every run, in the order in which they were made."""
    broken: str | None = None
    """`head` or `base` where that version could not be measured; else None."""
    notes: tuple[str, ...] = ()
    environment: Environment | None = None
    """What both versions ran on."""
    wall_s: float = 0.0
    output: str = ""
    """The end of what the broken version printed."""
    unmeasured: tuple[tuple[str, str], ...] = ()
    """Metrics that could not be measured, by name, each with the reason as a clause."""
