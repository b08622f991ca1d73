"""The GPU is done before the host has launched its next kernel."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.estimates import (
    GRAPH_GAP_NS,
    idle_ns,
    late_ns,
    loader_sets_pace,
    paces,
    queue,
    saved_by_launching,
    span_ns,
)
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.idle_causes import Cause
from gpuadvisor.rules.facts.launches import Queue
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.requirements import KERNELS, LOOP
from gpuadvisor.rules.rule import Estimate, Rule, RuleResult, percent

LEAST_SHARE = 0.05
"""Least share of the run. Some idle time between kernels is in every run: 2 to 4 % in well-fed
ones. [own]"""
LEAST_DEVICE_SHARE = 0.15
"""Least share of the run: idle time in which the next kernel had been launched. TraceLens calls a
GPU idle from 15 % on."""
LEAST_SHORT_SHARE = 0.5
"""Least share of the kernels that take less than 10 us, where idle time between launched kernels is
about these. (TraceLens' length of a short kernel)"""
COVERED = 0.9
"""Share of the launches that a compiler or a CUDA graph takes over: the optimizer's bookkeeping,
losses and metrics stay. [own]"""
SURE_OF_DEVICE = 0.5
"""Share that is saved at least of idle time between kernels that had been launched: the trace does
not tell what it was. [own]"""

MOST_OF_ONE = 0.5
"""Largest share of the idle time with launching that one gap has. [own]"""

_METHOD = (
    "{} of this idle time; at least nine tenths of what launching for free saves when the run is"
    " played again at the pace the host may have without the profiler, less 1 us for each kernel."
)

RULE = Rule(
    Category.LAUNCH_BOUND,
    needs=(KERNELS, LOOP),
    knobs=("compile_cudagraphs", "compile", "fused_optimizer", "batch_size"),
    hides=("cuda_graphs",),
)


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find idle time in which the host was busy launching, or kernels too short to fill it."""
    facts = evidence.known_facts
    of_kernels = queue(facts)
    if of_kernels is None or not evidence.run_ns:
        return
    host, between = _of_host(facts, evidence.run_ns), _of_device(facts, of_kernels)
    if host is not None:
        yield _claim(evidence, of_kernels, host, between)
    elif between:
        yield _device_claim(evidence, of_kernels, between)


def _of_host(facts: Facts, run_ns: float) -> tuple[float, float] | None:
    """Return the shares of the run that launching for free would save; None where the host does
    other things for longer, or there is little to save."""
    launching, other = _told(facts)
    if launching < max(LEAST_SHARE * span_ns(facts), other, idle_ns(facts, Cause.NOT_RECORDED)):
        return None
    low, high = saved_by_launching(facts)
    high = min(high, facts.window.share(launching + other))
    left = facts.window.share(GRAPH_GAP_NS * len(facts.work) * _slower(facts))
    return (
        (COVERED * max(min(low, high) - left, 0.0), high)
        if high * run_ns >= LEAST_SHARE * span_ns(facts)
        else None
    )


def _told(facts: Facts) -> tuple[float, float]:
    """Return the idle time in which the host launched, and in which it did other things; nothing
    where one gap is most of it, for a program that launches too slowly has many."""
    launching = idle_ns(facts, Cause.LAUNCHING)
    longest = [
        each.longest_of[Cause.LAUNCHING].cause_ns
        for each in facts.idle
        if Cause.LAUNCHING in each.longest_of
    ]
    if max(longest, default=0) > MOST_OF_ONE * launching:
        return 0.0, 0.0
    return launching, idle_ns(facts, Cause.OTHER_HOST)


def _slower(facts: Facts) -> float:
    """Return how many times as long as without the profiler the run may have taken."""
    return 1 / paces(facts)[1]


def _of_device(facts: Facts, of_kernels: Queue) -> float:
    """Return the idle time between short kernels that had been launched in time, in nanoseconds."""
    if of_kernels.short_kernels < LEAST_SHORT_SHARE * of_kernels.kernels:
        return 0.0
    idle = idle_ns(facts, Cause.BETWEEN_KERNELS)
    return idle if idle >= LEAST_DEVICE_SHARE * span_ns(facts) else 0.0


def _claim(
    evidence: Evidence, of_kernels: Queue, host: tuple[float, float], between_ns: float
) -> RuleResult:
    facts = evidence.known_facts
    run = evidence.run_ns
    launching, other = _told(facts)
    idle = launching + other
    graphs = facts.repetition.can_be_graphs
    paced = loader_sets_pace(facts)
    if paced:  # workers may deliver no faster, however fast the host is
        host = (0.0, host[1] if late_ns(facts) < launching else 0.0)
    return RuleResult(
        f"The GPU is idle for {evidence.share(idle):.0%} of the run because the host takes longer"
        f" to launch its {of_kernels.kernels:,} kernels than they run"
        + (f", and for {evidence.share(between_ns):.0%} between these" if between_ns else ""),
        (
            percent("gpu_idle_launching", evidence.share(launching), LEAST_SHARE),
            percent("gpu_idle_other_host", evidence.share(other)),
            *_of_kernels(of_kernels),
        ),
        "Launch less: replay the step as a CUDA graph, as it always launches the same kernels."
        if graphs
        else "Launch less: compile the model, or give each launch more to do with a larger batch.",
        Estimate(
            host[0] * run + SURE_OF_DEVICE * between_ns,
            host[1] * run + between_ns,
            {
                "idle/launching": launching,
                "idle/other_host": other,
                **({"idle/between_kernels": between_ns} if between_ns else {}),
            },
        ),
        _METHOD.format("At most all" if graphs else "All")
        + (
            ""
            if graphs
            else " What compiling or a larger batch makes of the kernels can save more."
        ),
        severity=Severity.INFO if paced and not host[1] else None,
        program_advice=""
        if graphs
        else "Launch less: fuse kernels, give each launch more to do, or replay what repeats as a"
        " CUDA graph.",
        knobs=None
        if graphs
        else ("compile", "compile_cudagraphs", "fused_optimizer", "batch_size"),
    )


def _device_claim(evidence: Evidence, of_kernels: Queue, between_ns: float) -> RuleResult:
    share = evidence.share(between_ns)
    return RuleResult(
        f"The GPU is idle for {share:.0%} of the run between kernels that had been launched in"
        f" time, {of_kernels.short_kernels / of_kernels.kernels:.0%} of which take less than 10 us",
        (percent("gpu_idle_between_kernels", share, LEAST_DEVICE_SHARE), *_of_kernels(of_kernels)),
        "Give each launch more to do: fuse the short kernels, or make batches larger.",
        Estimate(SURE_OF_DEVICE * between_ns, between_ns, {"idle/between_kernels": between_ns}),
        "All of this idle time, and half of it by our own choice: longer kernels need fewer such"
        " changes. Fusing can save more.",
        knobs=("compile", "batch_size"),
    )


def _of_kernels(of_kernels: Queue) -> tuple[Figure, ...]:
    starved = of_kernels.starved_share
    short = 100 * of_kernels.short_kernels / of_kernels.kernels
    return (
        Figure("kernels_below_10_us", round(short, 1), "%"),
        *(() if starved is None else (percent("launches_with_nothing_queued", starved),)),
    )
