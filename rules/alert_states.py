"""Conditions over time: what holds for long enough fires as an event, and is resolved later.

A delay before an event begins and one before it ends (hysteresis) keep what flickers from being
told again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Protocol

from gpuadvisor.domain.accumulators import Latest
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Event, Frame, Gpu, Number

if TYPE_CHECKING:
    from gpuadvisor.rules.rule import RuleResult

UNKNOWN_END_S = 60.0
"""An event whose cause cannot be observed for so long ends when it was seen last. One reading a
minute is the slowest pace of any metric, so nothing that is still read is taken for unknown."""
LONGEST_STEP_S = 15.0
"""Two looks that are further apart do not show what was between them: the machine slept, or its
clock was set. The slowest, those at the rules, come every ten seconds."""
UNSEEN = "end_unseen"
"""In the data of an event that ended without anybody seeing that it was over."""
SAME_TIME_STEP_S = 1e-6
"""Keeps two events apart that begin at one time; floats of today's Unix times resolve 0.24 us."""


class Condition(Protocol):
    """What the factories in `EVENTS` of a file in `health` make."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of its events; conditions may share one and have keys of their own."""

    def observe(self, frame: Frame, latest: Latest) -> Iterable[Event]:
        """Return what began, and what ended with its `ended_s`; `latest` has this frame in it."""


@dataclass(frozen=True)
class Message:
    """What an event says."""

    text: str
    severity: Severity = Severity.WARNING
    data: Mapping[str, Number | str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, result: RuleResult, severity: Severity, data: Mapping[str, Number | str] | None = None
    ) -> Message:
        """Return the message that says what a rule says of the same condition."""
        return cls(f"{result.summary}. {result.advice}", severity, data or {})


@dataclass
class _AlertState:
    began_s: float
    """Unix time at which it was first seen since it was last over."""
    seen_s: float
    """Unix time at which it was last seen."""
    checked_s: float
    """Unix time at which it was last known whether it goes on."""
    held_s: float = 0.0
    """How long it was seen, without the breaks."""
    event: Event | None = None
    """What was reported; None before it has lasted long enough."""


class AlertStates:
    """The pending and firing alerts of one kind, at most one for each GPU and key."""

    def __init__(
        self,
        kind: str,
        begin_after_s: float = 0.0,
        end_after_s: float = 0.0,
        break_s: float | None = None,
    ) -> None:
        """An alert fires when it held for `begin_after_s` in sum, and is over after `end_after_s`.

        Before it fires, breaks that are shorter than `break_s`, which is `end_after_s` unless
        given, do not start it anew.
        """
        self.kind = kind
        self.begin_after_s = begin_after_s
        self.end_after_s = end_after_s
        self.break_s = end_after_s if break_s is None else break_s
        self._states: dict[tuple[str | None, str], _AlertState] = {}
        self._last_began_s: dict[tuple[str | None, str], float] = {}

    def is_firing(self, gpu: str | None, key: str = "") -> bool:
        """Return whether an event that was reported still lasts."""
        state = self._states.get((gpu, key))
        return state is not None and state.event is not None

    @property
    def known(self) -> Set[tuple[str | None, str]]:
        """The GPUs (UUID) and keys with an alert, reported or pending."""
        return self._states.keys()

    def update(
        self,
        time_s: float,
        holds: bool | None,
        message: Callable[[], Message],
        gpu: str | None = None,
        key: str = "",
    ) -> Iterator[Event]:
        """Take in whether it holds now (None: not known); yield the event that begins or ends.

        `message` is asked only when the event begins.
        """
        name = (gpu, key)
        state = self._states.get(name)
        if state is not None and holds and time_s - state.checked_s >= UNKNOWN_END_S:
            # Nobody looked meanwhile: what holds now is told anew, and of that time nothing is.
            yield from self._end(name, state, state.seen_s)
            state = None
        elif state is not None and time_s < max(state.checked_s, state.seen_s) - LONGEST_STEP_S:
            # The clock was set back: between a begin before and an end after lies no length.
            yield from self._end(name, state, state.seen_s)
            state = None
        if state is None:
            if not holds:
                return
            state = self._states[name] = _AlertState(time_s, time_s, time_s)
        elif time_s < state.checked_s:  # the clock was corrected, which ends nothing
            state.checked_s = state.seen_s = time_s
        elif holds:
            step_s = time_s - state.checked_s
            if state.seen_s == state.checked_s and step_s <= LONGEST_STEP_S:
                state.held_s += step_s
            state.seen_s = time_s
        if holds is not None:
            state.checked_s = time_s
        if holds and state.event is None and state.held_s >= self.begin_after_s:
            state.event = self._begun(name, state.began_s, message())
            yield state.event
        elif holds is None and time_s - state.checked_s >= UNKNOWN_END_S:
            yield from self._end(name, state, state.seen_s)
        elif holds is False:
            patience_s = self.break_s if state.event is None else self.end_after_s
            over_s = time_s - state.seen_s
            if over_s >= patience_s:
                is_watched = over_s <= patience_s + LONGEST_STEP_S
                yield from self._end(name, state, time_s if is_watched else state.seen_s)

    def pause(self, time_s: float) -> None:
        """Take in that nothing at all is known now: it neither begins nor ends anything.

        The time until it is known again does not count.
        """
        for state in self._states.values():
            state.checked_s = time_s

    def reword(self, text: str) -> Iterator[Event]:
        """Give the event of the machine that lasts this message; yield it, under its identity, if
        it is new."""
        state = self._states.get((None, ""))
        if state is not None and state.event is not None and state.event.message != text:
            state.event = replace(state.event, message=text)
            yield state.event

    def end(self, time_s: float, gpu: str | None, key: str = "") -> Iterator[Event]:
        """End what lasts or is about to begin on a GPU, whatever is read; nothing where none is."""
        state = self._states.get((gpu, key))
        if state is not None:
            yield from self._end((gpu, key), state, time_s)

    def forget_all_but(self, gpus: Iterable[Gpu], time_s: float) -> Iterator[Event]:
        """End what lasts on GPUs that are not listed any more, whose end nobody has seen."""
        listed = {gpu.uuid for gpu in gpus}
        for name in [name for name in self._states if name[0] not in listed]:
            for event in self._end(name, self._states[name], time_s):
                yield replace(event, data={**event.data, UNSEEN: 1})

    def _begun(self, name: tuple[str | None, str], began_s: float, message: Message) -> Event:
        if self._last_began_s.get(name) == began_s:
            began_s += SAME_TIME_STEP_S
        self._last_began_s[name] = began_s
        gpu, key = name
        return Event(
            self.kind, began_s, message.text, message.severity, gpu, key=key, data=message.data
        )

    def _end(
        self, name: tuple[str | None, str], state: _AlertState, time_s: float
    ) -> Iterator[Event]:
        del self._states[name]
        if state.event is not None:
            yield replace(state.event, ended_s=max(time_s, state.event.began_s))


