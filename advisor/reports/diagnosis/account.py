"""The words of a run's account: where its time went, which finding claims it, what is unexplained.

Every share that is printed of a run comes from its one `Account`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from gpuadvisor.domain.finding import Diagnosis, Finding, ScopeKind
from gpuadvisor.domain.profile import Direction
from gpuadvisor.reports import figures
from gpuadvisor.reports.diagnosis.report import matters
from gpuadvisor.reports.profile.wording import PARTS, copy_words
from gpuadvisor.rules.engine import SEVERITIES
from gpuadvisor.rules.estimates import AT_ONCE, LEAST_NS, PERSISTENT
from gpuadvisor.rules.facts.account import Account, Entry, EntryKind
from gpuadvisor.rules.facts.copies import CopyTime
from gpuadvisor.rules.facts.idle import IdleGap
from gpuadvisor.rules.facts.kernel_families import (
    ONE_VECTOR,
    Family,
    kind_of,
    ncu_filter,
    short_name,
)
from gpuadvisor.rules.facts.kernels import KernelShape
from gpuadvisor.rules.facts.roofline import ATTENTION, Bound, OperatorPosition
from gpuadvisor.rules.facts.starting import is_trial
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


@dataclass(frozen=True)
class IdleWithoutFinding:
    """Idle time that no finding is about."""

    share: float
    """Share of the run in which the GPU was idle and no finding is about it, 0 to 1."""
    largest: Entry
    largest_share: float
    gap: IdleGap | None
    """The gap with most of it; None where it is behind the last work."""
    device: int | None = None
    """Number of the GPU that has this gap, where there are several."""


def claims(diagnosis: Diagnosis | None) -> Mapping[TimeCategory, str]:
    """Return which finding, of those to fix, is about which idle time; the most severe of each."""
    found: dict[TimeCategory, str] = {}
    for each in diagnosis.shown if diagnosis is not None else ():
        if not matters(each):
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
    gaps = [(gap, device.device) for device in account.devices for gap in device.longest]
    of_it = [each for each in gaps if str(each[0].cause) == str(largest.part)]
    gap, device = max(of_it, key=lambda each: each[0].cause_ns, default=(None, None))
    whose = device if len(account.devices) > 1 else None
    return IdleWithoutFinding(share, largest, account.share(largest), gap, whose)


@dataclass(frozen=True)
class WorkWithoutFinding:
    """Kernels that take most of the time in which the GPU computes, with nothing to fix in them."""

    share: float
    """Share of the run, 0 to 1."""
    family: Family
    kernel: str
    """The kernel with most of their time."""
    kernels: tuple[str, ...] = ()
    """All of its kind; empty where they are this one kernel."""

    @property
    def is_one(self) -> bool:
        return not self.kernels


def work_without_finding(
    account: Account, diagnosis: Diagnosis | None, positions: Iterable[OperatorPosition] = ()
) -> WorkWithoutFinding | None:
    """Return the kernel, or the kind of kernels, that takes most of the time in which the GPU
    computes, where that is no small part of the run and no finding to fix is about it.

    `positions` tell which of matrix products, convolutions and attention are near what the GPU can
    do.
    """
    told = _kernels_told(diagnosis)
    kernels = account.kernels_ns.items()
    left = {name: ns for name, ns in kernels if name not in told and not is_trial(name)}
    computing = sum(account.kernels_ns.values())
    if not left:
        return None
    of_family: Counter[Family] = Counter()
    for each, time_ns in left.items():
        of_family[kind_of(each).family] += time_ns
    kernel = max(left, key=left.__getitem__)
    family, time_ns = kind_of(kernel).family, left[kernel]
    alike: tuple[str, ...] = ()
    if time_ns <= MOST * computing:
        ((family, time_ns),) = of_family.most_common(1)
        alike = tuple(each for each in left if kind_of(each).family is family)
        kernel = max(alike, key=left.__getitem__)
    of_family_known = (
        each for each in positions if (each.operator in ATTENTION) is (family is Family.ATTENTION)
    )
    unknown = time_ns - (near_bound_ns(of_family_known) if family in PRODUCTS else 0.0)
    if time_ns <= MOST * computing or account.share_of(unknown) <= 1 - FILLED:
        return None
    return WorkWithoutFinding(account.share_of(time_ns), family, kernel, alike)


def mostly_moves(
    account: Account, diagnosis: Diagnosis | None, copies: Callable[[], Iterable[CopyTime]] = tuple
) -> Iterator[str]:
    """Yield that copies, or setting memory, are most of a GPU's work, where no finding to fix is
    about them; `copies` tell which ones."""
    useful = {each: each.time_ns for each in account.entries if each.kind is EntryKind.USEFUL}
    busy, gpus = sum(useful.values()), max(len(account.devices), 1)
    each_gpu = "" if gpus == 1 else f" on each of {gpus} GPUs, on average"
    for part, does in ((TimeCategory.COPYING, "copies"), (TimeCategory.FILLING, "sets memory")):
        time_ns = sum(ns for each, ns in useful.items() if each.part is part)
        if not busy or time_ns <= MOST * busy or _about(diagnosis, COPIES):
            continue
        is_fill = part is TimeCategory.FILLING
        kinds = [each for each in copies() if (each.direction is Direction.MEMSET) is is_fill]
        mostly = max(kinds, key=lambda each: each.exposed_ns, default=None)
        kernels = (busy - time_ns) / gpus
        beside = f"the rest of its work takes {figures.nanoseconds(kernels)}"
        yield (
            f"For {_percent(time_ns / busy)} of the time in which the GPU works it only {does}"
            f" ({figures.nanoseconds(time_ns / gpus)}{each_gpu}{_which(mostly)});"
            f" {beside if kernels else 'no kernel was recorded'}."
        )
        if account.share_of(time_ns) <= MOST:
            continue
        longest = max(kinds, key=lambda each: each.ran_ns, default=None)
        ran = gpus * longest.ran_ns if longest is not None else 0
        if is_fill:
            yield SHORTER_FILLS
        elif (
            longest is None
            or account.share_of(ran) <= FILLED
            or longest.exposed_ns > FILLED * longest.ran_ns
        ):
            yield SHORTER_COPIES
        else:
            yield (
                f"Copies ({copy_words(longest)}) run for {_percent(account.share_of(ran))} of the"
                " run, in part beside kernels: more of that shortens nothing, but copying less, as"
                " of data that could stay on the GPU, or faster does."
            )


SHORTER_COPIES = (
    "Data that come again and again could stay on the GPU; fewer bytes shorten the rest, or work"
    " that goes on meanwhile."
)
SHORTER_FILLS = "Setting less memory, or less often, shortens that."
"""What shortens a run that mostly moves data, whatever it does besides."""


def _which(mostly: CopyTime | None) -> str:
    """Return `, mostly host to device, pinned to device: 12 times, 3.1 GiB at 25 GB/s`."""
    if mostly is None:
        return ""
    often = f"{mostly.count:,} time{'' if mostly.count == 1 else 's'}"
    size = f", {figures.memory(mostly.bytes)}" if mostly.bytes > 0 else ""
    if mostly.bandwidth_bytes_per_s:
        size += f" at {figures.rate(mostly.bandwidth_bytes_per_s, 'B/s')}"
    return f", mostly {copy_words(mostly)}: {often}{size}"


def _about(diagnosis: Diagnosis | None, part: str) -> int | None:
    """Return the number (from 1) of the first finding to fix that is about a part of the run, as
    `copy/exposed`; None where none is."""
    shown = (each for each in (diagnosis.shown if diagnosis is not None else ()) if matters(each))
    return next((number for number, each in enumerate(shown, 1) if part in each.parts), None)


def headline(account: Account, diagnosis: Diagnosis | None, with_idle: bool = True) -> str | None:
    """Return the largest part of a run in a sentence, and which finding is about it, if any; None
    where the first finding is about it or is worth a good part of it, or where it is idle time and
    that is not wanted."""
    if not account.span_ns or not account.entries:
        return None
    largest = max(account.entries, key=lambda each: each.time_ns)
    share, words = account.share(largest), _as_part(largest)
    if largest.kind is not EntryKind.USEFUL and not with_idle:
        return None
    which = (each for each in (diagnosis.shown if diagnosis is not None else ()) if matters(each))
    findings = tuple(which)
    worth = findings[0].improvement_pct if findings else None
    if worth is not None and worth.middle >= MOST * 100 * share:
        return None
    of_it = 1.0
    if largest.part is TimeCategory.COMPUTING:
        words, share, about, of_it = _largest_kernels(account, diagnosis, largest)
    else:
        about = _about(diagnosis, _NAMES.get(largest.part, f"{IDLE}{largest.part}"))
    if about == 1 and of_it > MOST:
        return None
    part = "" if of_it > MOST else f"{_percent(of_it)} of "
    told = f"; finding {about} is about {part}it" if about else ""
    if findings and not about:
        told = "; no finding to fix is about it"
    return f"The largest part of the run, {_percent(share)}, is {words}{told}."


def _as_part(entry: Entry) -> str:
    """Return `idle time (after the CPU waited)` or `copying only`."""
    words, _, why = PARTS[entry.part].partition(": ")
    if not why:
        return words
    return f"{'' if words == 'idle' else f'{words} '}idle time ({why})"


_NAMES = {TimeCategory.COPYING: COPIES, TimeCategory.COMMUNICATING: "communication/exposed"}
"""How findings name parts of a run that are no idle time."""


def _largest_kernels(
    account: Account, diagnosis: Diagnosis | None, entry: Entry
) -> tuple[str, float, int | None, float]:
    """Return the words for the kernels of a kind, or for the one that is most of them, their share
    of the run, the first finding that is about most of their time, or else the one about most of
    it, and about how much (0 to 1)."""
    mine = {
        each: ns for each, ns in account.kernels_ns.items() if kind_of(each).family == entry.family
    }
    first = max(mine, key=mine.__getitem__)
    if mine[first] > MOST * entry.time_ns:
        mine, words = {first: mine[first]}, f"one kernel, {_with_kind(first)}"
    else:
        words = f"{_kernels_like(kind_of(first).family, mine)}, {_short(first)} first"
    time_ns = sum(mine.values())
    shown = (each for each in (diagnosis.shown if diagnosis is not None else ()) if matters(each))
    told = [sum(mine.get(name, 0) for name in _kernels_of(each)) / time_ns for each in shown]
    largest = max(told, default=0.0)
    about = next((at for at, of_it in enumerate(told, 1) if of_it > MOST), None)
    if about is None and largest:
        about = told.index(largest) + 1
    return words, account.share_of(time_ns), about, told[about - 1] if about else 0.0


def _with_kind(kernel: str) -> str:
    """Return a kernel's name and, where that tells what it does, its kind."""
    family = kind_of(kernel).family
    kind = "" if family is Family.OTHER else f" ({_kind(family, (kernel,))})"
    return f"{_short(kernel)}{kind}"


