"""The words of a run's account: where its time went, which finding claims it, what is unexplained.

Every share that is printed of a run comes from its one `Account`.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gpuadvisor.domain.finding import Diagnosis, ScopeKind
from gpuadvisor.domain.severity import Severity
from gpuadvisor.reports import figures
from gpuadvisor.reports.profile_wording import PARTS
from gpuadvisor.rules.engine import SEVERITIES
from gpuadvisor.rules.facts.account import Account, Entry, EntryKind
from gpuadvisor.rules.facts.idle import Alike, IdleGap
from gpuadvisor.rules.facts.kernel_families import Family, bare_name, kind_of, short_name
from gpuadvisor.rules.facts.roofline import ATTENTION, Bound, OperatorPosition
from gpuadvisor.rules.facts.time_breakdown import TimeCategory
from gpuadvisor.rules.facts.window import FILLED

MOST_ENTRIES = 8
"""Entries that a sentence names; the others are its rest."""
LEAST_NAMED = SEVERITIES[-1][0] / 100
"""Least share (0 to 1) of an entry that is named: less could not be worth a notice."""
MOST = 0.5
"""Share from which on something is most of it: all else together is less."""
_LONGEST_NAME = 60
"""Characters of a kernel's or call's name in a sentence."""
COPIES = "copy/exposed"
"""How findings name copies that nothing hides."""
IDLE, KERNEL = "idle/", "kernel/"
"""How findings name the idle time that they are about, followed by its category, and kernels,
followed by their names."""
OF_EACH_RANK = "of each rank or "
"""What would explain idle time where there is a trace of one rank only."""
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
    TimeCategory.NOT_RECORDED: "`gpuadvisor profile SCRIPT` records operators and Python",
    TimeCategory.DEVICE: "kernels may be missing in the trace (profilers lose some of CUDA graphs),"
    f" or another GPU was waited for: a trace {OF_EACH_RANK}of Nsight Systems would tell",
    TimeCategory.UNKNOWN: "a recording that begins some steps earlier has the launches",
}
"""What would explain idle time that no finding claims."""
LINES_THAT_LAUNCH = "`gpuadvisor profile --stacks SCRIPT` names the lines that launch"
"""What would explain idle time in which the CPU launches, where the operators are recorded."""

CPU_OF_PROGRAM = (
    "`nsys profile --trace=cuda,nvtx,osrt --sample=process-tree PROGRAM` records what the CPU does"
    " then, and its page in Nsight Systems shows that"
)
LINES_OF_PROGRAM = "`nsys profile --cudabacktrace=all PROGRAM` names the lines of these calls"
WOULD_TELL_OF_PROGRAM = {
    **dict.fromkeys((TimeCategory.OTHER_HOST, TimeCategory.NOT_RECORDED), CPU_OF_PROGRAM),
    **dict.fromkeys(
        (TimeCategory.LAUNCHING, TimeCategory.SYNCHRONIZING, TimeCategory.ALLOCATING),
        LINES_OF_PROGRAM,
    ),
    TimeCategory.STARTING: "a recording of a longer run has more than its start",
}
"""What would explain idle time of a program that Nsight Systems recorded, without a script."""


@dataclass(frozen=True)
class IdleWithoutFinding:
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


def idle_without_finding(
    account: Account, diagnosis: Diagnosis | None
) -> IdleWithoutFinding | None:
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
    return IdleWithoutFinding(share, largest, account.share(largest), gap)


@dataclass(frozen=True)
class WorkWithoutFinding:
    """Kernels that take most of the time in which the GPU computes, with nothing to fix in them."""

    share: float
    """Share of the run, 0 to 1."""
    family: Family
    kernel: str
    """The kernel with most of their time."""
    is_one: bool
    """Whether they are this one kernel; else all of its kind."""


def work_without_finding(
    account: Account, diagnosis: Diagnosis | None, positions: Iterable[OperatorPosition] = ()
) -> WorkWithoutFinding | None:
    """Return the kernel, or the kind of kernels, that takes most of the time in which the GPU
    computes, where that is no small part of the run and no finding to fix is about it.

    `positions` tell which of matrix products, convolutions and attention are near what the GPU can
    do.
    """
    told = _kernels_told(diagnosis)
    left = {name: ns for name, ns in account.kernels_ns.items() if name not in told}
    computing = sum(account.kernels_ns.values())
    if not left:
        return None
    of_family: Counter[Family] = Counter()
    for each, time_ns in left.items():
        of_family[kind_of(each).family] += time_ns
    kernel = max(left, key=left.__getitem__)
    family, time_ns, is_one = kind_of(kernel).family, left[kernel], True
    if time_ns <= MOST * computing:
        ((family, time_ns),) = of_family.most_common(1)
        kernel = max((k for k in left if kind_of(k).family is family), key=left.__getitem__)
        is_one = False
    of_family_known = (
        each for each in positions if (each.operator in ATTENTION) is (family is Family.ATTENTION)
    )
    unknown = time_ns - (near_bound_ns(of_family_known) if family in PRODUCTS else 0.0)
    if time_ns <= MOST * computing or account.share_of(unknown) <= 1 - FILLED:
        return None
    return WorkWithoutFinding(account.share_of(time_ns), family, kernel, is_one)


def mostly_copies(account: Account, diagnosis: Diagnosis | None) -> Iterator[str]:
    """Yield that copies are most of a GPU's work, where no finding to fix is about them."""
    told = {part for each in (diagnosis.shown if diagnosis is not None else ())
            if each.severity.rank >= Severity.NOTICE.rank for part in each.parts}  # fmt: skip
    useful = {each: each.time_ns for each in account.entries if each.kind is EntryKind.USEFUL}
    busy = sum(useful.values())
    copying = sum(ns for each, ns in useful.items() if each.part is TimeCategory.COPYING)
    if not busy or copying <= MOST * busy or COPIES in told:
        return
    kernels = busy - copying
    beside = f"its kernels take {figures.nanoseconds(kernels)}" if kernels else "no kernel ran"
    yield (
        f"For {_percent(copying / busy)} of the time in which the GPU works it only copies"
        f" ({figures.nanoseconds(copying)}); {beside}."
    )


