"""The GPU is done before the host has launched its next kernel."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.device import sm_count
from gpuadvisor.rules.estimates import GRID
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.compiled import launched_by_compiled, made_by_compiler
from gpuadvisor.rules.facts.idle_causes import Cause
from gpuadvisor.rules.facts.intervals import either
from gpuadvisor.rules.facts.launches import Queue, of_graphs
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.launching import (
    COVERED,
    GRAPH_GAP_NS,
    breaks_off,
    saved_by_compiling,
    saved_by_launching,
)
from gpuadvisor.rules.paces import (
    LEAST_IDLE,
    MARGIN,
    idle_ns,
    is_timed,
    late_ns,
    loader_sets_pace,
    longer_with_profiler,
    paces,
    queue,
    span_ns,
)
from gpuadvisor.rules.requirements import KERNELS, LOOP
from gpuadvisor.rules.rule import LEAST_REACHED, MOST, Estimate, Rule, RuleResult, percent

LEAST_DEVICE_SHARE = 0.15
"""Least share of the run: idle time in which the next kernel had been launched. TraceLens calls a
GPU idle from 15 % on."""

COUNTS = 0.5
"""Share of the width of what launching for free saves that counts where findings are put in order:
no cure makes launching free, and where others save some of the same idle time, they are nearer to
it. [own: of 302 programs on an H200 287 get the right finding first so with the time of a step and
289 without; 287 and 286 with all of it, 285 and 288 with none]"""
FIXED_NS = 5_000
"""Time of a kernel that does not grow with what it has to do: its start, its way to memory and
back, its end. The smallest products take 3 to 6 us on H100 and A100 (`tensor_cores`); of 21
programs on an H200 cured of many launches at least as much of it went in 18, with what `FULL`
says."""
FULL = 2
"""Blocks on a multiprocessor below which a kernel takes no longer with more of them: one alone
cannot hide how long it waits (CUDA C++ Best Practices Guide, thread and block heuristics)."""

_BESIDE_GRAPHS = ("fused_optimizer", "batch_size")
_OTHER_KNOBS = ("compile_cudagraphs", *_BESIDE_GRAPHS)
_READS_FIRST = (
    "Give each launch more to do with a larger batch. The host reads a value from the GPU in the"
    " forward pass, before most of what that launches: if the model does so, PyTorch's compiler and"
    " CUDA graphs break off there, and may leave all of it. Take that out first (`.item()`, a"
    " condition on a tensor, as of the mask in `nn.TransformerEncoder` where `is_causal` is not"
    " told), then compile the model."
)
_LESS_IN_GRAPHS = (
    "Launch less: most kernels are parts of CUDA graphs already, of which each still costs the"
    " host; fuse kernels of these, capture as well what is launched beside them, or give each"
    " launch more to do with a larger batch."
)

_METHOD = (
    "At most all of this idle time, and of each kernel what does not grow with its work: 5 us, or"
    " what it takes with fewer than two blocks on a multiprocessor; at least nine tenths of what"
    " launching for free saves when the run is played again at the pace of the host without the"
    " profiler, and of this idle time, less 1 us for each kernel, and, where compiling the model is"
    " the cure, of what it reaches."
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
    host, between = _of_host(evidence), _of_device(facts, of_kernels)
    if host is not None:
        yield _claim(evidence, of_kernels, host, between)
    elif between:
        yield _device_claim(evidence, of_kernels, between)


def _of_host(evidence: Evidence) -> tuple[float, float] | None:
    """Return the shares of the run that launching for free would save; None where the host does
    other things for longer, or there is little to save."""
    facts = evidence.known_facts
    launching, other = _told(facts)
    if launching < max(LEAST_IDLE * span_ns(facts), other, idle_ns(facts, Cause.NOT_RECORDED)):
        return None
    low, high = saved_by_launching(facts)
    idle = facts.window.share(launching + other)
    high = min(high, longer_with_profiler(facts) * idle)
    times = either(facts.host_idle.launching_times, facts.host_idle.other_times)
    reached = saved_by_compiling(facts, times)
    if reached is not None and not (_is_graphs(facts) or breaks_off(facts, times)):
        low = min(low, reached)
    left = facts.window.share(GRAPH_GAP_NS * len(facts.work) * _slower(facts))
    # Of the recorded run no more than what is idle for it: idle time after waits, in which the host
    # launches as well, is theirs.
    return (
        (COVERED * max(min(low, high, idle) - left, 0.0), high)
        if high * evidence.run_ns >= LEAST_IDLE * span_ns(facts)
        else None
    )


def _fixed(evidence: Evidence) -> dict[str, float]:
    """Return the time of kernels, by name, that fewer launches of more work would save at most:
    nothing where a compiler has already made most of them."""
    facts, count = evidence.known_facts, sm_count(evidence)
    if made_by_compiler(facts.work) > MOST:
        return {}
    rows = facts.kernel_uses.rows
    took = facts.work.duration_ns[rows]
    fixed = np.minimum(took, FIXED_NS).astype(np.float64)
    if count and "kernels.grid_x" not in facts.profile.header.not_measured:
        blocks = np.ones(len(rows))
        for each in facts.profile.columns("kernels", GRID).values():
            blocks *= np.where(each[rows] > 0, each[rows], np.inf)  # not told: no few are known
        fixed = np.maximum(fixed, took * (1 - np.minimum(blocks / (FULL * count), 1.0)))
    used, place = np.unique(facts.work.name[rows], return_inverse=True)
    times_ns = np.bincount(place, fixed, len(used))
    return {
        facts.work.texts[name]: time_ns
        for name, time_ns in zip(used.tolist(), times_ns.tolist(), strict=True)
    }


def _is_graphs(facts: Facts) -> bool:
    """Tell whether most kernels are launched as parts of CUDA graphs already."""
    return bool(of_graphs(facts.work, facts.host, facts.launched).mean() > MOST)


def _launches(facts: Facts, of_kernels: Queue) -> str:
    """Return `290 kernels`, or `264 kernels and 22 CUDA graphs (of 4,807 more)`: who launches a
    graph does not launch its kernels."""
    work, launched = facts.work, facts.launched
    rows = np.flatnonzero(of_graphs(work, facts.host, launched))
    rows = rows[work.device[rows] == of_kernels.device]
    if not len(rows):
        return f"{of_kernels.kernels:,} kernels"
    calls = len(np.unique(launched.call[rows[launched.known[rows]]]))
    number = f"{calls:,} CUDA graph{'' if calls == 1 else 's'}" if calls else "CUDA graphs"
    single = of_kernels.kernels - len(rows)
    if not single:
        return f"{number} (of {len(rows):,} kernels)"
    return f"{single:,} kernel{'' if single == 1 else 's'} and {number} (of {len(rows):,} more)"


def _is_compiled(facts: Facts) -> bool:
    """Tell whether PyTorch's compiler made most of what is launched."""
    by_compiled = launched_by_compiled(facts.profile, facts.work, facts.launched)
    return max(by_compiled, made_by_compiler(facts.work)) > MOST