def _kind(family: str, kernels: Iterable[str]) -> str:
    """Return what kernels of a family do: `gemm`, or `product with one vector` where all do that,
    which reads a matrix once and is no product of two."""
    of_vector = family == Family.GEMM and all(map(ONE_VECTOR.search, kernels))
    return "product with one vector" if of_vector else str(family)


def _kernels_like(family: Family, kernels: Iterable[str]) -> str:
    """Return what to call kernels of a family, of which these have time."""
    if family is Family.OTHER:
        return "kernels whose names do not tell what they do"
    return f"kernels of the kind {_kind(family, kernels)}"


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
        if matters(each) or each.hidden_by is not None:
            found |= _kernels_of(each)
    return found


def _kernels_of(finding: Finding) -> set[str]:
    """Return the names of the kernels that a finding is about."""
    found = {part.removeprefix(KERNEL) for part in finding.parts if part.startswith(KERNEL)}
    return found | ({finding.scope.name} if finding.scope.kind is ScopeKind.KERNEL else set())


def name(entry: Entry, account: Account) -> str:
    """Return `computing: convolution` or `idle: waiting for data` of a part of an account."""
    if not entry.family:
        return PARTS[entry.part]
    mine = (each for each in account.kernels_ns if kind_of(each).family == entry.family)
    return f"{PARTS[entry.part]}: {_kind(entry.family, mine)}"


