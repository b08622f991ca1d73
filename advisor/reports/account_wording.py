"""The words of a run's account: where its time went, which finding claims it, what is unexplained.

Every share that is printed of a run comes from its one `Account`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpuadvisor.domain.finding import Diagnosis
from gpuadvisor.domain.severity import Severity
from gpuadvisor.reports import figures
from gpuadvisor.reports.profile_wording import PARTS
from gpuadvisor.rules.facts.account import Account, Entry, EntryKind
from gpuadvisor.rules.facts.idle import IdleGap
from gpuadvisor.rules.facts.kernel_families import short_name
from gpuadvisor.rules.facts.time_breakdown import TimeCategory
from gpuadvisor.rules.facts.window import FILLED

MOST_ENTRIES, LEAST_NAMED = 8, 0.005
"""Entries that a sentence names, and the least share (0 to 1) of one; the others are its rest."""
AT_ONCE = 0.5
"""Share of an entry from which on its longest gap is most of it."""
_LONGEST_NAME = 60
"""Characters of a kernel's or call's name in a sentence."""
IDLE = "idle/"
"""How findings name the idle time that they are about: followed by its category."""
WOULD_TELL = {
    TimeCategory.LAUNCHING: "`gpuadvisor profile SCRIPT` records the operators that launch",
    TimeCategory.WAITING_FOR_DATA: "`py-spy record` of a worker shows what loading does",
    TimeCategory.SYNCHRONIZING: "`gpuadvisor profile --stacks SCRIPT` names the line that waits",
    TimeCategory.ALLOCATING: "`gpuadvisor profile --stacks SCRIPT` names the line that allocates",
    TimeCategory.OTHER_HOST: "`gpuadvisor profile --stacks SCRIPT` shows what the CPU does then",
    TimeCategory.STARTING: "`gpuadvisor profile SCRIPT` records steps after the start",
    TimeCategory.PROFILER: "a recording of fewer things (no stacks, shapes or memory) is quicker",
    TimeCategory.MIGRATING: "no call launches what moves when it is touched; Nsight Systems' page"
    " faults (`nsys profile --cuda-um-gpu-page-faults=true --cuda-um-cpu-page-faults=true`) tell"
    " where that is, and `cudaMemPrefetchAsync` moves it before",
    TimeCategory.BETWEEN_KERNELS: "hardware counters (`gpuadvisor profile --ncu SCRIPT`) of the"
    " kernels around tell more",
    TimeCategory.FINISHED: "a trace of every process that uses the GPUs tells who works then",
    TimeCategory.DEVICE: "kernels may be missing in the trace (profilers lose some of CUDA graphs),"
    " or another GPU was waited for: a trace of each rank, or one of Nsight Systems, would tell",
    TimeCategory.UNKNOWN: "a recording that begins some steps earlier has the launches",
}
"""What would explain idle time that no finding claims."""


@dataclass(frozen=True)
class Unclaimed:
    """Idle time that no finding is about."""

    share: float
    """Share of the run in which the GPU was idle and no finding is about it, 0 to 1."""
    largest: Entry
    largest_share: float
    gap: IdleGap | None
    """The gap with most of it; None where it is behind the last work."""


def claims(diagnosis: Diagnosis | None) -> Mapping[TimeCategory, str]:
    """Return which finding, of those to fix, is about which idle time; the most severe of each."""
    found: dict[TimeCategory, str] = {}
    for each in diagnosis.shown if diagnosis is not None else ():
        if each.severity.rank < Severity.NOTICE.rank:
            continue
        for part in each.parts:
            name = part.removeprefix(IDLE)
            if part.startswith(IDLE) and name in set(TimeCategory):
                found.setdefault(TimeCategory(name), each.rule)
    return found


def unclaimed(account: Account, diagnosis: Diagnosis | None) -> Unclaimed | None:
    """Return the idle time that no finding is about; None where work and findings fill the run."""
    claimed = claims(diagnosis)
    left = [
        each
        for each in account.entries
        if each.kind is not EntryKind.USEFUL and each.part not in claimed
    ]
    share = sum(account.share(each) for each in left)
    if share <= 1 - FILLED:
        return None
    largest = max(left, key=lambda each: each.time_ns)
    gaps = [gap for device in account.devices for gap in device.longest]
    of_it = [gap for gap in gaps if str(gap.cause) == str(largest.part)]
    gap = max(of_it, key=lambda each: each.cause_ns, default=None)
    return Unclaimed(share, largest, account.share(largest), gap)


def name(entry: Entry) -> str:
    """Return `computing: convolution` or `idle: waiting for data`."""
    return f"{PARTS[entry.part]}: {entry.family}" if entry.family else PARTS[entry.part]


def line(account: Account, diagnosis: Diagnosis | None) -> str:
    """Return the account as a sentence, each share with the finding that claims it."""
    claimed = claims(diagnosis)
    ordered = sorted(account.entries, key=lambda each: -each.time_ns)
    large = [each for each in ordered[:MOST_ENTRIES] if account.share(each) >= LEAST_NAMED]
    shown = [each for each in account.entries if each in large]
    words = [
        f"{name(each).removeprefix('computing: ')} {_percent(account.share(each))}"
        + (f" ({claimed[each.part]})" if each.part in claimed else "")
        for each in shown
    ]
    if rest := sum(each.time_ns for each in ordered if each not in shown):
        words.append(f"the rest {_percent(rest / account.span_ns)}")
    return f"The run's time: {', '.join(words)}."


def sentences(found: Unclaimed, how: str) -> Iterator[str]:
    """Yield what no finding is about, where most of it lies, and what would explain it; `how` puts
    the script's name into a command."""
    yield (
        f"No finding is about {_percent(found.share)} of the run, in which the GPU was idle;"
        f" the largest part is {_percent(found.largest_share)},"
        f" {PARTS[found.largest.part].removeprefix('idle: ')}."
    )
    if found.gap is not None:
        at_once = found.gap.cause_ns >= AT_ONCE * found.largest.time_ns
        yield f"{'Most of it at once' if at_once else 'Its longest gap'}: {place(found.gap)}."
    yield f"{how[:1].upper()}{how[1:]}."


def place(gap: IdleGap) -> str:
    """Return where a gap lies in the timeline, and between what."""
    begin, end = gap.begin_ns, gap.begin_ns + gap.duration_ns
    before = f"between {_short(gap.before)} and" if gap.before else "before"
    return (
        f"{figures.nanoseconds(gap.duration_ns)}, from {figures.nanoseconds(begin)} to"
        f" {figures.nanoseconds(end)} after the recording began, {before} {_short(gap.after)}"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _short(text: str) -> str:
    short = short_name(text)
    return short if len(short) <= _LONGEST_NAME else f"{short[: _LONGEST_NAME - 3]}..."
