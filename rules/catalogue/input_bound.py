"""The model waits for the input pipeline."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.loader_supply import SLOWER_BESIDE_WORKERS
from gpuadvisor.domain.measurement import Measurement
from gpuadvisor.rules.estimates import parts, saved_shares
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.host_idle import MOSTLY, OF_MESSAGES
from gpuadvisor.rules.facts.host_waits import Host
from gpuadvisor.rules.facts.loading import Loading
from gpuadvisor.rules.facts.starting import FEWEST_STEPS
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.facts.what_if import Scenario
from gpuadvisor.rules.paces import LEAST_IDLE, bounded, late_ns, paces
from gpuadvisor.rules.requirements import (
    CPU_STEPS,
    IDLE,
    KERNELS,
    OPERATORS,
    RANGES,
    SCRIPT,
    either,
)
from gpuadvisor.rules.rule import NOTICEABLE, Estimate, Rule, RuleResult, percent

LEFT_OF_LOADING = 0.25
"""Share of the time that one process needs which is left with 4 workers: the fewest that machines
with a GPU have cores for. [own]"""
SURE_WITH_WORKERS = 0.9
"""Share that is saved at least of what goes when nothing is waited for, where there are workers
already: all of 14 cures on an H200 saved 0.96 of it and more, where steps were timed without the
profiler, and 13 of 15 more than 0.7 where they were not (`benchmarks/defects`)."""

RANDOM = frozenset(
    f"aten::{name}"
    for name in ("bernoulli_", "exponential_", "multinomial", "normal", "normal_", "rand",
                 "randint", "randn", "random_", "randperm", "uniform_")
)  # fmt: skip
"""Operators that make random numbers."""

WORKERS = "Load batches in more worker processes, or make loading a sample cheaper."
_RECORD = (
    "Record what the CPU does then (nsys profile --trace=cuda,nvtx,osrt"
    " --sample=process-tree PROGRAM); if it prepares what it copies, do that on the GPU or"
    " ahead of time, in other threads or processes."
)
KNOBS = ("dataloader_workers", "host_memory", "pin_memory", "prefetch_factor", "persistent_workers")

RULE = Rule(
    Category.INPUT_BOUND,
    needs=(either((KERNELS, IDLE), (SCRIPT,), (CPU_STEPS, RANGES)),),
    knobs=KNOBS,
    hides=("batch_size",),
)


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find idle time in which the launching thread waited for a batch, or made one."""
    profiled = not any(need.missing(evidence) for need in (KERNELS, IDLE))
    if profiled and evidence.run_ns:
        told = either((RANGES,), (OPERATORS,)).missing(evidence) is None
        results = [*(_waiting(evidence) if told else ()), *_preparing(evidence)]
        yield from results[:1]
    elif not profiled and evidence.measured is not None:
        yield from _in_script(evidence.measured)
    elif not profiled:
        yield from _on_cpu(evidence)


def _waiting(evidence: Evidence) -> Iterator[RuleResult]:
    facts = evidence.known_facts
    late, loading = late_ns(facts), facts.loading
    share = evidence.share(late)
    if share < NOTICEABLE:
        return
    least, high = saved_shares(facts, Scenario({Host.LOADING: 0.0}))
    if loading.in_process:
        low, _ = saved_shares(facts, Scenario({Host.LOADING: LEFT_OF_LOADING}))
    else:
        low = SURE_WITH_WORKERS * min(_without_burst(loading, least), 1 - LEFT_OF_LOADING)
    steady = loading.late_share
    starts = not loading.in_process and loading.waits < FEWEST_STEPS
    # More than the idle time that the trace shows: without the profiler it is a larger share.
    most_ns = steady * max(low, high) * evidence.run_ns
    yield RuleResult(
        f"The GPU is idle for {share:.0%} of the run because the script waits for its next batch"
        + (", which it loads itself" if loading.in_process else "")
        + ("; of so few batches the start of the workers may be most of it" if starts else ""),
        (
            percent("gpu_idle_waiting_for_data", share, NOTICEABLE),
            # The mean: of several workers some batches are there at once, after one that is late.
            Figure("wait_for_a_batch", round(loading.total_ns / loading.waits / 1e6, 3), "ms"),
            Figure("batches", loading.waits),
        ),
        WORKERS,
        Estimate(
            steady * low * evidence.run_ns,
            most_ns,
            parts(most_ns, {"idle/waiting_for_data": late}),
        ),
        "At most what the run played again without any waiting for batches saves, the host at the"
        " pace it may have without the profiler; at least "
        + (
            "what is saved with a quarter of it left, the share of each of 4 workers."
            if loading.in_process
            else "nine tenths of what is saved at the slower pace, or with four times as many"
            " workers, and without half of the longest wait, as batches come in bursts."
        )
        + bounded(facts),
    )


