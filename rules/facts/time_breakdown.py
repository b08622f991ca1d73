"""Where a device's time went, as parts that exclude each other and sum to all of it.

From the first event of the device to the last one: what it did (`busy`), and why it did nothing
(`idle`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from gpuadvisor.rules.facts.idle import Cause
from gpuadvisor.rules.facts.summary import Facts


class Part(StrEnum):
    """What a device does, or waits for. A moment in which it does several is of the first one."""

    COMPUTING = "computing"
    COMMUNICATING = "communicating"
    """No compute kernel runs."""
    COPYING = "copying"
    """No kernel runs at all."""
    LAUNCHING = "launching"
    WAITING_FOR_DATA = "waiting_for_data"
    SYNCHRONIZING = "synchronizing"
    OTHER_HOST = "other_host"
    DEVICE = "device"
    UNKNOWN = "unknown"


BUSY = (Part.COMPUTING, Part.COMMUNICATING, Part.COPYING)
IDLE = tuple(part for part in Part if part not in BUSY)


@dataclass(frozen=True)
class TimeAccount:
    """Of one device, or of several together."""

    span_ns: int
    """From the first event to the last one; of several devices added up."""
    parts_ns: Mapping[Part, int]
    """All parts; they sum to `span_ns`."""

    @property
    def busy_ns(self) -> int:
        return sum(self.parts_ns[part] for part in BUSY)

    def share(self, part: Part) -> float:
        return self.parts_ns[part] / self.span_ns if self.span_ns else 0.0

    @property
    def busy_share(self) -> float:
        return self.busy_ns / self.span_ns if self.span_ns else 0.0

    @property
    def largest_idle(self) -> Part | None:
        """Why it did nothing for most of that time; None where it always did something."""
        part = max(IDLE, key=lambda each: self.parts_ns[each])
        return part if self.parts_ns[part] else None


def time_accounts(facts: Facts) -> Mapping[int, TimeAccount]:
    """Return the account of each device on which something ran; none without a timeline."""
    if not has_timeline(facts):
        return {}
    causes = {each.device: each.causes_ns for each in facts.idle}
    found = {}
    for each in facts.busy:
        together = each.together_ns
        computing = sum(ns for kinds, ns in together.items() if "compute" in kinds.split("+"))
        copying = together.get("memory", 0)
        why = causes.get(each.device, {})
        parts = {
            Part.COMPUTING: computing,
            Part.COMMUNICATING: each.busy_ns - computing - copying,
            Part.COPYING: copying,
            **{part: why.get(Cause(part), 0) for part in IDLE},
        }
        # What no cause explains stays visible, so that the parts always sum to the whole.
        parts[Part.UNKNOWN] += each.span_ns - sum(parts.values())
        found[each.device] = TimeAccount(each.span_ns, parts)
    return found


def added(accounts: Mapping[int, TimeAccount]) -> TimeAccount:
    """Return the account of all devices together."""
    return TimeAccount(
        sum(each.span_ns for each in accounts.values()),
        {part: sum(each.parts_ns[part] for each in accounts.values()) for part in Part},
    )


def has_timeline(facts: Facts) -> bool:
    """Say whether it is known when things ran: Nsight Compute runs kernels one by one."""
    return "kernels.begin_ns" not in facts.profile.header.not_measured
