"""What is said of kernels that Nsight Compute counted one by one, besides findings."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from gpuadvisor.reports import figures
from gpuadvisor.reports.diagnosis import account as account_wording
from gpuadvisor.reports.diagnosis.report import MOST_AT_TOP, DiagnosisReport
from gpuadvisor.rules.coalescing import USUAL_SECTORS
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.gpu_specs import WARP_THREADS
from gpuadvisor.rules.facts.kernel_families import RANDOM, readable, short_name
from gpuadvisor.rules.facts.kernel_metrics import KernelMetrics
from gpuadvisor.rules.facts.stalls import KernelStalls, StallSite, share_interval
from gpuadvisor.rules.facts.unit_levels import AT_PEAK, LATENCY, UnitLevels, unit_levels
from gpuadvisor.rules.kernels import too_small

LEAST_SHARE = 0.1
"""Share of all captured time from which on a kernel is spoken of."""
MOST = 0.5
"""Share from which on something is most of it: all else together is less."""
ALL_PLACES = 1.0
"""Blocks, as a share of those that the GPU holds at once, below which some of its places for them
stay empty."""
MOST_FILLED = 0.9
"""Share of the lanes of a block's warps that have a thread, below which it is said; as the rule
`partial_warps` has it for timelines."""
_LONGEST = 200
"""Characters of a kernel's name: some have thousands."""
_ARGUMENTS = re.compile(r"\((?:[^()]|\([^()]*\))*\)\s*$")
_PLACEHOLDER = re.compile(r"[<(](unnamed|anonymous namespace|anonymous)[>)]")


def _evidence(report: DiagnosisReport) -> Evidence:
    return Evidence(None if report.profile is None else report.profile.facts)


def random_numbers(report: DiagnosisReport) -> list[str]:
    """Return that most of what was captured only makes random numbers: that is a program's set-up,
    and the kernel that somebody wanted to see came later."""
    counters = _evidence(report).kernel_counters
    total = sum(each.time_ns for each in counters)
    random = sum(each.time_ns for each in counters if _is_random(each.name))
    if 2 * random <= total:
        return []
    return [
        f"{figures.percent(random / total)} of the captured kernel time fills tensors with random"
        " numbers, as programs do once before their work: `ncu --launch-skip N` or `ncu -k NAME`"
        " captures the kernels after it."
    ]


def _is_random(name: str) -> bool:
    """Say whether a kernel only makes random numbers; one that takes a generator may do more."""
    return RANDOM.search(_ARGUMENTS.sub("", _PLACEHOLDER.sub("", readable(name)))) is not None


def without_time(report: DiagnosisReport) -> list[str]:
    """Return which kernels are in the report without their time, in a sentence."""
    names = _evidence(report).untimed
    if not names:
        return []
    who = ", ".join(short_name(each)[:_LONGEST] for each in names[:MOST_AT_TOP])
    who += f" and {len(names) - MOST_AT_TOP} more" if len(names) > MOST_AT_TOP else ""
    is_one = len(names) == 1
    return [
        f"{who} {'was' if is_one else 'were'} captured, but {'its' if is_one else 'their'} time was"
        f" not counted: how much {'it matters' if is_one else 'they matter'} beside the others is"
        " not known, and nothing here says that the others matter at all."
    ]


def nothing_counted(report: DiagnosisReport) -> list[str]:
    """Return that a report has kernels, but neither a time nor a unit's share of its peak of any:
    Nsight Compute writes what it could not collect as no number."""
    if report.profile is None or not (rows := report.profile.facts.profile.rows("kernels")):
        return []
    evidence = _evidence(report)
    levels = unit_levels([metrics for metrics, _ in evidence.kernel_loads])
    if evidence.captured_ns or any(each.units for each in levels):
        return []
    profile = report.profile.facts.profile
    name = profile.header.texts[int(profile.columns("kernels", ("name",))["name"][0])]
    who = "its kernel" if rows == 1 else f"none of its {rows:,} kernels"
    has = "has neither the time of" if rows == 1 else "has the time of"
    or_ = "nor" if rows == 1 else "or"
    return [
        f"The report {has} {who} {or_} how busy a unit was: these values are missing or no numbers,"
        " as where collecting fails. Capture again, and mind what ncu prints:"
        f" {account_wording.counting(name, None)}."
    ]


def lacks_loads(report: DiagnosisReport) -> bool:
    """Say whether a report has the time of kernels, but of none how busy all units were: rules can
    tell what is wrong by the rest of it, but no gain."""
    evidence = _evidence(report)
    return bool(evidence.captured_ns) and all(known is None for _, known in evidence.kernel_loads)


@dataclass(frozen=True)
class Unexplained:
    """A kernel of which no finding explains most of its time."""

    kernel: UnitLevels
    share: float
    """The kernel's share of all captured time, 0 to 1."""
    told_pct: float | None
    """What findings about it are worth at most, in percent of all captured time; None where there
    are none."""