def _without_burst(loading: Loading, share: float) -> float:
    """Return the share of the run that waiting has without half of the longest wait: workers that
    start alike deliver several batches at once, so that a few steps may have one late batch more
    than their part of a long run."""
    half = loading.longest_ns / 2 / loading.late_ns if loading.late_ns else 0.0
    left = max(1 - half, 0.0) * share
    return left / (1 - share + left) if left else 0.0


def _preparing(evidence: Evidence) -> Iterator[RuleResult]:
    """Find what the host does before it copies to the device, which without a DataLoader is the
    input."""
    facts = evidence.known_facts
    found = facts.host_idle
    share = evidence.share(found.preparing_ns)
    steps = facts.step_count
    if facts.loader_waits or share < LEAST_IDLE or not found.comes_again(steps):
        return
    if facts.no_loop is not None:
        return  # most of it came once, as the making of a model does
    copies, is_told = len(found.preparing_calls), facts.host_recorded
    # Without the profiler, which makes launching longer and not this, it is more of the run.
    player, shares = facts.faster_kernels, list[float]()
    if player is not None and is_told:
        shares = [player.saved_without(found.preparing_times, pace) for pace in paces(facts)]
    saved_ns = [each * evidence.run_ns for each in shares or (share,)]
    most_ns = max(found.preparing_ns, *saved_ns)
    what, advice = _made_by(facts)
    yield RuleResult(
        f"The GPU is idle for {share:.0%} of the run {what}",
        (
            percent("gpu_idle_before_copies_to_it", share, LEAST_IDLE),
            Figure("copies_waited_for", copies),
            Figure("bytes_a_copy", round(found.preparing_bytes / copies), "bytes"),
        ),
        advice,
        Estimate(
            (1 - LEFT_OF_LOADING) * min(saved_ns) if is_told else 0.0,
            most_ns,
            parts(
                most_ns, {f"idle/{'other_host' if is_told else 'not_recorded'}": found.preparing_ns}
            ),
        ),
        "At most all of the time in which the GPU was idle before these copies, or what the run"
        " played again without it saves at the pace of the host without the profiler; at least "
        + (
            "what is saved with a quarter of it left, the share of each of 4 that prepare in turn."
            if is_told
            else "nothing, as it is not known what the CPU does then."
        )
        + (bounded(facts) if shares else ""),
        knobs=(),
        program_advice=""
        if not facts.host_recorded
        else "Prepare the data on the GPU, or ahead of time in other threads, while the GPU works"
        " on the data before.",
        calls=found.preparing_calls,
    )


