"""What each process took of the GPUs, out of frames of telemetry in their order.

Every second that a GPU was measured goes to the processes that held memory on it, else to what is
`Unclaimed`; nothing is counted twice, and what was not measured is nobody's. Where several jobs
held a GPU, its time and energy are divided by the share of the SMs that each used, where the driver
tells that of all of them and one used any; else in equal parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpuadvisor.domain.accumulators import LISTING_HOLDS_S
from gpuadvisor.domain.jobs import SLICE_S, Unclaimed, Use
from gpuadvisor.domain.telemetry import HOST, PROCESSES, Frame, GpuProcess, Number
from gpuadvisor.rules.jobs.launches import launches
from gpuadvisor.rules.jobs.phases import Before, Poll
from gpuadvisor.rules.jobs.slices import LEVELS, Held, Mean, Sums, name_causes

LONGEST_S = 5.0
"""Seconds between two polls beyond which nothing is known of the time between them: as `gap`."""
WARM_UP_S = 75.0
"""Seconds of frames before the first that counts: limits are read every minute."""
MINUTE_S, HOUR_S = 60.0, 3600.0
LIMITS = ("power_limit_w", "sm_clock_max_mhz")
"""Metrics that hold until they are read again."""
_Launches = Sequence[Sequence[GpuProcess]]


@dataclass(frozen=True)
class Folded:
    """All use of a time that is over."""

    end_s: float
    uses: tuple[Use, ...]


class _Device:
    """One GPU: what was read since the list of its processes changed."""

    def __init__(self) -> None:
        self.last_s: float | None = None
        self.limits: dict[str, Number] = {}
        self.sums = Sums()
        self.polls: list[Poll] = []
        self.owner: _Launches | Unclaimed = Unclaimed.UNKNOWN
        """Who is charged with what both hold: launches of a job, or why nobody is known."""
        self.seen: dict[object, list[Held]] = {}
        """Jobs of the slice under way, by what tells them apart."""
        self.before: dict[object, Before] = {}
        """What is known of them from the slices before."""


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
        self._listed_s = self._listed_before_s = 0.0
        self._places: dict[int, int] = {}
        """The number of GPUs that each process is on."""
        self._host: dict[str, Mean] = {}
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
                self._add(uuid, frame.time_s, sample.values, PROCESSES not in sample.unavailable)
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
        self._listed_before_s, self._listed_s = self._listed_s, time_s
        self._listed, self._places = {}, {}
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
                self._host.setdefault(name, Mean()).add(values[name], 1.0)

    def _add(self, uuid: str, time_s: float, values: Mapping[str, Number], is_listed: bool) -> None:
        device = self._devices.setdefault(uuid, _Device())
        if not values:  # the driver is silent: what was since is not known
            device.last_s = None
            return
        for name in LIMITS:
            if name in values:
                device.limits[name] = values[name]
        last_s, device.last_s = device.last_s, time_s
        if last_s is None or not 0 < time_s - last_s <= LONGEST_S:
            return
        owner = self._owner(uuid, time_s, values) if is_listed else Unclaimed.UNKNOWN
        poll = Poll(time_s, time_s - last_s, values)
        if time_s < self._since_s:
            if not isinstance(owner, Unclaimed):
                _look_back(device, owner, poll)
            return
        if owner is not device.owner:
            self._flush(uuid)
            device.owner = owner
        device.sums.add(values, time_s - last_s)
        device.polls.append(poll)

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
        polls, device.polls, device.sums = device.polls, [], Sums()
        if isinstance(owner, Unclaimed):
            use = self._use(uuid, None, owner)
            use.amounts.held_s += sums.seconds
            _share_out(use, sums, 1.0)
            return
        for launch, share in zip(owner, _shares(owner), strict=True):
            key = _key(launch)
            held = self._held(launch, polls, alone=len(owner) == 1)
            device.seen.setdefault(key, []).append(held)
            self._to_launch(uuid, launch, share, sums, held)

    def _held(self, launch: Sequence[GpuProcess], polls: Sequence[Poll], *, alone: bool) -> Held:
        busiest = max(launch, key=lambda each: each.cpu_pct or 0.0)
        own = [each.sm_utilization_pct for each in launch]
        known = [each for each in own if each is not None]
        return Held(
            polls,
            alone,
            self._listed_before_s,
            busiest.cpu_pct,
            busiest.children_cpu_pct,
            sum(known) if len(known) == len(own) else None,
        )

    def _to_launch(
        self,
        uuid: str,
        launch: Sequence[GpuProcess],
        share: float,
        sums: Sums,
        held: Held,
    ) -> None:
        for each, part in zip(launch, _parts(launch), strict=True):
            use = self._use(uuid, each, None)
            amounts = use.amounts
            amounts.held_s += sums.seconds
            amounts.shared_s += 0.0 if held.alone else sums.seconds
            _share_out(use, sums, share * part)
            held.parts.append((use, share * part, 1 / len(launch)))
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
            if device.seen:
                device.before = {
                    key: name_causes(
                        helds, device.before.get(key, Before()), device.limits, self._host
                    )
                    for key, helds in device.seen.items()
                }
                device.seen = {}
        self._host.clear()

    def _end_minute(self, end_s: float) -> list[Folded]:
        self._end_slice()
        self._slice_s = 0.0
        begin_s, self._minute_s = self._minute_s, None
        uses, self._uses = tuple(self._uses.values()), {}
        if begin_s is None or begin_s + MINUTE_S <= self._since_s:
            return []
        return [Folded(end_s, uses)]


def _look_back(device: _Device, owner: _Launches, poll: Poll) -> None:
    """Note what jobs did in a poll that does not count, so that they do not seem to start."""
    for launch in owner:
        key = _key(launch)
        before = device.before.get(key, Before())
        empty_s = before.empty_s + poll.seconds if poll.is_empty else 0.0
        device.before[key] = Before(before.has_worked or not poll.is_empty, empty_s)


def _key(launch: Sequence[GpuProcess]) -> tuple[float, int]:
    """Return what tells a job on a GPU apart from others there."""
    return min((each.started_s or 0.0, each.pid) for each in launch)


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


def _share_out(use: Use, sums: Sums, share: float) -> None:
    amounts = use.amounts
    amounts.seconds += share * sums.seconds
    for name, (integral, known_s, scale) in LEVELS.items():
        if integral and name in sums.means:
            mean = sums.means[name]
            more, more_s = scale * share * mean.integral, share * mean.known_s
            setattr(amounts, integral, getattr(amounts, integral) + more)
            setattr(amounts, known_s, getattr(amounts, known_s) + more_s)
