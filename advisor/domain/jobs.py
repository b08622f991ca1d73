"""Jobs: what was started together and used GPUs, with what it took of them and what slowed it down.

A job is made of uses: what one process took of one GPU in one hour. Uses add up to what telemetry
knows of the GPUs, since every second of each GPU is somebody's or `Unclaimed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum

from gpuadvisor.domain.telemetry import GpuProcess

SLICE_S = 20.0
"""Length of what a cause is named for, in seconds: four listings of processes and twenty polls, and
short beside the phases of a job."""
UNTOLD = "untold"
"""The cause of a slice for which telemetry cannot tell one."""


class Unclaimed(str, Enum):
    """Why a part of a GPU's time and energy belongs to no job."""

    FREE = "free"
    """Nobody held memory on it, and no kernel ran."""
    UNATTRIBUTED = "unattributed"
    """Kernels ran, of no process that was listed: it was shorter than the time between listings."""
    UNKNOWN = "unknown"
    """The driver did not say which processes there were, or whether kernels ran."""
    OTHERS = "others"
    """Jobs of other users, of which this user may not know more."""

    def __str__(self) -> str:
        return self.value


@dataclass
class Amounts:
    """Sums over the time for which a process held a GPU. Time is divided where jobs shared it."""

    seconds: float = 0.0
    """GPU time: the job's part of the time for which it held the GPU."""
    held_s: float = 0.0
    """That time, undivided."""
    shared_s: float = 0.0
    """The part of `held_s` in which other jobs held memory on the same GPU."""
    energy_j: float = 0.0
    energy_s: float = 0.0
    """The part of `seconds` for which power was known; so with the other `_s` below."""
    memory_byte_s: float = 0.0
    """Device memory integrated over the time for which it was known, `memory_s`."""
    memory_s: float = 0.0
    busy_s: float = 0.0
    """Time in which a kernel ran: utilization integrated over `busy_known_s`."""
    busy_known_s: float = 0.0
    sm_s: float = 0.0
    sm_known_s: float = 0.0
    tensor_s: float = 0.0
    tensor_known_s: float = 0.0
    dram_s: float = 0.0
    dram_known_s: float = 0.0
    cpu_s: float = 0.0
    """CPU time of the process, of one that is on several GPUs a part on each."""
    cpu_known_s: float = 0.0
    children_cpu_s: float = 0.0
    """CPU time of its descendants without GPU memory."""
    children_known_s: float = 0.0

    def add(self, other: Amounts) -> None:
        """Add another's sums to these."""
        for name in QUANTITIES:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def utilization(self) -> float | None:
        """Share of the time (0 to 1) in which a kernel ran; None where that was not measured."""
        return self.busy_s / self.busy_known_s if self.busy_known_s else None

    @property
    def sm_active(self) -> float | None:
        """Share of the SMs with work, over time; None where it was not measured."""
        return self.sm_s / self.sm_known_s if self.sm_known_s else None

    @property
    def tensor_active(self) -> float | None:
        """Share of the cycles in which the tensor pipe worked; None where it was not measured."""
        return self.tensor_s / self.tensor_known_s if self.tensor_known_s else None

    @property
    def dram_active(self) -> float | None:
        """Share of the memory's peak bandwidth in use; None where it was not measured."""
        return self.dram_s / self.dram_known_s if self.dram_known_s else None

    @property
    def cpu_cores(self) -> float | None:
        """Cores that its processes kept busy, for each GPU; None where that was not measured."""
        return self.cpu_s / self.cpu_known_s if self.cpu_known_s else None

    @property
    def children_cpu_cores(self) -> float | None:
        """Cores that their descendants kept busy, for each GPU; None where it was not measured."""
        return self.children_cpu_s / self.children_known_s if self.children_known_s else None

    @property
    def memory_mean_bytes(self) -> float | None:
        """Device memory held on a GPU by one process; None where it was not told."""
        return self.memory_byte_s / self.memory_s if self.memory_s else None


QUANTITIES = tuple(each.name for each in fields(Amounts))
"""The names of all sums."""


@dataclass
class Loss:
    """The time for which one cause held, and how much of it could be gained at most."""

    seconds: float = 0.0
    """GPU time, divided where it was shared."""
    lost_s: float = 0.0
    """At most so much of it is lost, as far as telemetry shows."""
    held_s: float = 0.0
    """The time for which it held on a GPU, undivided."""

    def add(self, other: Loss) -> None:
        """Add what the same cause took at another time."""
        self.seconds += other.seconds
        self.lost_s += other.lost_s
        self.held_s += other.held_s