def line(account: Account, diagnosis: Diagnosis | None) -> str:
    """Return the account as a sentence, each share with the finding that claims it."""
    claimed = claims(diagnosis)
    ordered = sorted(account.entries, key=lambda each: -each.time_ns)
    large = [each for each in ordered[:MOST_ENTRIES] if account.share(each) >= LEAST_NAMED]
    shown = [each for each in account.entries if each in large]
    words = [
        f"{name(each, account).removeprefix('computing: ')} {_percent(account.share(each))}"
        + (f" ({claimed[each.part]})" if each.part in claimed else "")
        for each in shown
    ]
    if rest := sum(each.time_ns for each in ordered if each not in shown):
        words.append(f"the rest {_percent(rest / account.span_ns)}")
    return f"The run's time: {', '.join(words)}."


def work_sentence(found: WorkWithoutFinding, how: str) -> str:
    """Return which kernels fill the run without a finding, and what would tell of them; only which
    they are where nothing would, as the recording is too short."""
    share = _percent(found.share)
    if found.is_one:
        who = f"{_with_kind(found.kernel)} has {share} of the run"
    else:
        like = _kernels_like(found.family, found.kernels)
        who = f"K{like[1:]}, {_short(found.kernel)} first, have {share} of the run"
    if not how:
        return f"{who}."
    return (
        f"{who}, and no rule found something to fix in {'it' if found.is_one else 'them'}. How well"
        f" {'it runs' if found.is_one else 'they run'} a timeline does not tell: {how}."
    )


