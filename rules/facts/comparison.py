"""What differs between two profiles: what got slower or faster, what is new and what is gone.

Where both have steps, times are those of a mean step, and only what steps launched counts; else
they are those of the whole recordings. Of two devices or more times are added up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from gpuadvisor.domain.profile import Direction, Memory
from gpuadvisor.rules.facts.parts import InSteps
from gpuadvisor.rules.facts.steps import Steps
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.facts.time_breakdown import TimeBreakdown, added

SAME_RATIO = 0.01
"""A smaller relative change is none: kernels of one program vary so much between recordings."""
SAME_SHARE = 0.001
"""Share of the longer side's time below which a change counts as none."""


class Verdict(StrEnum):
    """What became of something from the first profile to the second."""

    SLOWER = "slower"
    FASTER = "faster"
    NEW = "new"
    GONE = "gone"
    SAME = "same"


@dataclass(frozen=True)
class Amount:
    """How much there is of something, a step or in total."""

    time_ns: float
    count: float | None = None
    """How many there are; None where it has no number, like idle time."""
    bytes: float | None = None
    """Bytes of copies; None of anything else."""


@dataclass(frozen=True)
class Change:
    """What became of one thing that at least one of the profiles has."""

    name: str
    before: Amount | None
    """What there was before; None where only the second profile has it."""
    after: Amount | None
    verdict: Verdict

    @property
    def worth_ns(self) -> float:
        """How much time it adds (or, negative, saves)."""
        after = self.after.time_ns if self.after else 0.0
        return after - (self.before.time_ns if self.before else 0.0)


@dataclass(frozen=True)
class ComparedProfile:
    """One of the two profiles."""

    name: str
    devices: tuple[str, ...]
    """Names of the devices on which something ran."""
    source: str
    steps: int | None
    """Number of steps; None where there are none that are certain."""
    step_median_ns: float | None
    step_mean_ns: float | None
    data_wait_share: float | None
    time_ns: float | None
    """Time of the run, a step of it or in total; None without."""
    busy_share: float | None


@dataclass(frozen=True)
class ProfileComparison:
    """What differs between two profiles; lists begin with what changed most."""

    before: ComparedProfile
    after: ComparedProfile
    per_step: bool
    parts: tuple[Change, ...]
    """The devices' time: busy, and idle by cause; in the order of `TimeCategory`."""
    kernels: tuple[Change, ...]
    operators: tuple[Change, ...] | None
    """Changes of the time on the device of what each operator launched itself; None where one
    profile has no operators."""
    copies: tuple[Change, ...]
    remarks: tuple[str, ...]
    """Reasons why this is not quite like with like, a sentence each."""


@dataclass(frozen=True)
class _Measured:
    facts: Facts
    """Facts of the part of the profile that counts."""
    side: ComparedProfile
    divisor: int
    account: TimeBreakdown | None
    looked_at: str
    """Which part of the recording counts, in sentences without the last full stop; empty for all
    of it."""


def compare(before: Facts, after: Facts, names: tuple[str, str]) -> ProfileComparison:
    """Return what differs between two profiles."""
    steps = (before.steps, after.steps)
    per_step = all(each is not None and each.steps for each in steps)
    one = _measured(before, names[0], steps[0], per_step)
    two = _measured(after, names[1], steps[1], per_step)
    whole = max(one.side.time_ns or 0.0, two.side.time_ns or 0.0)
    with_operators = all(each.profile.rows("operators") for each in (before, after))
    return ProfileComparison(
        one.side,
        two.side,
        per_step,
        tuple(_parts(one, two, whole)),
        _changes(_kernels(one), _kernels(two), whole),
        _changes(_operators(one), _operators(two), whole) if with_operators else None,
        _changes(_copies(one), _copies(two), whole),
        tuple(_remarks(one, two, per_step)),
    )


def _measured(facts: Facts, name: str, steps: Steps | None, per_step: bool) -> _Measured:
    counted = facts
    if per_step and steps is not None:
        counted = Facts(InSteps(facts.profile, steps), facts.ceilings)
    divisor = len(steps.steps) if per_step and steps is not None else 1
    accounts = counted.time_breakdowns
    account = added(accounts) if accounts else None
    durations = [step.duration_ns for step in steps.steps] if steps is not None else []
    side = ComparedProfile(
        name,
        _devices(facts, accounts),
        facts.profile.header.source,
        len(durations) or None,
        steps.median_ns if steps is not None and durations else None,
        steps.mean_ns if steps is not None and durations else None,
        steps.data_wait_share if steps is not None and durations else None,
        counted.window.run_ns / divisor if account else None,
        account.busy_share if account else None,
    )
    return _Measured(counted, side, divisor, account, facts.fitness.note)


