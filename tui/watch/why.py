"""Why a GPU is not as fast as it could be and what that costs, in a sentence, from telemetry alone.

A sentence says what was read and since when, and never what may lie behind it: a GPU without
kernels waits for data or for its host; whether for input, copies or Python only a profile tells.
What it costs is the most that it can cost. Without the readings that it needs, nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from math import inf
from operator import or_
from typing import TYPE_CHECKING

from gpuadvisor.domain.clock_reasons import SLOWING, holds
from gpuadvisor.domain.metrics import NO_KERNELS_SM_ACTIVE_PCT
from gpuadvisor.domain.severity import Severity
from gpuadvisor.domain.telemetry import Event, Gpu, GpuProcess, Number, State
from gpuadvisor.tui.watch import cells
from gpuadvisor.tui.watch.cells import Style

if TYPE_CHECKING:
    from gpuadvisor.tui.watch.state import WatchState

CLOCK_S = 60.0
"""Clocks are judged over the last minute: a limit is touched and left several times a second."""
NOW, NOW_S = "now", 5.0
"""Readings of less than that are of now, and no share of a time. [own]"""
STEP_S = 10.0
"""Spans are told in these, so that a sentence does not change with every second. [own]"""
LEAST_HELD = 0.1
"""Share of the readings at work from which on held clocks are told: as the rule `power_capped`."""
ALWAYS = 0.95
"""Share of the readings from which on a reason holds all the time. [own]"""
LEAST_LOSS = 0.02
"""Share of the clock: GPUs step in 15 MHz, about 1 %; as the rule `power_capped`."""
LEAST_READINGS = 20
"""Readings at work before anything is said of a share of them: 20 s of a live source. [own]"""
LEAST_IDLE = 0.1
"""Share of the time without any kernel from which on a GPU at work is said to wait. [own]"""
IDLE_S = 60.0
"""Without a kernel for so long, a GPU does not wait now and then: it is idle. [own]"""
UNREAD_S = 5.0
"""Seconds between two readings beyond which nothing is known of the time between: as `gap`."""
PAUSE_S = 3.0
"""Seconds without any kernel that are told apart from the rest, as a start or an evaluation on the
CPU: as `rules.jobs.phases`."""
BUSY_PCT, FEW_SMS_PCT = 90.0, 50.0
"""As the rule `busy_but_idle_sms`: utilization from which on, and SMs with work below which."""
MEMORY_BOUND_PCT = 60.0
"""DRAM bandwidth in use from which on higher clocks gain little: as `rules.clocks`."""

HARDLY_ANY = 0.99
"""Share of the time without a kernel from which on utilization, in whole percent of what the driver
sees when it looks, tells no share any more: it reads 0 where kernels run 3 % of the time."""

Readings = Sequence[tuple[float, Number]]
"""Unix times and values, oldest first."""


@dataclass(frozen=True)
class Why:
    """What is to be said of a GPU."""

    texts: tuple[str, ...]
    """Why a GPU is slow, as texts of falling length: a sentence first, a word or two at last."""
    style: Style
    rank: int
    """How much it matters, 0 most; see the constants below."""

    @property
    def sentence(self) -> str:
        return self.texts[0]


UNREADABLE, BROKEN, HELD, HOARDED, WAITS, FEW_SMS, WARNED, WORKS, FREE = range(9)
FINDING = "finding"
"""The kind of the events of rules that have none of their own; the key is the rule's name."""


def why(state: WatchState, gpu: Gpu) -> Why:
    """Return the first that holds of what can be wrong with a GPU, else that it works or idles."""
    unreadable = _unreadable(state, gpu)
    if unreadable is not None:
        return unreadable
    work = _Work(state, gpu)
    held = _held(work)
    costly = held if held is not None and held.rank == HELD else None
    found = _broken(state, gpu) or _left(work) or costly or _idle(work) or _waits(work)
    found = found or _few_sms(work) or _partitioned(work) or _warned(state, gpu)
    return found or _unsettled(work) or held or _well(work)