def unexplained(report: DiagnosisReport) -> Iterator[Unexplained]:
    """Yield the kernels with most of the captured time that findings explain too little of."""
    evidence = _evidence(report)
    total = evidence.captured_ns
    told: dict[str, list[float]] = {}
    for each in report.worth_fixing:
        captured = each.captured_pct or each.improvement_pct
        told.setdefault(each.scope.name, []).append(captured.high if captured else 100.0)
    of_run = "" in told  # the name of the run is empty
    if not total or (of_run and evidence.has_timeline):
        return
    for kernel in unit_levels([metrics for metrics, _ in evidence.kernel_loads])[:MOST_AT_TOP]:
        if of_run and too_small(kernel.metrics):
            continue  # without a timeline it is the launches that are too small of which it tells
        share, found = kernel.time_ns / total, told.get(kernel.name)
        # Of a kernel whose units were not counted nobody knows what a finding explains.
        worth = None if found is None or kernel.lacks_units else max(found)
        if share >= LEAST_SHARE and (worth is None or worth < 100 * MOST * share):
            yield Unexplained(kernel, share, worth)


def levels(report: DiagnosisReport) -> list[str]:
    """Return how near their peak the units were in kernels that no finding explains, what else is
    known of these, and what would tell more."""
    return [" ".join(_sentences(each)) for each in unexplained(report)]


def _sentences(found: Unexplained) -> Iterator[str]:
    kernel, metrics = found.kernel, found.kernel.metrics
    name = short_name(kernel.name)[:_LONGEST]
    share = figures.percent(found.share)
    if found.told_pct is None:
        judges = None not in (metrics.compute, metrics.memory, metrics.l1, metrics.l2)
        judged = "found something to fix" if judges else "can tell a gain"
        yield f"{name} has {share} of the captured kernel time; no rule {judged}."
    else:
        yield (
            f"{name} has {share} of the captured kernel time, of which what was found to fix"
            f" explains at most {figures.percent(found.told_pct / 100)}."
        )
    if kernel.is_short and metrics.seconds is not None:
        lasts = figures.nanoseconds(1e9 * metrics.seconds)
        yield (
            f"A launch takes {lasts}, most of which is starting and ending: too short for its"
            " counters to tell much."
        )
    yield from _of_units(kernel)
    yield from _of_warps(kernel)
    if kernel.missing:
        yield from _would_tell(kernel)


def _of_units(kernel: UnitLevels) -> Iterator[str]:
    if not kernel.units:
        return
    (busiest, share), *rest = kernel.units
    others = ", ".join(f"{unit.removeprefix('the ')} {figures.percent(of)}" for unit, of in rest)
    peak = figures.percent(share)
    if kernel.lacks_units:
        part = f" ({kernel.part})" if kernel.part else ""
        yield f"Of its units only {busiest} was counted, at {peak} of its peak{part}."
        return
    if share < LATENCY:
        beside = f" ({others})" if others else ""
        yield (
            f"No unit that was counted is busier than {peak} of its peak, {busiest} first{beside}:"
            " what limits it is more likely waiting (latency) than a unit's rate."
        )
        return
    role = "What limits it" if share >= AT_PEAK else "Its busiest unit"
    part = f" ({kernel.part})" if kernel.part else ""
    beside = f", beside {others}" if others else ""
    yield f"{role} is {busiest}, at {peak} of its peak{part}{beside}."
    yield from _of_shared_atomics(kernel.metrics)


def _of_shared_atomics(metrics: KernelMetrics) -> Iterator[str]:
    """Yield that atomics on shared memory take most cycles of the L1 cache's data stage: those that
    are no bank conflicts are no finding, as which of them could be spared is not counted."""
    taken, _ = metrics.shared_atomics or (0.0, 0.0)
    if not metrics.wavefronts or taken < MOST * metrics.wavefronts:
        return
    share = figures.percent(min(taken / metrics.wavefronts, 1.0))
    yield (
        f"Atomics on shared memory take {share} of the cycles in which the L1 cache's data stage"
        " works: combine values in registers of a warp before, if they go to few addresses."
    )


def _of_warps(kernel: UnitLevels) -> Iterator[str]:
    metrics = kernel.metrics
    lanes = WARP_THREADS * math.ceil((metrics.threads or 0) / WARP_THREADS)
    if metrics.threads and metrics.threads <= MOST_FILLED * lanes:
        yield (
            f"Its blocks of {figures.count(metrics.threads, 'thread')} fill {metrics.threads} of"
            f" the {lanes} lanes of their warps."
        )
    if metrics.waves is not None and metrics.blocks and metrics.waves < ALL_PLACES:
        fill = "fills" if metrics.blocks == 1 else "fill"
        yield (
            f"Its {figures.count(metrics.blocks, 'block')} {fill}"
            f" {figures.percent(metrics.waves)} of the GPU's places for blocks."
        )
    if metrics.achieved_occupancy is not None:
        yield f"Its occupancy is {figures.percent(metrics.achieved_occupancy)}{_of_most(metrics)}."
    yield from _of_accesses(metrics)
    if kernel.waits is not None:
        reason, share = kernel.waits
        yield f"Its warps wait longest {reason}, {figures.percent(share)} of their time."


