"""What each process took of the GPUs, out of frames of telemetry in their order.

Every second that a GPU was measured goes to the processes that held memory on it, else to what is
`Unclaimed`; nothing is counted twice, and what was not measured is nobody's. Where several jobs
held a GPU, its time and energy are divided by the share of the SMs that each used, where the driver
tells that of all of them and one used any; else in equal parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuadvisor.domain.clock_reasons import SLOWING, holds
from gpuadvisor.domain.jobs import SLICE_S, Loss, Slice, Unclaimed, Use
from gpuadvisor.domain.telemetry import HOST, Frame, GpuProcess, Number
from gpuadvisor.rules.job_causes import name_cause
from gpuadvisor.rules.job_launches import launches

LONGEST_S = 5.0
"""Seconds between two polls beyond which nothing is known of the time between them: as `gap`."""
LISTING_HOLDS_S = 15.0
"""Seconds for which a list of processes holds: three times the time between two of them."""
WARM_UP_S = 75.0
"""Seconds of frames before the first that counts: limits are read every minute."""
MINUTE_S, HOUR_S = 60.0, 3600.0
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
LIMITS = ("power_limit_w", "sm_clock_max_mhz")
"""Metrics that hold until they are read again."""
_Launches = Sequence[Sequence[GpuProcess]]


@dataclass(frozen=True)
class Folded:
    """All use of a time that is over."""

    end_s: float
    uses: tuple[Use, ...]


@dataclass
class _Sums:
    """What the polls of one GPU come to, in seconds times values."""

    seconds: float = 0.0
    of: dict[str, float] = field(default_factory=dict)
    """Integrals by the metric's name."""
    known_s: dict[str, float] = field(default_factory=dict)
    """Seconds in which each was known; so of `FLAGS`."""
    held_down_s: dict[str, float] = field(default_factory=dict)

    def add(self, values: Mapping[str, Number], seconds: float) -> None:
        self.seconds += seconds
        for name in LEVELS:
            value = values.get(name)
            if value is not None:
                self.of[name] = self.of.get(name, 0.0) + value * seconds
                self.known_s[name] = self.known_s.get(name, 0.0) + seconds
        mask = values.get(FLAGS)
        if mask is not None:
            self.known_s[FLAGS] = self.known_s.get(FLAGS, 0.0) + seconds
            for name in SLOWING if mask else ():
                if holds(int(mask), name):
                    self.held_down_s[name] = self.held_down_s.get(name, 0.0) + seconds

    def join(self, other: _Sums) -> None:
        self.seconds += other.seconds
        for mine, theirs in (
            (self.of, other.of),
            (self.known_s, other.known_s),
            (self.held_down_s, other.held_down_s),
        ):
            for name, value in theirs.items():
                mine[name] = mine.get(name, 0.0) + value

    def mean(self, name: str) -> float | None:
        known_s = self.known_s.get(name)
        return self.of[name] / known_s if known_s else None