class _Work:
    """What a GPU did lately."""

    def __init__(self, state: WatchState, gpu: Gpu) -> None:
        self.state, self.gpu = state, gpu
        listed = state.latest.processes
        self.processes: list[GpuProcess] | None = None
        if listed is not None and state.latest.lists(gpu.uuid):
            self.processes = sorted(
                (each for each in listed if each.gpu == gpu.uuid),
                key=lambda each: -(each.memory_bytes or 0),
            )
        self.since_s = self._first_start_s()
        """When the first of those that hold it now began; what was before was another's."""
        self.utilization = [
            reading
            for reading in self.read("gpu_utilization_pct")
            if self.since_s is None or reading[0] >= self.since_s
        ]
        counted = {
            at for at, value in self.read("sm_active_pct") if value > NO_KERNELS_SM_ACTIVE_PCT
        }
        self.with_kernels = [at for at, value in self.utilization if value > 0 or at in counted]
        self.last_busy_s = self.with_kernels[-1] if self.with_kernels else None
        self.busy = {at for at, value in self.recent("gpu_utilization_pct") if value > 0}
        """When it was at work in the last minute."""

    def _first_start_s(self) -> float | None:
        starts = [each.started_s for each in self.processes or ()]
        known = [start_s for start_s in starts if start_s is not None]
        return min(known) if known and len(known) == len(starts) else None

    def read(self, metric: str) -> Readings:
        return self.state.history.readings(self.gpu.uuid, metric)

    def now(self, metric: str) -> Number | None:
        return self.state.latest.value(self.gpu.uuid, metric, self.state.now_s)

    @cached_property
    def empty_s(self) -> tuple[float, bool]:
        """For how long no kernel ran, and whether that is since one did: of a time without
        readings, as while the driver hung or the machine slept, nobody knows."""
        last_s = self.last_busy_s or -inf
        since_s = self.state.now_s
        for at_s, _ in reversed(self.utilization):
            if since_s - at_s > UNREAD_S:
                return self.state.now_s - since_s, False
            since_s = at_s
            if at_s <= last_s:
                return self.state.now_s - since_s, True
        return self.state.now_s - since_s, False

    def lately(self) -> str:
        """Return of when the readings of the last minute at work are."""
        times = sorted(self.busy)
        span_s = times[-1] - times[0] if times else 0.0
        if span_s < NOW_S:
            return NOW
        return f"in the last {_steady(span_s)}"

    def at_work(self, metric: str) -> Readings:
        """Return the readings of the last minute that were made with one of a busy GPU."""
        return [reading for reading in self.recent(metric) if reading[0] in self.busy]

    def recent(self, metric: str) -> Iterator[tuple[float, Number]]:
        """Yield the readings of the last minute, newest first."""
        since_s = self.state.now_s - CLOCK_S
        for reading in reversed(self.read(metric)):
            if reading[0] < since_s:
                return
            yield reading

    @property
    def holder(self) -> str:
        """Who holds most memory, as `python (1234)`; empty where that is not known."""
        if not self.processes:
            return ""
        first = self.processes[0]
        more = f" and {len(self.processes) - 1} more" if len(self.processes) > 1 else ""
        name = first.name or "a process"
        return f"{name}{more}" if first.is_host_pid else f"{name} ({first.pid}){more}"


def _unreadable(state: WatchState, gpu: Gpu) -> Why | None:
    reading = state.reading(gpu.uuid, "throttle_reasons")
    if reading is None or reading.state is State.NOT_SUPPORTED:
        reading = state.reading(gpu.uuid, "memory_used_bytes") or reading
    if reading is not None and reading.is_ok:
        return None
    texts = cells.placeholders(reading, state.now_s)
    if reading is None:
        return Why(texts, Style.QUIET, WORKS)
    said = {
        State.LOST: "lost: the GPU fell off the bus or was removed, and nothing of it can be read",
        State.STALE: f"{texts[0]}: {reading.reason or 'no value has come since'}",
        State.NO_PERMISSION: "no permission: the driver does not let this user read it",
        State.NOT_SUPPORTED: "n/a: this driver says nothing of it",
    }[reading.state]
    return Why((said, *texts), cells.style_of(reading), UNREADABLE)


def _broken(state: WatchState, gpu: Gpu) -> Why | None:
    """Tell an error that lasts, in the words of its event."""
    for event in state.log.open(gpu.uuid):
        if event.severity is Severity.ERROR:
            return Why((event.message, _kind(event)), Style.ERROR, BROKEN)
    return None


def _warned(state: WatchState, gpu: Gpu) -> Why | None:
    """Tell a warning that lasts, in the words of its event."""
    for event in state.log.open(gpu.uuid):
        if event.severity is Severity.WARNING:
            said = event.message.removeprefix(f"GPU {state.labels.get(gpu.uuid)} ")
            first = said.partition(". ")[0]  # what comes then is what to do
            texts = (said, first, first.partition(", ")[0], _kind(event))
            return Why(texts, Style.WARNING, WARNED)
    return None