def _told(facts: Facts) -> tuple[float, float]:
    """Return the idle time in which the host launched, and in which it did other things; nothing
    where one gap is most of it, for a program that launches too slowly has many."""
    launching = idle_ns(facts, Cause.LAUNCHING)
    longest = [
        each.longest_of[Cause.LAUNCHING].cause_ns
        for each in facts.idle
        if Cause.LAUNCHING in each.longest_of
    ]
    if max(longest, default=0) > MOST * launching:
        return 0.0, 0.0
    return launching, idle_ns(facts, Cause.OTHER_HOST)


def _slower(facts: Facts) -> float:
    """Return how many times as long as without the profiler the run may have taken."""
    return 1 / paces(facts)[1]


def _of_device(facts: Facts, of_kernels: Queue) -> float:
    """Return the idle time between short kernels that had been launched in time, in nanoseconds."""
    if of_kernels.short_kernels < MOST * of_kernels.kernels:
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
    in_graphs = _is_graphs(facts)
    graphs, compiled = facts.repetition.can_be_graphs, not in_graphs and _is_compiled(facts)
    times = either(facts.host_idle.launching_times, facts.host_idle.other_times)
    breaks = not (graphs or in_graphs or compiled) and breaks_off(facts, times)
    paced = loader_sets_pace(facts)
    if paced:  # workers may deliver no faster, however fast the host is
        host = (0.0, host[1] if late_ns(facts) < launching else 0.0)
    fixed = {} if paced else _fixed(evidence)
    busy = facts.kernel_uses.time_ns
    # What is left of the run is the device's, and of that so much.
    high = host[1] + (1 - host[1]) * (sum(fixed.values()) / busy if busy else 0.0)
    # Two cures, and the range holds both.
    apart = (
        f" Launching for free is worth {100 * host[0]:.0f} to {100 * host[1]:.0f} % of the run;"
        " what is beyond that, only fewer launches with more work each save."
        if fixed and high > MARGIN * host[1]
        else ""
    )
    return RuleResult(
        f"The GPU is idle for {evidence.share(idle):.0%} of the run because the host takes longer"
        f" to launch its {_launches(facts, of_kernels)} than they run"
        + (f", and for {evidence.share(between_ns):.0%} between these" if between_ns else "")
        + _without_profiler(facts),
        (
            percent("gpu_idle_launching", evidence.share(launching), LEAST_IDLE),
            percent("gpu_idle_other_host", evidence.share(other)),
            *_of_kernels(of_kernels),
        ),
        (
            "Launch less: replay the step as a CUDA graph, as it always launches the same kernels,"
            " or give each launch more to do with a larger batch."
            if graphs
            else _LESS_IN_GRAPHS
            if in_graphs
            else "Launch less: have PyTorch's compiler, which made most of this, capture it as CUDA"
            " graphs (torch.compile(mode='reduce-overhead')), or give each launch more to do with a"
            " larger batch."
            if compiled
            else _READS_FIRST
            if breaks
            else "Launch less: compile the model, or give each launch more to do with a larger"
            " batch."
        )
        + apart,
        Estimate(
            host[0] * run + LEAST_REACHED * between_ns,
            high * run + between_ns,
            counts_ns=(host[0] + COUNTS * (host[1] - host[0])) * run + between_ns,
            parts={
                **{f"kernel/{name}": time_ns for name, time_ns in fixed.items()},
                "idle/launching": launching,
                "idle/other_host": other,
                **({"idle/between_kernels": between_ns} if between_ns else {}),
            },
        ),
        _METHOD,
        severity=Severity.INFO if paced and not host[1] else None,
        program_advice=""
        if graphs
        else f"{_LESS_IN_GRAPHS}{apart}"
        if in_graphs
        else "Launch less: fuse kernels, give each launch more to do, or replay what repeats as a"
        f" CUDA graph.{apart}",
        knobs=_applicable(
            facts,
            RULE.knobs
            if graphs
            else _BESIDE_GRAPHS
            if in_graphs
            else ("batch_size",)
            if breaks
            else (*(() if compiled else ("compile",)), *_OTHER_KNOBS),
        ),
    )