PRODUCTS = (Family.GEMM, Family.CONVOLUTION, Family.ATTENTION)
"""Kinds of which the operations are known where shapes are."""


def near_bound_ns(positions: Iterable[OperatorPosition]) -> float:
    """Return how long operators ran that come near what the GPU can do: within the share of it from
    which on Nsight Compute no longer calls a kernel bound by latency."""
    near = (Bound.COMPUTE, Bound.MEMORY)
    known = (each for each in positions if not each.at_most)
    return float(sum(each.device_ns for each in known if each.position.bound in near))


def _kernels_told(diagnosis: Diagnosis | None) -> set[str]:
    """Return the names of the kernels that a finding to fix is about, be it another's symptom."""
    found: set[str] = set()
    for each in diagnosis.findings if diagnosis is not None else ():
        if each.severity.rank >= Severity.NOTICE.rank or each.hidden_by is not None:
            found |= {part.removeprefix(KERNEL) for part in each.parts if part.startswith(KERNEL)}
            if each.scope.kind is ScopeKind.KERNEL:
                found.add(each.scope.name)
    return found


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


def work_sentence(found: WorkWithoutFinding, how: str) -> str:
    """Return which kernels fill the run without a finding, and what would tell of them; only which
    they are where nothing would, as the recording is too short."""
    short, share = _short(found.kernel), _percent(found.share)
    if found.is_one:
        kind = "" if found.family is Family.OTHER else f" ({found.family})"
        who = f"{short}{kind} has {share} of the run"
    elif found.family is Family.OTHER:
        who = (
            f"Kernels whose names do not tell what they do, {short} first, have {share} of the run"
        )
    else:
        who = f"Kernels of the kind {found.family}, {short} first, have {share} of the run"
    if not how:
        return f"{who}."
    return (
        f"{who}, and no rule found something to fix in {'it' if found.is_one else 'them'}. How well"
        f" {'it runs' if found.is_one else 'they run'} a timeline does not tell: {how}."
    )


def counting(kernel: str, script: str | None) -> str:
    """Return the command that counts a kernel: of a script, or else of any program."""
    if script is not None:
        return (
            f"`gpuadvisor profile --ncu {script}` reads the hardware counters of the kernels with"
            " most time"
        )
    return (
        f"`ncu --set full -k {shlex.quote(bare_name(kernel))} -c 3 -o counted PROGRAM` reads its"
        " hardware counters, and `gpuadvisor diagnose counted.ncu-rep` judges them"
    )


def sentences(
    found: IdleWithoutFinding,
    how: str,
    doing: str = "",
    steps: int = 0,
    calls_within: float | None = None,
) -> Iterator[str]:
    """Yield what no finding is about, where most of it lies, and what would explain it; `doing`
    says what the CPU does then, of so many steps one may have such a gap each, and for this share
    of the longest gap calls into CUDA lasted."""
    yield (
        f"No finding to fix is about {_percent(found.share)} of the run, in which the GPU was idle;"
        f" the largest part is {_percent(found.largest_share)},"
        f" {PARTS[found.largest.part].removeprefix('idle: ')}{f' ({doing})' if doing else ''}."
    )
    if found.gap is not None:
        at_once = found.gap.cause_ns > MOST * found.largest.time_ns
        again = "" if at_once else _again(found.gap.alike, found.largest.time_ns, steps)
        where = "Most of it at once" if at_once else "Its longest gap"
        yield f"{where}: {place(found.gap)}{again}."
        if calls_within is not None and calls_within <= 1 - FILLED:
            yield (
                "The CPU is in no call into CUDA then: it computes, reads, or waits for something"
                " else."
            )
    if how:
        yield f"{how[:1].upper()}{how[1:]}."


def _again(alike: Alike | None, of_ns: int, steps: int) -> str:
    """Return that the same gap comes again and again, where that is most of an idle time."""
    if alike is None or alike.cause_ns <= MOST * of_ns:
        return ""
    least, most = figures.nanoseconds(alike.shortest_ns), figures.nanoseconds(alike.longest_ns)
    often = ", once a step" if alike.count == steps else ""
    share = _percent(min(alike.cause_ns / of_ns, 1.0))
    lasts = f"{least} to {most}" if least != most else most
    return f"; the same gap comes {alike.count:,} times{often} ({lasts} each, {share} of it)"


def place(gap: IdleGap) -> str:
    """Return where a gap lies in the timeline, and between what."""
    begin, end = gap.begin_ns, gap.begin_ns + gap.duration_ns
    before = f"between {_short(gap.before)} and" if gap.before else "before"
    since, until = figures.nanoseconds(begin), figures.nanoseconds(end)
    when = f"from {since} to {until}" if since != until else f"at {since}"
    return (
        f"{figures.nanoseconds(gap.duration_ns)}, {when} after the recording began, {before}"
        f" {_short(gap.after)}"
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _short(text: str) -> str:
    short = short_name(text)
    return short if len(short) <= _LONGEST_NAME else f"{short[: _LONGEST_NAME - 3]}..."
