"""What lasts becomes one event: with a delay before it begins and before it ends (hysteresis)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from gpuadvisor.domain.latest import Latest
from gpuadvisor.domain.telemetry import Event, Frame, Gpu, Number, Severity

UNKNOWN_END_S = 60.0
"""An event whose cause cannot be observed for so long ends when it was seen last. One reading a
minute is the slowest pace of any metric, so nothing that is still read is taken for unknown."""
SAME_TIME_STEP_S = 1e-6
"""Keeps two events apart that begin at one time; floats of today's Unix times resolve 0.24 us."""


@dataclass(frozen=True)
class Wording:
    """What an event says."""

    message: str
    severity: Severity = Severity.WARNING
    data: Mapping[str, Number | str] = field(default_factory=dict)


@dataclass
class _Episode:
    began_s: float
    """When it was first seen since it was last over."""
    seen_s: float
    """When it was last seen."""
    checked_s: float
    """When it was last known whether it goes on."""
    held_s: float = 0.0
    """For how long it was seen, without the breaks."""
    event: Event | None = None
    """What was reported; None before it has lasted long enough."""


class Episodes:
    """The episodes of one kind, one at a time for each GPU and key."""

    def __init__(self, kind: str, *, begin_after_s: float = 0.0, end_after_s: float = 0.0) -> None:
        self.kind = kind
        self.begin_after_s = begin_after_s
        """How long it must have held in sum; breaks below `end_after_s` do not start it anew."""
        self.end_after_s = end_after_s
        """How long it must be over."""
        self._running: dict[tuple[str | None, str], _Episode] = {}
        self._last_began_s: dict[tuple[str | None, str], float] = {}

    def is_running(self, gpu: str | None, key: str = "") -> bool:
        """Return whether an event that was reported still lasts."""
        episode = self._running.get((gpu, key))
        return episode is not None and episode.event is not None

    def has(self, gpu: str | None, key: str = "") -> bool:
        """Return whether there is an episode, reported or not."""
        return (gpu, key) in self._running

    def see(
        self,
        time_s: float,
        holds: bool | None,
        wording: Callable[[], Wording],
        gpu: str | None = None,
        key: str = "",
    ) -> Iterator[Event]:
        """Take in whether it holds now (None: not known); yield the event that begins or ends.

        `wording` is asked only when the event begins.
        """
        name = (gpu, key)
        episode = self._running.get(name)
        if episode is None:
            if not holds:
                return
            episode = self._running[name] = _Episode(time_s, time_s, time_s)
        elif time_s < episode.checked_s:  # the clock was set back: nothing can be measured by it
            yield from self._end(name, episode, time_s)
            return
        elif holds:
            episode.held_s += (
                time_s - episode.checked_s if episode.seen_s == episode.checked_s else 0
            )
            episode.seen_s = time_s
        if holds is not None:
            episode.checked_s = time_s
        if holds and episode.event is None and episode.held_s >= self.begin_after_s:
            episode.event = self._begun(name, episode.began_s, wording())
            yield episode.event
        elif holds is None and time_s - episode.checked_s >= UNKNOWN_END_S:
            yield from self._end(name, episode, episode.seen_s)
        elif holds is False and time_s - episode.seen_s >= self.end_after_s:
            yield from self._end(name, episode, time_s)

    def forget(self, gpu: str, time_s: float) -> Iterator[Event]:
        """End what lasts on a GPU that is not there any more."""
        for name in [name for name in self._running if name[0] == gpu]:
            yield from self._end(name, self._running[name], time_s)

    def _begun(self, name: tuple[str | None, str], began_s: float, wording: Wording) -> Event:
        if self._last_began_s.get(name) == began_s:
            began_s += SAME_TIME_STEP_S
        self._last_began_s[name] = began_s
        gpu, key = name
        return Event(
            self.kind,
            began_s,
            wording.message,
            wording.severity,
            gpu,
            key=key,
            data=wording.data,
        )

    def _end(
        self, name: tuple[str | None, str], episode: _Episode, time_s: float
    ) -> Iterator[Event]:
        del self._running[name]
        if episode.event is not None:
            yield replace(episode.event, ended_s=max(time_s, episode.event.began_s))


class GpuDetector:
    """A detector that judges one GPU after the other: what most of them are."""

    in_fast_frames = False
    """Whether it also looks between the whole frames."""

    def __init__(self, kind: str, *, begin_after_s: float = 0.0, end_after_s: float = 0.0) -> None:
        self.episodes = Episodes(kind, begin_after_s=begin_after_s, end_after_s=end_after_s)
        self._listed: set[str] = set()

    def judge(self, gpu: Gpu, frame: Frame, latest: Latest) -> Iterable[tuple[str, bool | None]]:
        """Return for each key whether it holds now; None where that is not known."""
        raise NotImplementedError

    def word(self, gpu: Gpu, key: str, latest: Latest) -> Wording:
        """Return what the event says that begins now."""
        raise NotImplementedError

    def observe(self, frame: Frame, latest: Latest) -> Iterator[Event]:
        if frame.gpus is not None:
            listed = {gpu.uuid for gpu in frame.gpus}
            for uuid in self._listed - listed:
                yield from self.episodes.forget(uuid, frame.time_s)
            self._listed = listed
        if not frame.whole and not self.in_fast_frames:
            return
        for gpu in latest.gpus:
            for key, holds in self.judge(gpu, frame, latest):
                if not holds and not self.episodes.has(gpu.uuid, key):
                    continue  # nothing to begin or end: nearly always
                wording = partial(self.word, gpu, key, latest)
                yield from self.episodes.see(frame.time_s, holds, wording, gpu.uuid, key)


def called(gpu: Gpu) -> str:
    """Return how messages call a GPU."""
    return f"MIG instance {gpu.uuid} of GPU {gpu.index}" if gpu.is_instance else f"GPU {gpu.index}"


def duration(seconds: float) -> str:
    """Return a time for people: `8 s`, `12 min 3 s`, `5 h 20 min`, `3 d 4 h`."""
    whole = max(round(seconds), 0)
    for unit_s, unit, next_s, smaller in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= unit_s:
            rest = whole % unit_s // next_s
            return f"{whole // unit_s} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"
