"""Every step launches the same short kernels one by one, which a CUDA graph would do at once."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.launching import COVERED, GRAPH_GAP_NS, saved_by_compiling, saved_by_launching
from gpuadvisor.rules.paces import LEAST_IDLE, paces, queue, span_ns
from gpuadvisor.rules.requirements import KERNELS, LOOP
from gpuadvisor.rules.rule import MOST, Estimate, Rule, RuleResult, percent

RULE = Rule(Category.LAUNCH_BOUND, needs=(KERNELS, LOOP), knobs=("compile_cudagraphs",))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find steps that are alike, do not wait for the device, and leave it idle."""
    facts = evidence.known_facts
    launching, of_kernels = facts.host_idle.launching_ns, queue(facts)
    if of_kernels is None or launching < LEAST_IDLE * span_ns(facts) or not evidence.run_ns:
        return
    steps = facts.repetition
    short = of_kernels.short_kernels / of_kernels.kernels
    if short < MOST:
        return
    if not steps.can_be_graphs:
        return
    low, high = saved_by_launching(facts)
    high = min(high, evidence.share(launching))
    captured = saved_by_compiling(facts, facts.host_idle.launching_times)
    low = min(low, high, *(() if captured is None else (captured,)))
    left = evidence.share(GRAPH_GAP_NS * of_kernels.kernels / paces(facts)[1])
    count = round(steps.kernels_a_step)
    what = f"{count:,} kernels, {short:.0%} of them"
    if count == 1:
        what = f"kernel, {short:.0%} of the times"
    yield RuleResult(
        f"Each step launches the same {what} shorter than 10 us, and does not wait in between: a"
        " CUDA graph can replay it",
        (
            Figure("kernels_a_step", count),
            percent("kernels_below_10_us", short, MOST),
            percent("gpu_idle_launching", evidence.share(launching), LEAST_IDLE),
        ),
        "Capture the step: torch.compile(mode='reduce-overhead'), or"
        " torch.cuda.make_graphed_callables.",
        Estimate(
            COVERED * max(low - left, 0.0) * evidence.run_ns,
            high * evidence.run_ns,
            {"idle/launching": float(launching)},
        ),
        "At most all of the idle time in which the host launched; at least nine tenths of what"
        " launching for free saves when the run is played again, less 1 us for each kernel, and"
        " where the trace tells forward and backward passes, in these only, less eight launches for"
        " each, which calling what was captured takes.",
        severity=Severity.NOTICE,
        program_advice="Capture the step once (cudaStreamBeginCapture, cudaGraphInstantiate) and"
        " launch the graph.",
    )
