"""What the rules say of the evidence of a run.

Worth is always the run's: by how much its time would shrink, not a kernel's. An estimate is a range
with the method in words, and where it can only be a bound the words say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from gpuadvisor.domain.severity import Severity


class Category(str, Enum):
    """What kind of thing is wrong; the words are part of the JSON."""

    OCCUPANCY = "occupancy"
    COALESCING = "coalescing"
    BANK_CONFLICT = "bank_conflict"
    DIVERGENCE = "divergence"
    LOCAL_MEMORY = "local_memory"
    ATOMICS = "atomics"
    SMALL_GRID = "small_grid"
    LARGE_GRID = "large_grid"
    TAIL = "tail"
    LATENCY = "latency"
    DRAM_BANDWIDTH = "dram_bandwidth"
    COMPUTE = "compute"
    TENSOR_CORE = "tensor_core"
    PRECISION = "precision"
    ALIGNMENT = "alignment"
    LAYOUT = "layout"
    FUSION = "fusion"
    ATTENTION = "attention"
    OPTIMIZER = "optimizer"
    LAUNCH_BOUND = "launch_bound"
    INPUT_BOUND = "input_bound"
    SYNC = "sync"
    COPY = "copy"
    ALLOCATOR = "allocator"
    MEMORY_CAPACITY = "memory_capacity"
    BATCH_SIZE = "batch_size"
    COMMUNICATION = "communication"
    HEALTH = "health"

    def __str__(self) -> str:
        return self.value


class ScopeKind(str, Enum):
    """What a finding is about."""

    RUN = "run"
    GPU = "gpu"
    KERNEL = "kernel"
    OPERATOR = "operator"
    RANK = "rank"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Scope:
    """Where a finding was made."""

    kind: ScopeKind = ScopeKind.RUN
    name: str = ""
    """Name of the kernel, operator or other place that it is about; empty for the whole run."""

    def covers(self, other: Scope) -> bool:
        """Return whether what explains this can explain the other."""
        return self.kind is ScopeKind.RUN or self == other

    def __str__(self) -> str:
        return self.name or self.kind.value


RUN = Scope()


@dataclass(frozen=True)
class Figure:
    """One measured value that a finding stands on."""

    metric: str
    """What was measured, in the words of its source where that has some."""
    value: float | str
    unit: str = ""
    threshold: float | None = None
    """The value from which on the rule speaks, in the same unit."""


@dataclass(frozen=True)
class Span:
    """From the least to the most."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        return (self.low + self.high) / 2

    @property
    def width(self) -> float:
        return self.high - self.low


@dataclass(frozen=True)
class Place:
    """Where in the program most of what a finding is about comes from, besides its line: what is
    not known is empty. Shares are of the finding's time (0 to 1), or of its bytes."""

    source_share: float = 0.0
    """Share that comes from the finding's source line."""
    function: str = ""
    """Function of the source line."""
    module: str = ""
    """Path of the innermost `nn.Module` with at least half of it, in the profiler's names:
    `Net_0.Sequential_1.Linear_2`."""
    module_share: float = 0.0
    region: str = ""
    """Range that the program marked (`record_function`, NVTX)."""
    operator: str = ""
    """Operator with most of it, such as `aten::mm`."""
    shapes: str = ""
    """Shapes of that operator's inputs, as the profiler writes them."""
    operator_share: float = 0.0
    backward_share: float = 0.0
    """Share that the backward pass did for operators of the forward pass: its line and its module
    are theirs."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, what it costs, and what to do."""

    rule: str
    category: Category
    severity: Severity
    scope: Scope
    summary: str
    """One sentence for people: what, where, how much."""
    evidence: tuple[Figure, ...]
    improvement_pct: Span | None
    """Percent of its time by which the run would be shorter, 0 to 100; of the kernel's own time
    where kernels were counted one by one. None where it is no matter of time, or cannot be known.
    """
    saving_ms: float | None
    """The middle of the same, over what was recorded."""
    method: str
    """How the improvement was estimated, in words; what is an upper bound is called one."""
    advice: str
    """What to do, a sentence or a few."""
    knobs: tuple[str, ...] = ()
    """Names of knobs that would try it, the most promising first."""
    source: str | None = None
    """`file:line` of the user's code, where it is known."""
    hidden_by: str | None = None
    """The rule that found the cause of which this is a symptom."""
    parts: tuple[str, ...] = ()
    """Parts of the run's time that it is about, such as `idle/launching` or `kernel/NAME`."""
    captured_pct: Span | None = None
    """The improvement of a kernel's own time in percent of the time of all kernels that were
    counted; None where the improvement is the run's."""
    uncalibrated_pct: Span | None = None
    """The improvement as the rule gives it, before measured cures moved it; None where none did."""
    place: Place | None = None
    """What is known besides its source line of where it comes from; None where nothing is."""


@dataclass(frozen=True)
class NotMeasured:
    """A rule that could not look: what it says is neither yes nor no."""

    rule: str
    why: str
    """What is missing, in words."""
    how: str
    """How to measure it, in words."""


@dataclass(frozen=True)
class Diagnosis:
    """All that the rules say of one run."""

    findings: tuple[Finding, ...]
    """What costs most first; what is hidden last."""
    not_measured: tuple[NotMeasured, ...] = ()
    failed: Sequence[tuple[str, str]] = ()
    """Rules that raised an exception, with its words: errors in the rules."""
    run_ms: float | None = None
    """The time that improvements are of; None where nothing tells it."""
    together_pct: Span | None = None
    """What all findings that are not hidden are worth together: where two would save the same
    time, it is counted once."""
    busy_ms: float | None = None
    """Time of a step in which the GPU worked, the mean of them where there are several; None where
    the run's steps are not known."""
    profile: str = ""
    """Name of the stored profile that all of this is said of; empty where none was stored, or where
    whoever asked knows it."""

    @property
    def shown(self) -> tuple[Finding, ...]:
        """What is not hidden."""
        return tuple(finding for finding in self.findings if finding.hidden_by is None)