def _kind(event: Event) -> str:
    """Return what an event is of in a few words: of a finding, what was found."""
    return (event.key if event.kind == FINDING and event.key else event.kind).replace("_", " ")


def _held(work: _Work) -> Why | None:
    """Tell what held the clocks of a GPU at work in the last minute, and at which clocks: those of
    the readings in which it did."""
    masks = work.at_work("throttle_reasons")
    highest = work.now("sm_clock_max_mhz")
    ever = reduce(or_, (int(mask) for _, mask in masks), 0)
    moments = {
        reason: {time_s for time_s, mask in masks if holds(int(mask), name)}
        for name, reason in SLOWING.items()
        if ever & reason.bit
    }
    shares = {each: len(found) / len(masks) for each, found in moments.items() if found}
    reasons = sorted(
        (r for r, share in shares.items() if share >= LEAST_HELD), key=lambda r: r.rank
    )
    if not reasons:
        return None
    worst = reasons[0]
    more = f" +{len(reasons) - 1}" if len(reasons) > 1 else ""
    words = (", ".join(each.label for each in reasons), f"{worst.label}{more}", worst.label)
    when, share = work.lately(), shares[worst]
    held = set().union(*(moments[reason] for reason in reasons))
    clock = _mean(v for time_s, v in work.at_work("sm_clock_mhz") if time_s in held)
    if clock is None or not highest:
        said = f"{worst.label}: its clocks were held down {_pct(share)} of the readings {when}"
        return Why((said, *words), Style.WARNING, HELD)
    loss, part = 1 - clock / highest, len(held) / len(masks)
    if part * loss < LEAST_LOSS:  # it is at a limit, which costs next to nothing so far
        full = (f"{worst.label}, at full clock",) if loss < LEAST_LOSS else ()
        return Why((*full, *words), Style.GOOD, WORKS)
    below, at = f"clocks {_pct(loss)} below maximum", f"{clock:.0f} of {highest:.0f} MHz"
    if part < ALWAYS:  # the clock is that of this part
        of = "readings now" if when == NOW else f"{when.removeprefix('in the ')} at work"
        head, at = f"{worst.label} in {_pct(part)} of its {of}: then", f"({at})"
    else:
        head, at = f"{worst.label}:", f"({at} {when})"
    few = (f"{head} clocks {_pct(loss)} lower",) if part < ALWAYS else ()
    below = f"{head} {below}"
    memory = _mean(value for _, value in work.at_work("dram_active_pct"))
    if memory is not None and memory >= MEMORY_BOUND_PCT:
        costs = "costs little, as it waits for its memory"
        texts = (f"{below} {at}, which {costs}", f"{below}, {costs}", below, *few)
    else:
        costs = f"costs up to {_pct(part * loss)}"
        texts = (f"{below} {at}, which {costs} of its speed", f"{below}, {costs}", below, *few)
    return Why((*texts, *words), Style.WARNING, HELD)


def _mean(values: Iterable[Number]) -> float | None:
    """Return the mean; None of nothing."""
    found = list(values)
    return sum(found) / len(found) if found else None


def _idle(work: _Work) -> Why | None:
    """Tell of memory that is held by who has run no kernel for a while."""
    if not work.utilization:
        return None
    idle_s, is_whole = work.empty_s
    used = sum(each.memory_bytes or 0 for each in work.processes or ())
    if idle_s < IDLE_S or not used:
        return None
    least = "" if is_whole else "at least "
    memory = f"{used / 2**30:.0f} GiB" if used >= 2**30 else f"{used / 2**20:.0f} MiB"
    hold = "holds" if len(work.processes or ()) == 1 else "hold"
    head = f"idle for {least}{cells.age(idle_s)}"
    holds_it = f"{head} while {work.holder} {hold} {memory}"
    return Why(
        (f"{holds_it}{_host(work)}", holds_it, f"{head}, {memory} held", "idle, held"),
        Style.WARNING,
        HOARDED,
    )