def _devices(facts: Facts, accounts: Mapping[int, TimeBreakdown]) -> tuple[str, ...]:
    """Return the names of the devices on which something ran, by number where none is told."""
    names = {each.index: each.name for each in facts.profile.header.devices}
    return tuple(names.get(index, f"GPU {index}") for index in accounts or names)


def _parts(one: _Measured, two: _Measured, whole: float) -> Iterable[Change]:
    if one.account is None or two.account is None:
        return
    for part, before in one.account.parts_ns.items():
        after = two.account.parts_ns[part]
        if before or after:
            sides = Amount(before / one.divisor), Amount(after / two.divisor)
            yield Change(str(part), *sides, _verdict(*sides, whole))


def _kernels(each: _Measured) -> Mapping[str, Amount]:
    found: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for kernel in each.facts.kernels:
        time, count = found[kernel.name]
        found[kernel.name] = time + kernel.time_ns, count + kernel.count
    return {
        name: Amount(time / each.divisor, count / each.divisor)
        for name, (time, count) in found.items()
    }


def _operators(each: _Measured) -> Mapping[str, Amount]:
    return {
        one.name: Amount(one.self_device_ns / each.divisor)
        for one in each.facts.operators.by_name
        if one.self_device_ns
    }


def _copies(each: _Measured) -> Mapping[str, Amount]:
    found: dict[str, tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
    for copy in each.facts.copies:
        name = copy_name(copy.direction, copy.source, copy.destination)
        time, count, size = found[name]
        found[name] = time + copy.time_ns, count + copy.count, size + copy.bytes
    return {
        name: Amount(time / each.divisor, count / each.divisor, size / each.divisor)
        for name, (time, count, size) in found.items()
    }


def copy_name(direction: Direction, source: Memory, destination: Memory) -> str:
    """Return `host to device, pageable to device`."""
    if direction is Direction.MEMSET:
        return "memset"
    ends = ("not known" if end is Memory.NOT_KNOWN else end.name.lower()
            for end in (source, destination))  # fmt: skip
    return f"{direction.name.lower().replace('_', ' ')}, {' to '.join(ends)}"


def _changes(
    before: Mapping[str, Amount], after: Mapping[str, Amount], whole: float
) -> tuple[Change, ...]:
    names = dict.fromkeys((*before, *after))
    whole = whole or max(sum(each.time_ns for each in side.values()) for side in (before, after))
    found = [
        Change(name, before.get(name), after.get(name),
               _verdict(before.get(name), after.get(name), whole))
        for name in names
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda change: (-abs(change.worth_ns), change.name)))


def _verdict(before: Amount | None, after: Amount | None, whole: float) -> Verdict:
    if before is None:
        return Verdict.NEW
    if after is None:
        return Verdict.GONE
    worth = after.time_ns - before.time_ns
    if abs(worth) <= max(SAME_RATIO * before.time_ns, SAME_SHARE * whole):
        return Verdict.SAME
    return Verdict.SLOWER if worth > 0 else Verdict.FASTER


def _remarks(one: _Measured, two: _Measured, per_step: bool) -> Iterable[str]:
    before, after = one.side, two.side
    if sorted(before.devices) != sorted(after.devices):
        sides = [", ".join(each.devices) or "no GPU" for each in (before, after)]
        yield f"The devices differ ({sides[0]}; {sides[1]}): this compares them too."
    if before.source != after.source:
        yield (
            f"Other tools recorded them ({before.source}; {after.source}): each slows a program "
            "down in its own way, and names things its own way."
        )
    if before.steps != after.steps and before.steps and after.steps:
        yield (
            f"They have {before.steps} and {after.steps} steps; times are of a mean step, and few "
            "steps tell little."
        )
    if not per_step:
        missing = [each.name for each in (before, after) if not each.steps]
        yield (
            f"Times are those of the whole recordings, as no steps are known of"
            f" {' and '.join(missing)}: only equal amounts of work compare."
        )
    for each in (one, two):
        if each.looked_at:
            yield f"{each.side.name}: {each.looked_at}."
        if each.account is None and each.facts.profile.rows("kernels"):
            yield f"{each.side.name} has no timeline: only its kernels are compared."
    without = [each for each in (one, two) if not each.account]
    names = dict.fromkeys(s.side.name for s in without if not s.facts.profile.rows("kernels"))
    if names:
        yield f"Nothing that ran on a GPU was recorded in {' and '.join(names)}."