@dataclass
class _Seen:
    """A job on one GPU during a slice, so far."""

    sums: _Sums = field(default_factory=_Sums)
    shared_s: float = 0.0
    own_sm: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Integral, and the seconds in which it was known; so the two below."""
    cpu: list[float] = field(default_factory=lambda: [0.0, 0.0])
    children: list[float] = field(default_factory=lambda: [0.0, 0.0])
    parts: list[tuple[Use, float, float]] = field(default_factory=list)
    """The uses that it consists of, with their GPU time, and the time for which they held it, of
    several processes of a job a part each."""


class _Device:
    """One GPU: what was read since the list of its processes changed."""

    def __init__(self) -> None:
        self.last_s: float | None = None
        self.limits: dict[str, Number] = {}
        self.sums = _Sums()
        self.owner: _Launches | Unclaimed = Unclaimed.UNKNOWN
        """Who is charged with what `sums` holds: launches of a job, or why nobody is known."""
        self.seen: dict[object, _Seen] = {}
        """Jobs of the slice under way, by what tells them apart."""


class JobFold:
    """Frames in, uses out, a minute at a time; frames come in order of time."""

    def __init__(
        self, since_s: float = float("-inf"), instances: Mapping[str, str] | None = None
    ) -> None:
        """What was before `since_s` (Unix time, a whole minute) is seen and not counted. The UUIDs
        of the GPUs that MIG `instances` are parts of, by theirs, may be told as they become known.

        A second between two polls belongs to the minute of the later one, so that each is counted
        once, whoever goes on with the next minute.
        """
        self._since_s = since_s
        self._minute_s: float | None = None
        self._slice_s = 0.0
        self._last_s = 0.0
        self._devices: dict[str, _Device] = {}
        self._told: Mapping[str, str] = {} if instances is None else instances
        self._instances: dict[str, str] = {}
        """The GPU of each MIG instance that a frame has listed."""
        self._listed: dict[str, list[list[GpuProcess]]] | None = None
        """Jobs of each GPU; None where they are not known."""
        self._listed_s = 0.0
        self._places: dict[int, int] = {}
        """The number of GPUs that each process is on."""
        self._host: dict[str, list[float]] = {}
        self._uses: dict[tuple[object, ...], Use] = {}

    def add(self, frame: Frame) -> list[Folded]:
        """Take in a frame; return the minutes that it ended."""
        if not frame.full:
            return []
        if frame.gpus is not None:
            self._instances |= {g.uuid: g.parent_uuid for g in frame.gpus if g.parent_uuid}
        folded = self._move_to(frame.time_s)
        if frame.processes is not None:
            self._list(frame.processes, frame.time_s)
        parents = self._in_parts(frame)
        for uuid, sample in frame.samples.items():
            if uuid == HOST:
                self._add_host(sample.values)
            elif uuid not in parents:
                self._add(uuid, frame.time_s, sample.values)
        return folded

    def _in_parts(self, frame: Frame) -> set[str]:
        """Return the GPUs that are counted by their instances: those with one in this very frame,
        as the list of a store is that of now, whenever the frame was."""
        parents = (self._instances.get(each) or self._told.get(each) for each in frame.samples)
        return {parent for parent in parents if parent is not None}

    def finish(self) -> list[Folded]:
        """Return what is left of the minute under way."""
        return self._end_minute(self._last_s) if self._minute_s is not None else []

    def _move_to(self, time_s: float) -> list[Folded]:
        minute_s = time_s // MINUTE_S * MINUTE_S
        folded: list[Folded] = []
        if self._minute_s is not None and minute_s != self._minute_s:
            folded = self._end_minute(self._minute_s + MINUTE_S)
        slice_s = time_s // SLICE_S * SLICE_S
        if slice_s != self._slice_s:
            self._end_slice()
            self._slice_s = slice_s
        self._minute_s, self._last_s = minute_s, time_s
        return folded

    def _list(self, processes: Sequence[GpuProcess], time_s: float) -> None:
        for uuid in self._devices:
            self._flush(uuid)
        self._listed_s, self._listed, self._places = time_s, {}, {}
        for each in {(each.gpu, each.pid): each for each in processes}.values():
            self._places[each.pid] = self._places.get(each.pid, 0) + 1
        for launch in launches(processes, lambda each: each):
            by_gpu: dict[str, dict[int, GpuProcess]] = {}
            for each in launch:
                by_gpu.setdefault(each.gpu, {})[each.pid] = each
            for gpu, there in by_gpu.items():
                self._listed.setdefault(gpu, []).append(list(there.values()))

    def _add_host(self, values: Mapping[str, Number]) -> None:
        for name in ("cpu_pct", "io_stall_pct"):
            if name in values:
                sums = self._host.setdefault(name, [0.0, 0.0])
                sums[0] += values[name]
                sums[1] += 1

    def _add(self, uuid: str, time_s: float, values: Mapping[str, Number]) -> None:
        device = self._devices.setdefault(uuid, _Device())
        if not values:  # the driver is silent: what was since is not known
            device.last_s = None
            return
        for name in LIMITS:
            if name in values:
                device.limits[name] = values[name]
        last_s, device.last_s = device.last_s, time_s
        if last_s is None or not 0 < time_s - last_s <= LONGEST_S or time_s < self._since_s:
            return
        owner = self._owner(uuid, time_s, values)
        if owner is not device.owner:
            self._flush(uuid)
            device.owner = owner
        device.sums.add(values, time_s - last_s)

    def _owner(
        self, uuid: str, time_s: float, values: Mapping[str, Number]
    ) -> _Launches | Unclaimed:
        if self._listed is None or time_s - self._listed_s > LISTING_HOLDS_S:
            return Unclaimed.UNKNOWN
        there = self._listed.get(uuid)
        if there:
            return there
        used = values.get("gpu_utilization_pct")
        if used is None:
            return Unclaimed.UNKNOWN
        return Unclaimed.UNATTRIBUTED if used else Unclaimed.FREE

    # -- from seconds of a GPU to uses -------------------------------------------------------------

    def _flush(self, uuid: str) -> None:
        """Give what was read of a GPU to those whose it is."""
        device = self._devices[uuid]
        sums, owner = device.sums, device.owner
        if not sums.seconds:
            return
        device.sums = _Sums()
        if isinstance(owner, Unclaimed):
            use = self._use(uuid, None, owner)
            use.amounts.held_s += sums.seconds
            _share_out(use, sums, 1.0)
            return
        for launch, share in zip(owner, _shares(owner), strict=True):
            key = min((each.started_s or 0.0, each.pid) for each in launch)
            seen = device.seen.setdefault(key, _Seen())
            seen.sums.join(sums)
            seen.shared_s += sums.seconds if len(owner) > 1 else 0.0
            self._to_launch(uuid, launch, share, sums, seen, len(owner) > 1)

    def _to_launch(
        self,
        uuid: str,
        launch: Sequence[GpuProcess],
        share: float,
        sums: _Sums,
        seen: _Seen,
        is_shared: bool,
    ) -> None:
        for each, part in zip(launch, _parts(launch), strict=True):
            use = self._use(uuid, each, None)
            amounts = use.amounts
            amounts.held_s += sums.seconds
            amounts.shared_s += sums.seconds if is_shared else 0.0
            _share_out(use, sums, share * part)
            seen.parts.append((use, share * part * sums.seconds, sums.seconds / len(launch)))
            if each.memory_bytes is not None:
                amounts.memory_byte_s += each.memory_bytes * sums.seconds
                amounts.memory_s += sums.seconds
                use.memory_max_bytes = max(use.memory_max_bytes, each.memory_bytes)
            here_s = sums.seconds / self._places.get(each.pid, 1)
            if each.cpu_pct is not None:
                amounts.cpu_s += each.cpu_pct / 100 * here_s
                amounts.cpu_known_s += here_s
            if each.children_cpu_pct is not None:
                amounts.children_cpu_s += each.children_cpu_pct / 100 * here_s
                amounts.children_known_s += here_s
        busiest = max(launch, key=lambda each: each.cpu_pct or 0.0)
        own = [each.sm_utilization_pct for each in launch]
        _integrate(seen.cpu, busiest.cpu_pct, sums.seconds)
        _integrate(seen.children, busiest.children_cpu_pct, sums.seconds)
        known = [each for each in own if each is not None]
        _integrate(seen.own_sm, sum(known) if len(known) == len(own) else None, sums.seconds)

    def _use(self, uuid: str, process: GpuProcess | None, unclaimed: Unclaimed | None) -> Use:
        key: tuple[object, ...] = (uuid, unclaimed)
        if process is not None:
            key = (uuid, process.pid, process.started_s, process.is_host_pid)
        use = self._uses.get(key)
        if use is None:
            lasting = process and replace(
                process, memory_bytes=None, sm_utilization_pct=None, cpu_pct=None,
                host_memory_bytes=None, children_cpu_pct=None,
            )  # fmt: skip
            hour_s = (self._minute_s or 0.0) // HOUR_S * HOUR_S
            use = self._uses[key] = Use(hour_s, uuid, lasting, unclaimed, first_s=self._last_s)
        use.last_s = self._last_s
        return use

    def _end_slice(self) -> None:
        for uuid, device in self._devices.items():
            self._flush(uuid)
            for seen in device.seen.values():
                cause, share = name_cause(self._slice(device, seen))
                for use, seconds, held_s in seen.parts:
                    found = Loss(seconds, share * seconds, held_s)
                    use.causes.setdefault(cause, Loss()).add(found)
            device.seen.clear()
        self._host.clear()

    def _slice(self, device: _Device, seen: _Seen) -> Slice:
        sums = seen.sums
        polls_s = sums.known_s.get(FLAGS, 0.0)
        return Slice(
            held_s=sums.seconds,
            alone=not seen.shared_s,
            utilization_pct=sums.mean("gpu_utilization_pct"),
            sm_active_pct=sums.mean("sm_active_pct"),
            own_sm_pct=_mean(seen.own_sm),
            power_w=sums.mean("power_w"),
            power_limit_w=device.limits.get("power_limit_w"),
            sm_clock_mhz=sums.mean("sm_clock_mhz"),
            sm_clock_max_mhz=device.limits.get("sm_clock_max_mhz"),
            held_down={name: held / polls_s for name, held in sums.held_down_s.items() if polls_s},
            cpu_pct=_mean(seen.cpu),
            children_cpu_pct=_mean(seen.children),
            machine_cpu_pct=_mean(self._host.get("cpu_pct", [0.0, 0.0])),
            io_stall_pct=_mean(self._host.get("io_stall_pct", [0.0, 0.0])),
        )

    def _end_minute(self, end_s: float) -> list[Folded]:
        self._end_slice()
        self._slice_s = 0.0
        begin_s, self._minute_s = self._minute_s, None
        uses, self._uses = tuple(self._uses.values()), {}
        if begin_s is None or begin_s + MINUTE_S <= self._since_s:
            return []
        return [Folded(end_s, uses)]


def _shares(owner: _Launches) -> list[float]:
    """Return the share of a GPU that each job has, by the rule of this module."""
    used: list[float] = []
    for launch in owner:
        known = [each.sm_utilization_pct for each in launch if each.sm_utilization_pct is not None]
        if len(known) < len(launch):
            return [1 / len(owner)] * len(owner)
        used.append(sum(known))
    total = sum(used)
    return [each / total for each in used] if total else [1 / len(owner)] * len(owner)


def _parts(launch: Sequence[GpuProcess]) -> list[float]:
    """Return the share of its job's part that each process has, by the same rule."""
    return _shares([[each] for each in launch])


def _share_out(use: Use, sums: _Sums, share: float) -> None:
    amounts = use.amounts
    amounts.seconds += share * sums.seconds
    for name, (integral, known_s, scale) in LEVELS.items():
        if integral and name in sums.of:
            more, more_s = scale * share * sums.of[name], share * sums.known_s[name]
            setattr(amounts, integral, getattr(amounts, integral) + more)
            setattr(amounts, known_s, getattr(amounts, known_s) + more_s)


def _integrate(sums: list[float], value: float | None, seconds: float) -> None:
    if value is not None:
        sums[0] += value * seconds
        sums[1] += seconds


def _mean(sums: Sequence[float]) -> float | None:
    return sums[0] / sums[1] if sums[1] else None