def _waits(work: _Work) -> Why | None:
    """Tell how much of the time a GPU at work had nothing to do."""
    if work.last_busy_s is None or work.processes == []:
        return None  # without a process there is nobody who waits
    span, has_pauses = _at_work(work)
    if len(span) < LEAST_READINGS or work.state.now_s - work.last_busy_s >= IDLE_S:
        return None
    idle = 1 - sum(value for _, value in span) / len(span) / 100
    if idle < LEAST_IDLE:
        return None
    since = f"since {cells.hour_and_minute(span[0][0])}"
    of_what = "its time at work" if has_pauses else "the time"
    head, cost = f"no kernel ran {_pct(idle)} of {of_what} {since}", "that much"
    host = _host(work)
    if idle >= HARDLY_ANY:
        if not host:
            return None  # who does nothing on the CPU either may as well wait for its user
        head, cost = f"hardly any kernel ran {since}", "nearly all of its speed"
    return Why(
        (
            f"{head}: it waits for data or its host{host}, which costs up to {cost}",
            f"{head}: it waits for data or its host{host}",
            f"{head}: it waits for data or its host",
            f"waits for data or host {_pct(min(idle, HARDLY_ANY))}",
            f"waits {_pct(min(idle, HARDLY_ANY))}",
        ),
        Style.WARNING,
        WAITS,
    )


def _at_work(work: _Work) -> tuple[Readings, bool]:
    """Return the readings by which a GPU is said to wait, and whether pauses between are left out.

    Those of every stretch of LEAST_READINGS or more without a pause. Where there is none, it pauses
    again and again, and that is how it works: then all since its first pause, which may have been
    its start; of one that has not paused yet, all.
    """
    stretches = [each[1:] or each for each in _stretches(work)]  # the first saw less than all
    long = [each for each in stretches if len(each) >= LEAST_READINGS]
    if long:
        return [reading for each in long for reading in each], len(long) > 1
    if len(stretches) < LEAST_STRETCHES:
        return stretches[-1], False
    first_s = stretches[1][0][0]
    return [reading for reading in work.utilization if reading[0] >= first_s], False


LEAST_STRETCHES = 4
"""Stretches of work with pauses between from which on they are how a job works. [own]"""


def _stretches(work: _Work) -> list[list[tuple[float, Number]]]:
    """Return the readings from the first kernel to the last, without the pauses between them."""
    found: list[list[tuple[float, Number]]] = []
    kernels = iter(work.with_kernels)
    before_s, next_s = -inf, next(kernels)
    for reading in work.utilization:
        if reading[0] > next_s:
            before_s, next_s = next_s, next(kernels, inf)
        if reading[0] == next_s and (not found or next_s - before_s > PAUSE_S):
            found.append([])
        if found and (reading[0] == next_s or next_s - before_s <= PAUSE_S):
            found[-1].append(reading)
    return found


BUSY_CORE_PCT = 90.0
"""CPU of a process, in percent of a core, from which on a core of it is said to be at its limit:
Python code runs on one at a time."""


def _host(work: _Work) -> str:
    """Return what is known of the CPU meanwhile, as `, where its process keeps 1.0 CPU cores
    busy`; empty where that is not at its limit, or not known."""
    cpu = work.state.latest.value("host", "cpu_pct", work.state.now_s)
    if cpu is not None and cpu >= BUSY_CORE_PCT:
        return f", whose CPU is {cpu:.0f} % busy"
    of_each = [(p.cpu_pct or 0.0, p.children_cpu_pct or 0.0) for p in work.processes or ()]
    own, of_children = max(of_each, key=sum, default=(0.0, 0.0))
    if own + of_children < BUSY_CORE_PCT:
        return ""
    who = "its process keeps"
    if own < BUSY_CORE_PCT:
        who = "its process and those that this started keep"
    return f", where {who} {(own + of_children) / 100:.1f} CPU cores busy"


def _few_sms(work: _Work) -> Why | None:
    """Tell of a GPU in full use whose SMs are mostly idle."""
    busy = work.at_work("gpu_utilization_pct")
    active = work.at_work("sm_active_pct")
    if len(busy) < LEAST_READINGS or len(active) < LEAST_READINGS:
        return None
    used, share = (_mean(value for _, value in each) or 0.0 for each in (busy, active))
    if used < BUSY_PCT or share >= FEW_SMS_PCT or min(value for _, value in active) <= 0:
        return None
    head = f"kernels run all the time, but only {share:.0f} % of the SMs have work"
    return Why(
        (f"{head}: up to {100 - share:.0f} % of the GPU is unused", head, f"{share:.0f} % of SMs"),
        Style.WARNING,
        FEW_SMS,
    )