@dataclass
class Use:
    """What a process took of one GPU in an hour, or what nobody did."""

    hour_s: float
    """Unix time at which the hour began."""
    gpu: str
    """UUID."""
    process: GpuProcess | None
    """Who it was, as far as that does not change while it lives; None for what is `unclaimed`."""
    unclaimed: Unclaimed | None = None
    first_s: float = 0.0
    """Unix time from which it was there in this hour."""
    last_s: float = 0.0
    memory_max_bytes: int = 0
    amounts: Amounts = field(default_factory=Amounts)
    causes: dict[str, Loss] = field(default_factory=dict)
    """What slowed it down for how long, by the names of causes; UNTOLD where that cannot be
    told."""

    def add(self, other: Use) -> None:
        """Add what the same process took of the same GPU at another time."""
        self.first_s = min(self.first_s, other.first_s)
        self.last_s = max(self.last_s, other.last_s)
        self.memory_max_bytes = max(self.memory_max_bytes, other.memory_max_bytes)
        self.amounts.add(other.amounts)
        for name, loss in other.causes.items():
            self.causes.setdefault(name, Loss()).add(loss)


@dataclass(frozen=True)
class Slice:
    """A job on one GPU for some seconds: what a cause is named from. None is not known."""

    held_s: float
    """Time for which it held the GPU and both were measured."""
    alone: bool
    """Whether no other job held memory on the GPU meanwhile."""
    utilization_pct: float | None = None
    at_work_pct: float | None = None
    """Utilization of the polls that saw any kernel."""
    sm_active_pct: float | None = None
    own_sm_pct: float | None = None
    """Utilization by the job itself, as the driver tells it of processes."""
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    held_down: Mapping[str, float] = field(default_factory=dict)
    """Shares of the polls (0 to 1) in which the clocks were held down, by `clock_reasons` names."""
    cpu_pct: float | None = None
    """CPU time of its busiest process on this GPU, in percent of one core."""
    children_cpu_pct: float | None = None
    """CPU time of that process's descendants without GPU memory."""
    machine_cpu_pct: float | None = None
    """CPU time in use of all cores of the machine, in percent of them."""
    io_stall_pct: float | None = None
    """Time in which some process of the machine waited for a disk or the network."""


@dataclass(frozen=True)
class JobProfile:
    """The one profile that the daemon had made of a job, or why there is none."""

    pid: int
    """The process of the job whose steps were recorded."""
    user: str
    time_s: float
    """Unix time at which it was begun."""
    name: str | None = None
    """The profile's name in the store of the daemon's user; None where none was made."""
    findings: tuple[str, ...] = ()
    """What the profile says, most important first."""
    problem: str | None = None
    """Why none was made, as a clause; None where one was, or it has not come to its end yet."""


@dataclass(frozen=True)
class Job:
    """Processes that were started together, with all they took of GPUs in a span."""

    key: str
    """Short text that names the job for as long as it is stored."""
    script: str
    """The script's file name, `-m module`, or the program; `?` where nothing is known."""
    command: str | None
    user: str | None
    container: str | None
    gpus: tuple[str, ...]
    """UUIDs."""
    pids: tuple[int, ...]
    start_s: float
    """Unix time of the start, or of the begin of the span where that was later and is not known."""
    end_s: float
    """Unix time at which it was seen last."""
    is_running: bool
    """Whether it was there when the GPUs were read last, a moment ago; where that is longer ago,
    nobody knows, and it is not said to."""
    memory_max_bytes: int
    """Most device memory that one of its processes held on one GPU."""
    amounts: Amounts
    causes: Mapping[str, Loss]
    by_gpuadvisor: bool | None
    """Whether gpuadvisor started it, as with a plan; None where that is not known."""
    profile: JobProfile | None = None
    """What a profile says that was made of it while it ran; None where nobody tried."""

    @property
    def gpu_hours(self) -> float:
        return self.amounts.seconds / 3600

    @property
    def lost_hours(self) -> float:
        """GPU-hours that it wasted at most, whatever the cause."""
        return sum(loss.lost_s for loss in self.causes.values()) / 3600


@dataclass(frozen=True)
class Advice:
    """What is said of a job."""

    cause: str
    """Name of the cause, or of what is said without one: `proven_plan`, `cannot_tell`."""
    sentence: str
    """What it does, as a clause without a full stop."""
    what_to_do: str
    """What its owner can do about it, as a clause without a full stop; empty where nothing can be
    named."""
    gain_hours: float | None
    """GPU-hours to gain at most, an estimate; None where nothing can be gained or estimated."""
    method: str
    """How that was estimated, or what is wasted; empty where nothing is."""
    is_bound: bool = False
    """Whether the hours to gain are a bound that is hardly ever reached."""


@dataclass(frozen=True)
class ProvenPlan:
    """A plan that a study proved for a script, which a job could have used."""

    study: str
    script: str
    """Path of the script as the study was given it, or the module."""
    folder: str
    device: str
    """Name of the GPU."""
    ratio: float
    """How many times as fast."""
    path: str
    """Where the plan is."""
    is_verified: bool


@dataclass(frozen=True)
class Ledger:
    """Jobs of a span and what was nobody's: together, what telemetry knows of the GPUs."""

    since_s: float
    until_s: float
    jobs: tuple[Job, ...]
    unclaimed: Mapping[Unclaimed, Amounts]
    withheld: str | None = None
    """What this user may not see and why, in one sentence; None where nothing is kept back."""

    @property
    def total(self) -> Amounts:
        """All GPU time and energy that telemetry knows."""
        made = Amounts()
        for each in (*(job.amounts for job in self.jobs), *self.unclaimed.values()):
            made.add(each)
        return made