class GpuCondition:
    """A condition that looks at one GPU after the other, as most of them do."""

    kind: str
    key: str = ""
    """The key of its events."""
    begin_after_s: ClassVar[float] = 0.0
    """For how long it must have held, in sum, before an event begins."""
    end_after_s: ClassVar[float] = 0.0
    """For how long it must be over before the event ends."""
    break_s: ClassVar[float | None] = None
    """For how long it must be over to be forgotten before an event began; None: as long."""
    in_fast_frames: ClassVar[bool] = False
    """Whether it also looks between the full frames."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The one kind of its events."""
        return (self.kind,)

    def __init__(self) -> None:
        self.states = AlertStates(self.kind, self.begin_after_s, self.end_after_s, self.break_s)

    def judge(self, gpu: Gpu, frame: Frame, latest: Latest) -> bool | None:
        """Return whether it holds now; None where that is not known."""
        raise NotImplementedError

    def message(self, gpu: Gpu, latest: Latest) -> Message:
        """Return what the event says that begins now."""
        raise NotImplementedError

    def forget(self, frame: Frame) -> Iterable[Event]:
        """End what lasts on GPUs that are not listed any more."""
        if frame.gpus is not None:
            yield from self.states.forget_all_but(frame.gpus, frame.time_s)

    def observe(self, frame: Frame, latest: Latest) -> Iterable[Event]:
        """Judge every GPU that is listed; what lasts on one that is gone ends."""
        yield from self.forget(frame)
        if frame.problem is not None:
            self.states.pause(frame.time_s)
            return
        if not frame.full and not self.in_fast_frames:
            return
        known = self.states.known
        for gpu in latest.gpus:
            holds = self.judge(gpu, frame, latest)
            if not holds and (not known or (gpu.uuid, self.key) not in known):
                continue  # nothing to begin or end: nearly always
            message = partial(self.message, gpu, latest)
            yield from self.states.update(frame.time_s, holds, message, gpu.uuid, self.key)


class Level(GpuCondition):
    """A condition that the newest values of some metrics tell, all of which must be known."""

    metrics: tuple[str, ...]

    def read(self, gpu: Gpu, latest: Latest) -> list[Number]:
        """Return the values that are known; where one is not, the condition is not either."""
        read = []
        for name in self.metrics:
            value = latest.value(gpu.uuid, name)
            if value is not None:
                read.append(value)
        return read

    def holds(self, gpu: Gpu, values: list[Number]) -> bool | None:
        """Return whether it holds with these values of `metrics`; None where they cannot tell."""
        raise NotImplementedError

    def says(self, gpu: Gpu, values: list[Number]) -> Message:
        """Return what the event says that begins with these values of `metrics`."""
        raise NotImplementedError

    def judge(self, gpu: Gpu, frame: Frame, latest: Latest) -> bool | None:
        values = self.read(gpu, latest)
        return self.holds(gpu, values) if len(values) == len(self.metrics) else None

    def message(self, gpu: Gpu, latest: Latest) -> Message:
        return self.says(gpu, self.read(gpu, latest))
