"""What telemetry says of the GPUs and the machine at one moment, and why it may not.

Unknown is never zero: a metric has a value, or a state that says why there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from gpuadvisor.domain.severity import Severity

Number = int | float
HOST = "host"
"""Stands for the machine where otherwise a GPU's UUID stands."""
UNNAMED = "GPU-lost-"
"""Begin of what stands for the UUID, which nobody could ask, of a GPU that was lost before it was
seen; its number comes next."""
STARTING = "The NVIDIA driver is starting."
"""The problem of a frame from before the driver's first answer: nothing is wrong so far."""
SLOW = "The NVIDIA driver takes long to answer."
"""The problem of a frame while it is no later than it was lately: it answers, every few seconds."""
SILENT = "The NVIDIA driver does not answer."
"""The problem of a frame while it hangs, or takes longer to wake a GPU than any should."""


class State(str, Enum):
    """Whether a metric has a value, and if not, why."""

    OK = "ok"
    NOT_SUPPORTED = "not_supported"
    """This GPU, driver or nvidia-ml-py does not have it; asked again every hour."""
    NO_PERMISSION = "no_permission"
    STALE = "stale"
    """It had a value, and the driver does not answer now."""
    LOST = "lost"
    """The GPU fell off the bus or was removed."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Unavailable:
    """Why a metric has no value now."""

    state: State
    """Never OK."""
    since_s: float
    """Unix time of the last good value, or of the first failure where there never was one."""
    reason: str = ""
    """What the driver said, in words, where it says more than the state."""


@dataclass(frozen=True)
class Gpu:
    """Which GPU (or part of one) a sample is about."""

    uuid: str
    """`GPU-...`, or `MIG-...` for an instance of a partitioned GPU."""
    index: int
    """The number that nvidia-smi gives the GPU; an instance has that of its GPU."""
    name: str
    """Such as `NVIDIA H100 80GB HBM3`; instances have their profile in it."""
    memory_total_bytes: int | None = None
    pci_bus_id: str | None = None
    compute_capability: tuple[int, int] | None = None
    parent_uuid: str | None = None
    """The GPU that a MIG instance is a part of."""

    @property
    def is_instance(self) -> bool:
        return self.parent_uuid is not None


PROCESSES = "processes"
"""What is unavailable of a GPU, as a metric is, where the driver does not list its processes while
it may list those of others: nobody may say then that it has none."""


@dataclass(frozen=True)
class Sample:
    """What was read of one GPU, or of the machine, in one poll."""

    values: Mapping[str, Number]
    """Values by the metric's name. A metric in neither mapping was not due in this poll."""
    unavailable: Mapping[str, Unavailable] = field(default_factory=dict)
    """Metrics without a value, and `PROCESSES`, in every full frame all that are not OK; see
    `Frame.full`."""


@dataclass(frozen=True)
class GpuProcess:
    """A process that has memory on a GPU."""

    gpu: str
    """UUID."""
    pid: int
    kind: str
    """`compute` or `graphics`."""
    memory_bytes: int | None
    """Device memory that it holds; None where the driver does not say."""
    name: str | None
    """None where this process cannot see it: another container's, or already gone."""
    user: str | None = None
    command: str | None = None
    """Its command line, cut to a few hundred characters."""
    container: str | None = None
    """Short id of its container, as its control group has it."""
    is_host_pid: bool = False
    """Whether the number is the host's and means nothing here, as in a container of its own."""
    sm_utilization_pct: float | None = None
    cpu_pct: float | None = None
    host_memory_bytes: int | None = None
    parent_pid: int | None = None
    started_s: float | None = None
    """Unix time."""
    children_cpu_pct: float | None = None
    """CPU time of its descendants that hold no GPU memory, such as a DataLoader's workers, in
    percent of one core; None where it is not known."""
    by_gpuadvisor: bool | None = None
    """Whether gpuadvisor started it, as `run --plan` and `tune` do; None where this user may not
    know."""


@dataclass(frozen=True)
class Event:
    """Something that happened, or lasts."""

    kind: str
    """Such as `throttling`, `xid`, `gap`: docs/daemon.md lists them all."""
    began_s: float
    """Unix time."""
    message: str
    """One sentence for people, with what to do where something can be done."""
    severity: Severity = Severity.INFO
    gpu: str | None = None
    """UUID; None where it is about the machine or gpuadvisor itself."""
    ended_s: float | None = None
    """Unix time; None while it lasts. What has no length ends when it begins."""
    key: str = ""
    """Tells apart what may last side by side on one GPU, such as two reasons for throttling.

    (kind, gpu, key, began_s) names an event: the same event comes again when it has ended.
    """
    data: Mapping[str, Number | str] = field(default_factory=dict)

    @property
    def identity(self) -> tuple[str, str | None, str, float]:
        return (self.kind, self.gpu, self.key, self.began_s)


@dataclass(frozen=True)
class Frame:
    """What one poll of everything read."""

    time_s: float
    """Unix time at which the poll began."""
    samples: Mapping[str, Sample] = field(default_factory=dict)
    """Samples by the GPU's UUID, and by HOST for the machine."""
    full: bool = True
    """Whether all that is due or unavailable is in it, as once a second; else fast values only."""
    gpus: tuple[Gpu, ...] | None = None
    """All GPUs, in the first frame and where they have changed; else None."""
    processes: tuple[GpuProcess, ...] | None = None
    """All processes on GPUs but those of which they are unavailable (`PROCESSES`); None where they
    were not asked for, or the driver cannot say it of any."""
    events: tuple[Event, ...] = ()
    """What only the collector can see: Xid errors, a sampler that was replaced."""
    problem: str | None = None
    """Why nothing can be read at all now, in one sentence; None where all is well."""