def _made_by(facts: Facts) -> tuple[str, str]:
    """Return what the host does before the copies, as far as the recording tells, and what then
    helps."""
    found = facts.doing_in(facts.host_idle.preparing_times)
    if not facts.host_recorded:
        known = f"the CPU is in {found.name} for {found.share:.0%} of it, and " if found else ""
        else_ = "what else it does" if found else "what the CPU does then"
        return (
            f"before the program copies to it; {known}{else_} was not recorded",
            OF_MESSAGES if found is not None and found.share >= MOSTLY else _RECORD,
        )
    if found is None or found.share < MOSTLY:
        known = f" ({found.name} for {found.share:.0%} of it)" if found else ""
        return (
            f"while the CPU does its own work{known} before it copies to the GPU, as in preparing"
            " the data",
            "Prepare batches on the GPU, or in the worker processes of a DataLoader.",
        )
    what = f"while the CPU runs {found.name} ({found.share:.0%} of it) before copies to the GPU"
    if found.passes_messages:
        return what, OF_MESSAGES
    if found.name in RANDOM:
        return what, (
            "Make these random numbers on the GPU: give `device` to what makes them, instead of"
            " copying the result."
        )
    return what, (
        f"Do what {found.name} does on the GPU, after the copy; or prepare batches in the worker"
        " processes of a DataLoader."
    )


def _in_script(measured: Measurement) -> Iterator[RuleResult]:
    """Find how long the script waited, and how much of that its GPU did, where the harness asked.

    Where the GPU computes meanwhile, waiting for a batch may be waiting for the GPU: a dataset that
    copies to it does.
    """
    loaders, idle = measured.facts.loaders, measured.facts.idle_while_waiting
    share = measured.starved_share
    if not loaders or share < NOTICEABLE:
        return
    workers = loaders[0].num_workers
    where = f" from a DataLoader with {workers} worker{'' if workers == 1 else 's'}"
    at_most = "all of the waiting"
    if idle is not None:
        where += f", while the GPU has nothing to do in {idle:.0%} of that"
        at_most = "the waiting in which the GPU has nothing to do"
    seldom = "where loading needs the cores that compute"
    if idle is None and measured.facts.device == "cuda":
        seldom = "where the GPU works meanwhile"
    least = _surely_of(measured)
    sure = (
        "what is saved with a quarter of it left, the share of each of 4 workers, and the rest of"
        " the step a fifth longer beside these"
    )
    yield _waited(
        measured.data_wait_share,
        where,
        share,
        1e9 * measured.seconds,
        f"{at_most}; at least {sure}" if least else f"{at_most}; nothing {seldom}",
        least,
    )


def _surely_of(measured: Measurement) -> float:
    """Return the share of its time that a script saves at least with workers: of which it has none,
    so that it loads one batch after the other itself, while its GPU is known to do nothing.

    Data sets whose samples may double with more workers promise nothing, nor do workers that are
    there: these may wait for one disk.
    """
    facts, wait = measured.facts, measured.starved_share
    splits = all(each.num_workers == 0 and not each.iterable for each in facts.loaders)
    if facts.device != "cuda" or facts.idle_while_waiting is None or not splits:
        return 0.0
    left = LEFT_OF_LOADING * wait + SLOWER_BESIDE_WORKERS * (1 - wait)
    return max(1 - left, 0.0)


def _on_cpu(evidence: Evidence) -> Iterator[RuleResult]:
    steps = evidence.facts.steps if evidence.facts is not None else None
    if steps is not None and steps.data_wait_share >= NOTICEABLE:
        share, run = steps.data_wait_share, evidence.run_ns
        bound = "all of the waiting; nothing where loading needs the cores that compute"
        yield _waited(share, " from a DataLoader", share, run, bound)


def _waited(
    share: float, where: str, most: float, total_ns: float, bound: str, least: float = 0.0
) -> RuleResult:
    """Return the finding of a script that waits for a share of its time, of which `least` goes
    surely and `most` may."""
    return RuleResult(
        f"{share:.0%} of the time goes into waiting for batches{where}",
        (percent("data_wait", share, NOTICEABLE),),
        WORKERS,
        Estimate(least * total_ns, most * total_ns, {}, total_ns),
        f"At most {bound}.",
    )