def _partitioned(work: _Work) -> Why | None:
    """Tell what is known of a MIG instance, and of the GPU that it is a part of, of which the
    driver gives no utilization."""
    if work.now("gpu_utilization_pct") is not None:
        return None
    if any(each.parent_uuid == work.gpu.uuid for each in work.state.gpus):
        said = "in MIG mode: the driver tells no utilization of it or of its instances"
        return Why((said, "in MIG mode"), Style.PLAIN, WORKS)
    if not work.gpu.is_instance or work.processes is None:
        return None
    if not work.processes and _is_empty(work):
        return Why(("free",), Style.QUIET, FREE)
    said = "in use; the driver tells no utilization, clocks or power of an instance"
    return Why((said, "in use, activity n/a", "in use"), Style.PLAIN, WORKS)


def _left(work: _Work) -> Why | None:
    """Tell that nobody uses a GPU any more, whatever it did in its last minute."""
    if work.processes != [] or work.now("gpu_utilization_pct") != 0 or not _is_empty(work):
        return None
    is_at_rest = (work.last_busy_s or 0.0) < work.state.now_s - PAUSE_S
    return Why(("free",), Style.QUIET, FREE) if is_at_rest else None


def _unsettled(work: _Work) -> Why | None:
    """Tell what was seen of a GPU that somebody holds, where that is too little to tell more: it is
    in a pause, or hardly any reading has come."""
    if not work.utilization or not work.processes:
        return None
    empty_s, _ = work.empty_s
    if work.last_busy_s is None or empty_s > PAUSE_S:
        return _pauses(work, empty_s)
    span, _ = _at_work(work)
    if len(span) >= LEAST_READINGS:
        return None
    idle = 1 - sum(value for _, value in span) / len(span) / 100
    when = f"the last {_steady(work.state.now_s - span[0][0])}"
    if idle >= LEAST_IDLE:
        head = (
            "hardly any kernel ran in" if idle >= HARDLY_ANY else f"no kernel ran {_pct(idle)} of"
        )
        return _too_short(f"{head} {when}{_host(work)}", "whether it waits")
    share = work.now("sm_active_pct")
    if share is None or not 0 < share < FEW_SMS_PCT:
        return None
    return _too_short(f"kernels run, and {share:.0f} % of the SMs have work now", "more")


def _pauses(work: _Work, empty_s: float) -> Why | None:
    """Tell that no kernel runs now; nothing of who is known to do nothing on the CPU either, and
    has not run any."""
    known = [each.cpu_pct for each in work.processes or ()]
    of_children = sum(each.children_cpu_pct or 0.0 for each in work.processes or ())
    is_known = None not in known
    if work.last_busy_s is None and is_known and sum(filter(None, known)) + of_children <= REST_PCT:
        return None
    said = f"no kernel ran for {_steady(empty_s)}{_host(work)}"
    if not is_known:
        return _too_short(said, "whether it is idle or waits")
    return Why((said, "no kernel now"), Style.PLAIN, WORKS)


def _too_short(said: str, of_what: str) -> Why:
    texts = (f"{said}, too short to tell {of_what}", said, "cannot tell yet")
    return Why(texts, Style.PLAIN, WORKS)


REST_PCT = 20.0
"""CPU of a process, in percent of a core, up to which it does nothing: as the cause `idle`."""


def _steady(seconds: float) -> str:
    """Return a time that does not change with every second."""
    return cells.age(max(seconds // STEP_S * STEP_S, min(seconds, NOW_S), 1.0))


def _well(work: _Work) -> Why:
    """Tell that a GPU works, or that nobody uses it."""
    used = work.now("gpu_utilization_pct")
    if used is None or work.now("throttle_reasons") is None:  # it may be held down unseen
        return Why(("answers",), Style.GOOD, WORKS)
    if used > 0 or (work.last_busy_s or 0.0) > work.state.now_s - IDLE_S:
        return Why(("ok",), Style.GOOD, WORKS)
    return Why(("idle",), Style.QUIET, FREE)


NOTHING_HELD = 0.05
"""Share of the memory below which nobody holds it, but for some hundred MB of the driver. [own]"""


def _is_empty(work: _Work) -> bool:
    """Whether nobody holds memory, also none whom the driver does not list, as in a container."""
    used, total = work.now("memory_used_bytes"), work.now("memory_total_bytes")
    return used is not None and bool(total) and used < NOTHING_HELD * (total or 0)


def _pct(share: float) -> str:
    return f"{100 * share:.0f} %"