def small_grids(
    account: Account,
    diagnosis: Diagnosis | None,
    shapes: Iterable[KernelShape],
    sm_count: int,
    at_once: float,
) -> str:
    """Return that launches which leave most of the GPU empty, each too short for a finding, are a
    good part of a run of one GPU together, in a sentence; empty where they are not, where a finding
    is about them, or where others run beside them.

    `at_once` is how many kernels run at a time, on average.
    """
    told = _kernels_told(diagnosis)
    if len(account.devices) != 1 or at_once > AT_ONCE:
        return ""
    found = [
        launch
        for whole in shapes
        for launch in whole.launches
        if whole.name not in told
        and 0 < launch.blocks < (PERSISTENT if whole.is_library else 1.0) * sm_count
        and launch.mean_ns < LEAST_NS
    ]
    share = account.share_of(float(sum(each.time_ns for each in found)))
    if share < 1 - FILLED:
        return ""
    first = max(found, key=lambda each: each.time_ns)
    return (
        f"Launches with fewer blocks than the GPU has multiprocessors ({sm_count}) are"
        f" {_percent(share)} of the run, {_short(first.name)} with"
        f" {figures.count(first.blocks, 'block')} first. They are too short, less than"
        f" {figures.nanoseconds(LEAST_NS)} each, to gain much by more blocks: fewer launches that"
        " do more each, or a larger problem, fill the GPU."
    )


COUNTING_ON_AMD = "`rocprof-compute profile -n counted -- PROGRAM` reads hardware counters"
"""The command that counts kernels on GPUs of AMD's."""


def counting(kernel: str, script: str | None) -> str:
    """Return the command that counts a kernel: of a script, or else of any program."""
    if script is not None:
        return (
            f"`gpuadvisor profile --ncu {script}` reads the hardware counters of the kernels with"
            " most time"
        )
    return (
        f"`ncu --set full -k {ncu_filter(kernel)} -c 3 -o counted PROGRAM` reads its"
        " hardware counters, and `gpuadvisor diagnose counted.ncu-rep` judges them"
    )


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
