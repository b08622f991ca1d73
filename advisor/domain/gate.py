"""A gate: two versions of a script compared, and whether the new one is slower or needs more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from gpuadvisor.domain.device import Environment
from gpuadvisor.domain.explanation import Explanation
from gpuadvisor.domain.study import Trial, TrialState


class GateVerdict(str, Enum):
    """What a gate showed, of one metric or of all together."""

    PASS = "pass"
    """Shown: it did not get worse by as much as the limit; or its script is new, and runs."""
    FAIL = "fail"
    """Shown: it got worse by more than the tolerance; or the new version is broken."""
    INCONCLUSIVE = "inconclusive"
    """Shown is neither that it got worse nor that it did not."""

    def __str__(self) -> str:
        return self.value


class MetricRole(str, Enum):
    """What a metric means for the verdict of its gate."""

    DECIDES = "decides"
    """The gate passes only if this metric passes, and fails if it fails."""
    GUARDS = "guards"
    """The gate fails if this metric fails, and may pass where it is inconclusive."""
    REPORTED = "reported"
    """The metric is measured and shown, and is no matter for the gate."""

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
    """Ends of the interval of `ratio` that holds over all looks of the gate; of a metric that is
    counted, the least and the largest ratio of two runs."""
    unadjusted: float
    """The ratio as measured; `ratio` differs from it only where it was adjusted for clocks, or
    both sides were timed `in_turns`."""
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
    """Unit of the figures: `ms`, `s`, `bytes`, `J`; empty for a number."""
    base: tuple[float, ...] = ()
    head: tuple[float, ...] = ()
    """Figures of the runs of each side that were compared, in the order of pairs."""
    role: MetricRole = MetricRole.DECIDES
    exact: bool = False
    """Whether it is counted, and every run of the old version counted the same."""
    detail: str = ""
    """What is new, as a clause: names of kernels, reasons of graph breaks."""
    in_steps: tuple[int, int] | None = None
    """First and last step of the script, of which the first is 1, that any run was counted in; what
    others do is not known. None where it is no count of single steps."""
    in_turns: bool = False
    """Whether `ratio` is that of both sides within each process, where they took turns after it was
    measured as it had started; `unadjusted` is then that of what processes took as they started."""


@dataclass(frozen=True)
class Benchmark:
    """A script that a project wants to be gated, as its configuration describes it."""

    name: str
    script: str
    """Path of the script, relative to the configuration's folder, or a module's name."""
    is_module: bool = False
    args: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    """What it says of the gate's options, by their names (`tolerance`, `link`); absent are those of
    which neither it nor the table above it says anything."""


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
    says how much runs differ, `counted` for one that was made for its counts alone, `pair 3`,
    `pair 3, in turns` or `pair 1, short` for one that was compared. A pair that was disturbed comes
    again under the same number, and the last one counts."""
    counted_steps: tuple[int, int] | None = None
    """First and last step of the script, of which the first is 1, that was counted after those that
    were measured; None where none was."""
    blocks_ms: tuple[float, ...] = ()
    """Mean step time of each block, where the runs of a pair took turns: the other run's block of
    the same place was measured right before or after it. Empty for a run that was alone."""

    @property
    def problem(self) -> str:
        """Why it failed, as a clause; empty where it did not."""
        state = self.trial.state
        if state is TrialState.COMPLETE:
            return ""
        return f"{str(state).replace('_', ' ')}: {self.trial.reason}"


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
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that the user gave it in its command."""
    plan: str | None = None
    """The file of the plan that was applied to it; None where the script ran as it is."""


@dataclass(frozen=True)
class GateResult:
    """What a gate measured and concluded."""

    verdict: GateVerdict
    reason: str
    """Why two versions could not be compared, without a full stop; empty where they were."""
    base: GateSide
    head: GateSide
    differences: tuple[Difference, ...] = ()
    """One a metric; empty where a version could not be measured."""
    pairs: int = 0
    """Pairs that were compared."""
    runs: tuple[GateRun, ...] = ()
    """Every run, in the order in which they were made."""
    broken: str | None = None
    """`head` or `base` where that version does not run, or lost its script; else None."""
    notes: tuple[str, ...] = ()
    environment: Environment | None = None
    """What both versions ran on."""
    wall_s: float = 0.0
    output: str = ""
    """The end of what the broken version printed."""
    explanation: Explanation | None = None
    """Why the head is slower, where a time or energy failed; None where nobody looked."""
    unmeasured: tuple[tuple[str, str], ...] = ()
    """Metrics that could not be measured, by name, each with the reason as a clause."""


@dataclass(frozen=True)
class Commit:
    """A commit of the user's repository."""

    commit: str
    """Its full hash."""
    name: str
    """Its short hash with its subject, or as the user named it."""


@dataclass(frozen=True)
class Step:
    """A commit that was compared with the good one."""

    commit: Commit
    verdict: GateVerdict
    found: GateResult | None
    """None where it could not be compared."""
    reason: str = ""
    """Why not, without a full stop."""


@dataclass(frozen=True)
class Bisected:
    """What a bisection found."""

    good: Commit
    bad: Commit
    first_bad: tuple[Commit, ...]
    """One commit, or those between which nothing tells, oldest first."""
    steps: tuple[Step, ...]
    """In the order in which they were made; the first one is of `bad` itself."""

    @property
    def proof(self) -> Step:
        """The comparison of the newest of `first_bad`, which failed."""
        return next(each for each in self.steps if each.commit == self.first_bad[-1])