def _applicable(facts: Facts, knobs: tuple[str, ...]) -> tuple[str, ...]:
    """Return the knobs that can change the program: where operators are recorded, PyTorch marks
    each step of an optimizer, and who has none has none to fuse."""
    if facts.optimizer_steps.names or not facts.profile.rows("operators"):
        return knobs
    return tuple(each for each in knobs if each != "fused_optimizer")


def _without_profiler(facts: Facts) -> str:
    """Return, as the end of a sentence, how idle the device is at the time that steps took without
    the profiler; nothing where they were not timed."""
    timed, steps = facts.unprofiled_steps, facts.window.steps
    if timed is None or steps is None or not facts.window.busy or not is_timed(facts):
        return ""
    busy_ns = facts.window.busy_share * facts.window.run_ns / len(steps.steps)
    idle = max(1 - busy_ns / timed.mean_ns, 0.0)
    return f"; without the profiler it is idle for {idle:.0%} of the time in all"


def _device_claim(evidence: Evidence, of_kernels: Queue, between_ns: float) -> RuleResult:
    share = evidence.share(between_ns)
    return RuleResult(
        f"The GPU is idle for {share:.0%} of the run between kernels that had been launched in"
        f" time, {of_kernels.short_kernels / of_kernels.kernels:.0%} of which take less than 10 us",
        (percent("gpu_idle_between_kernels", share, LEAST_DEVICE_SHARE), *_of_kernels(of_kernels)),
        "Give each launch more to do: fuse the short kernels, or make batches larger.",
        Estimate(LEAST_REACHED * between_ns, between_ns, {"idle/between_kernels": between_ns}),
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
