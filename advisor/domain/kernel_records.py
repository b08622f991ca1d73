"""What was measured of a kernel: each point of its space, and what was concluded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from gpuadvisor.domain.knobs import Value
from gpuadvisor.domain.study import Objective, Speedup, TrialState, Verdict

Sizes = Mapping[str, Value]
"""A problem's sizes by name."""


@dataclass(frozen=True)
class KernelDiagnosis:
    """What a stored profile with hardware counters says of a kernel."""

    profile: str
    """Its name in the store."""
    rules: tuple[str, ...]
    """Rules that found something of which no other is the cause, the most expensive first."""
    threads: frozenset[int]
    """Threads of a block, of the launches that were profiled."""


@dataclass(frozen=True)
class Evaluation:
    """One point that was compiled, checked and timed, or failed on the way."""

    point: Mapping[str, Value]
    state: TrialState
    """`complete`; `pruned` (clearly slower, so timed in few rounds); `unsupported` (it does not
    compile, or takes more than a block can have); `crashed`, `hung`, `wrong`, `out_of_memory`."""
    reason: str = ""
    """Why it failed, in the compiler's or the driver's words; of `complete`, what is to be said of
    its results, mostly nothing."""
    times_ms: tuple[float, ...] = ()
    """Each timed launch."""
    default_ms: tuple[float, ...] = ()
    """The default's launches, in turns with these; empty where that is not known."""
    recorded_ms: float | None = None
    """The time that a file gives for the point; None for one that was measured here."""
    compile_ms: float = 0.0
    check_ms: float = 0.0
    timing_ms: float = 0.0
    resources: Mapping[str, int] = field(default_factory=dict)
    """`registers`, `shared_bytes`, `local_bytes`; what is not known is missing."""
    energy_mj: float | None = None
    """Energy of a launch in millijoules, launched back to back; None where it was not measured."""
    default_energy_mj: float | None = None
    """The default's, right before."""
    clock_mhz: int | None = None
    """SM clock right after the last launch; None where it was not read."""
    slowed_by: tuple[str, ...] = ()
    """What held the clock down then: names of `gpuadvisor.domain.clock_reasons.SLOWING`."""

    @property
    def time_ms(self) -> float | None:
        """Median of the launches; None for a failure."""
        if self.recorded_ms is not None:
            return self.recorded_ms
        return median(self.times_ms) if self.times_ms else None

    @property
    def gain(self) -> float | None:
        """The default's time over this one's in the same rounds; None for a failure.

        Of energies, where these were measured. Without the default's time it is the inverse of the
        time: it only ranks then.
        """
        if self.time_ms is None:
            return None
        if self.energy_mj and self.default_energy_mj:
            return self.default_energy_mj / self.energy_mj
        return (median(self.default_ms) if self.default_ms else 1.0) / self.time_ms


@dataclass(frozen=True)
class Record:
    """A kernel's space on one device for one problem, with the evaluations that there are."""

    kernel: str
    device: str
    problem: Sizes | Sequence[int]
    """Sizes by name; a file of Kernel Tuner may have numbers alone."""
    parameters: Mapping[str, tuple[Value, ...]]
    evaluations: tuple[Evaluation, ...] = ()


@dataclass(frozen=True)
class KernelResult:
    """What tuning a kernel for a problem came to."""

    kernel: str
    problem: Sizes
    device: str
    points: int
    """Feasible points of the space."""
    default: Mapping[str, Value]
    verdict: Verdict
    """`faster` (proven), `no_gain`, `inconclusive`, or `not_tried`."""
    best: Mapping[str, Value] | None = None
    """The fastest point that was proven faster than the default; None where there is none."""
    speedup: Speedup | None = None
    """Default's time over the best's, from blocks of rounds in turns in a fresh process."""
    default_ms: float | None = None
    best_ms: float | None = None
    evaluations: tuple[Evaluation, ...] = ()
    useful_bytes: float | None = None
    useful_flops: float | None = None
    has_reference: bool = False
    """Whether results were compared with a reference; else with what the default computes."""
    repeats: bool = True
    """Whether the default gives the same bits twice."""
    record: str = ""
    """Path of the file with all evaluations, as Kernel Tuner reads it."""
    wall_s: float = 0.0
    search_s: float = 0.0
    """Time that choosing points took, within `wall_s`."""
    restarts: int = 0
    """How often a kernel's crash or hang took its process with it."""
    interrupted: str = ""
    """Why it ended early; empty otherwise."""
    remarks: tuple[str, ...] = ()
    """Sentences on how it was searched and measured, for whoever reads the figures."""
    file: str = ""
    """Absolute path of the kernel file."""
    objective: Objective = Objective.LATENCY
    """Whether the speed-up is of times, or of energies of a launch (`ENERGY`)."""
    started: str = ""
    """UTC, ISO 8601."""
    language: str = ""
    """`cuda_cpp`, `triton`, `cupy` or `numba`; empty where it is not known."""
    dtype: str = ""
    """Type of the first array's elements, as torch names it; empty where it is not known."""
    parameters: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    """The values of each parameter, in the order of the kernel file."""
    size_restrictions: tuple[str, ...] | None = None
    """Restrictions that may depend on the problem's sizes, as expressions; None where one is a
    function, so that nobody knows whether they hold for other sizes."""
    compute_capability: tuple[int, int] | None = None
    uuid: str = ""
    """`GPU-...`; empty where it is not known."""

    @property
    def counts(self) -> dict[str, int]:
        """How many evaluations ended in each state, those that occurred."""
        states = [str(each.state) for each in self.evaluations]
        return {state: states.count(state) for state in dict.fromkeys(states)}


WITHIN = (0.05, 0.02, 0.01)
"""Shares of the best time for which a replay counts evaluations."""


@dataclass(frozen=True)
class Replayed:
    """How a strategy did on a recorded space, over seeds."""

    strategy: str
    searches: tuple[tuple[float, ...], ...]
    """The time of each evaluation in milliseconds, in order; infinite for a failure."""
    score: float
    """Performance score: see `gpuadvisor.tuners.kernels.search_score`."""
    evaluations: tuple[float | None, ...]
    """Median evaluations until the best was within each of `WITHIN`; None where half never were."""
    reached: tuple[float, ...]
    """Share of the searches that came that near at all."""
    overhead_ms: float
    """CPU time that choosing a point took, a point."""
    best: Evaluation
    """The best point of all searches."""


@dataclass(frozen=True)
class Replay:
    """A recorded space, and what strategies make of it."""

    kernel: str
    device: str
    points: int
    valid_points: int
    best_ms: float
    median_ms: float
    random: tuple[int, ...]
    """What a random search needs in the median, exactly, for each of `WITHIN`."""
    replayed: tuple[Replayed, ...]
    budget: int
    """Most evaluations of a search."""

    @property
    def searches(self) -> int:
        """Searches of each strategy."""
        return max((len(each.searches) for each in self.replayed), default=0)