def _of_most(metrics: KernelMetrics) -> str:
    """Return what keeps the occupancy below all that an SM can hold; empty where nothing does."""
    most = metrics.theoretical_occupancy
    if most is None or most >= ALL_PLACES:
        return ""
    limiters = [each for each, blocks in metrics.limits.items() if blocks == metrics.resident]
    by = f" (by its {' and '.join(each.replace('_', ' ') for each in limiters)})"
    return f", of {figures.percent(most)} that fit{by if limiters else ''}"


def _of_accesses(metrics: KernelMetrics) -> Iterator[str]:
    """Yield how many sectors accesses touch, where nothing tells how many are needed."""
    if metrics.ideal_sectors is not None:
        return
    told = [
        f"{what} touch {figures.number(sectors)}"
        for what, sectors in (("loads", metrics.load_sectors), ("stores", metrics.store_sectors))
        if sectors is not None
    ]
    if told:
        yield (
            f"For each request of a warp its {' and its '.join(told)} sectors of 32 bytes; threads"
            f" side by side touch {USUAL_SECTORS} with 4 bytes each."
        )


def sampled(report: DiagnosisReport) -> Iterator[KernelStalls]:
    """Yield where the warps of kernels wait, of those with most of the captured time."""
    if report.profile is None:
        return
    found = report.profile.facts.kernel_stalls
    names = dict.fromkeys(each.name for each in _evidence(report).kernel_counters)
    yield from islice((found[name] for name in names if name in found), MOST_AT_TOP)


def stalls(report: DiagnosisReport) -> list[str]:
    """Return where the warps of kernels wait, a sentence a kernel: with the share of its samples,
    or, where these are few, the 95 % interval of that."""
    return [
        f"{short_name(each.kernel)[:_LONGEST]} waits, of {each.samples:,} samples of its warps"
        f"{_FEW if any(map(_is_rough, each.sites)) else ''}, {_places(each)}.{_generators(each)}"
        for each in sampled(report)
        if each.sites
    ]


EXACT = 0.01
"""Half of a 95 % interval, as a share of all samples, up to which a share is told without it: what
is named has at least five times as much. [own]"""
_FEW = " (ranges are 95 % intervals)"


_GENERATORS = re.compile(r"(?:cu|hip|roc)rand\w*\.h")
"""Files of the functions that kernels call to make random numbers themselves."""


def _generators(found: KernelStalls) -> str:
    """Return, as another sentence, that most of a kernel's time goes to generators of random
    numbers and not to its own lines; empty where it is not known to. What `curand_init` costs:
    cuRAND, "Performance Notes"."""
    files = {each.line: _file_name(each.line.rpartition(":")[0]) for each in found.sites}
    sites = [each for each in found.sites if _GENERATORS.fullmatch(files[each.line])]
    share, _ = share_interval(sum(each.samples for each in sites), found.samples)
    if share < MOST:
        return ""
    return (
        f" Most of that is in {files[sites[0].line]}, which makes random numbers. If this kernel"
        " calls `curand_init`: it skips ahead to each thread's sequence, which takes far longer"
        " than to draw some numbers. Call it once, in a kernel before, and keep the states; or give"
        " each thread a seed of its own and sequence 0, or Philox, which skips at no cost."
    )


def _is_rough(site: StallSite) -> bool:
    return site.high - site.low > 2 * EXACT


def _share(site: StallSite) -> str:
    if _is_rough(site):
        return f"{100 * site.low:.0f} to {100 * site.high:.0f} %"
    return figures.percent(site.share)


def _file_name(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]


def _places(found: KernelStalls) -> str:
    """Return `at gemm.cu:9 75.0 % for loads, 6.00 % at barriers; at gemm.cu:12 ...`."""
    reasons: dict[str, list[str]] = {}
    files = {site.line.rpartition(":")[0] for site in found.sites}
    names = {_file_name(each) for each in files}
    for site in found.sites:
        words = f"{_share(site)} {site.waits}"
        # The folders are those of the machine on which it was compiled.
        line = _file_name(site.line) if len(names) == len(files) else site.line
        place = line or site.instruction
        if not line and " " not in place:  # what it does is not in the report
            place = f"the instruction {place}"
        reasons.setdefault(place[:_LONGEST], []).append(words)
    return "; ".join(f"at {place} {', '.join(words)}" for place, words in reasons.items())


WHAT = {
    "SpeedOfLight": "how busy the units are",
    "WarpStateStats": "what its warps wait for",
    "MemoryWorkloadAnalysis_Tables": "if bank conflicts, atomics or scattered accesses fill it",
}
"""Sections of Nsight Compute to what they tell."""


def _would_tell(kernel: UnitLevels) -> Iterator[str]:
    told = {**WHAT, "SpeedOfLight": "how busy the other units are"} if kernel.units else WHAT
    lacks = " and ".join(f"{told[each]} (section {each})" for each in kernel.missing)
    yield f"The report does not tell {lacks}: {account_wording.counting(kernel.name, None)}."
