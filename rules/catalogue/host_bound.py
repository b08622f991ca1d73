"""The GPU waits for Python or for work on the CPU."""

from __future__ import annotations

from collections.abc import Iterator

from gpuadvisor.domain.finding import Category
from gpuadvisor.domain.profile import SYSTEM_CALLS
from gpuadvisor.rules.estimates import LEAST_SAVED, kernels_come_again
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.compiled import COMPILED
from gpuadvisor.rules.facts.copies import exposed_ns
from gpuadvisor.rules.facts.host_idle import MOSTLY, OF_MESSAGES
from gpuadvisor.rules.facts.idle_causes import Cause
from gpuadvisor.rules.facts.intervals import Intervals, either, one, without
from gpuadvisor.rules.facts.kernel_families import short_name
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.launching import breaks_off, saved_by_launching
from gpuadvisor.rules.paces import LEAST_IDLE, MARGIN, idle_ns, paces, span_ns
from gpuadvisor.rules.requirements import (
    COPY_SIZES,
    HOST_RANGES,
    KERNELS,
    LOOP,
    NO_OPERATORS,
    OPERATORS,
)
from gpuadvisor.rules.requirements import either as either_of
from gpuadvisor.rules.rule import MOST, NOTICEABLE, Estimate, Rule, RuleResult, percent

_MOVE = (
    "Move this work out of the loop, to another process, or to the GPU; compile what is left of"
    " Python in the model."
)
_OUTSIDE = (
    "Move this work out of the loop, to another process, or to the GPU; {:.0%} of it is outside of"
    " forward and backward passes, where compiling the model changes nothing."
)
_MOVE_OPERATOR = "Move this work out of the loop, to another process, or to the GPU."
_READS_FIRST = (
    "Move this work out of the loop, to another process, or to the GPU. The host reads a value from"
    " the GPU in the forward pass, before most of it: if the model does so, PyTorch's compiler"
    " breaks off there. Take that out first (`.item()`, a condition on a tensor), then compile what"
    " is left of Python in the model."
)
_AND_LAUNCHING = " and that in which the host launches"
OPERATOR = "aten::"
"""Begins the names of PyTorch's operators."""
_CAPTURE = (
    "This is what PyTorch's compiler made, which launches kernel by kernel: have it capture them"
    " as CUDA graphs (torch.compile(mode='reduce-overhead')), or give each more to do."
)

_OF_PROGRAM = "Do this on the GPU, or ahead of time in other threads or processes while it works."
_UNKNOWN = (
    "Record what the CPU does then ({}); if it computes, do that on the GPU, or ahead of time."
)
_RECORD = "nsys profile {}--sample=process-tree PROGRAM"

MOST_OUTSIDE = 1 - LEAST_SAVED
"""Share of that time which may be outside of forward and backward passes for compiling the model to
be a cure: else it cannot save what the finding is worth at least."""

RULE = Rule(
    Category.LAUNCH_BOUND,
    needs=(KERNELS, LOOP, either_of((OPERATORS, HOST_RANGES), (NO_OPERATORS,)), COPY_SIZES),
    knobs=("compile", "cpu_threads"),
)


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find idle time in which the host neither launched nor waited."""
    facts = evidence.known_facts
    found, run = facts.host_idle, evidence.run_ns
    cause = Cause.OTHER_HOST if facts.host_recorded else Cause.NOT_RECORDED
    # What was done for a batch is `input_bound`'s.
    other, launching = (idle_ns(facts, each) for each in (cause, Cause.LAUNCHING))
    times, repeated = _between_steps(facts)
    lead = found.other_times.total_ns - times.total_ns
    whole = max(other - (0 if facts.loader_waits else found.preparing_ns), 0.0)
    idle = min(repeated * max(whole - lead, 0.0), whole)
    if not run or idle < LEAST_IDLE * span_ns(facts) or launching >= idle:
        return
    least, _ = _saved_without(facts, times)
    all_least, most = _saved_without(facts, found.other_times)
    least = min(repeated * least, max(all_least, least))
    copying = float(exposed_ns(facts.work, facts.stalls.rows))
    waiting = idle_ns(facts, Cause.SYNCHRONIZING) if copying else 0.0
    doing = facts.host_doing
    is_compiled = doing is not None and doing.name.startswith(COMPILED)
    outside, computes = _outside_passes(facts), not is_compiled and _computes(facts)
    breaks = not is_compiled and breaks_off(facts, found.other_times)
    moves = outside > MOST_OUTSIDE or computes or breaks
    # What launches is Python as well: who compiles or captures the model is rid of both, and who
    # moves the other work only of that.
    most = min(MARGIN * most, 1.0)
    high = most if moves and not is_compiled else max(saved_by_launching(facts)[1], most)
    high = min(high, evidence.share(whole + launching + copying + waiting))
    low = LEAST_SAVED * min(evidence.share(idle + copying), high, least)
    if high * run < LEAST_IDLE * span_ns(facts):
        return
    if not facts.profile.rows("operators"):
        calls = facts.system_calls  # most of them wait: for what, and how long, is not its work
        once = not kernels_come_again(facts) or _seldom(facts, idle, cause)
        if not once and (calls is None or calls.share <= MOST):
            yield _of_program(evidence, cause, idle, high)
        return
    yield RuleResult(
        f"The GPU is idle for {evidence.share(idle):.0%} of the run while the host does other"
        f" things than launching{_doing(facts)}{_seldom(facts, idle)}"
        + (
            f", and copies to the host for another {evidence.share(copying):.0%} in the midst of it"
            if evidence.share(copying) >= NOTICEABLE
            else ""
        ),
        (percent("gpu_idle_other_host", evidence.share(idle), LEAST_IDLE),),
        _CAPTURE
        if is_compiled
        else _OUTSIDE.format(outside)
        if outside > MOST_OUTSIDE
        else _MOVE_OPERATOR
        if computes
        else _READS_FIRST
        if breaks
        else _MOVE,
        Estimate(
            low * run,
            high * run,
            {
                "idle/other_host": idle,
                "idle/launching": launching,
                **({"copy/exposed": copying, "idle/synchronizing": waiting} if copying else {}),
            },
        ),
        f"At most this idle time{_AND_LAUNCHING * (not moves or is_compiled)}, by playing the run"
        f" again without it; at least {LEAST_SAVED:.0%} of this idle time, as the work may"
        " only become faster, and without what comes before the GPU's first work; copies in the"
        " midst of it, one tensor after the other, go with it.",
        knobs=("compile_cudagraphs", "cpu_threads")
        if is_compiled
        else ("cpu_threads",)
        if moves
        else None,
    )


def _computes(facts: Facts) -> bool:
    """Tell whether most of what else the host does is one operator that computes on the CPU: no
    compiler of the model makes that less, as it does Python between operators."""
    known = facts.host_doing
    return known is not None and known.share > MOST and known.name.startswith(OPERATOR)


def _outside_passes(facts: Facts) -> float:
    """Return the share of the time in which the host did something else, 0 to 1, that surely was
    outside of a model's forward and backward passes."""
    times = facts.host_idle.other_times
    if facts.passes is None or not times.total_ns:
        return 0.0
    return without(times, facts.passes.times).total_ns / times.total_ns


def _doing(facts: Facts) -> str:
    """Return what the host does in its own time, as the end of a sentence: what takes most of it,
    else that most of it is in no operator, else what takes more than anything else."""
    known, outside = facts.host_doing, facts.outside_operators
    if known is not None and known.share > MOST:
        return f", mostly {known.name}"
    if outside > MOST:
        where = "in Python and what that calls, or it waits"
        return f", for {outside:.0%} of that in no operator: {where}"
    return f", {known.name} for {known.share:.0%} of that" if known is not None else ""


def _of_program(evidence: Evidence, cause: Cause, idle: float, high: float) -> RuleResult:
    """Return the finding where what the CPU does is no operator: nothing tells waiting from work,
    and so what is saved at least."""
    facts, run = evidence.known_facts, evidence.run_ns
    where = _place(facts)
    is_known = bool(where or facts.profile.rows("samples"))
    doing = facts.host_doing
    passes = doing is not None and doing.passes_messages and doing.share >= MOSTLY
    does = OF_MESSAGES if passes else _OF_PROGRAM
    trace = "" if SYSTEM_CALLS in facts.profile.header.facts else "--trace=cuda,nvtx,osrt "
    return RuleResult(
        f"The GPU is idle for {evidence.share(idle):.0%} of the run while the CPU is in no call"
        f" into CUDA{where}",
        (percent("gpu_idle_other_host", evidence.share(idle), LEAST_IDLE),),
        does if is_known else _UNKNOWN.format("gpuadvisor profile SCRIPT"),
        Estimate(0.0, high * run, {f"idle/{cause.value}": idle}),
        "At most this idle time and that in which the host launches, both by playing the run again"
        " without them; at least nothing, as the CPU may wait then for what takes as long.",
        as_measured=False,
        knobs=(),
        program_advice="" if is_known else _UNKNOWN.format(_RECORD.format(trace)),
    )


def _place(facts: Facts) -> str:
    """Return what the CPU does in its own time, as the end of a sentence: a range that the program
    marked, or the function in which it was sampled; empty where nothing has much of it."""
    doing, samples = facts.host_doing, facts.cpu_samples
    if doing is not None and doing.share >= MOSTLY:
        return f", in {doing.name} for {doing.share:.0%} of it"
    most = next(iter(samples.functions if samples is not None else ()), None)
    if most is None or most.low < MOSTLY:
        return ""
    name = short_name(most.function)
    low, high = f"{100 * most.low:.0f}", f"{100 * most.high:.0f}"
    return f", in {name} in {low if low == high else f'{low} to {high}'}% of its samples"


def _seldom(facts: Facts, idle: float, cause: Cause = Cause.OTHER_HOST) -> str:
    """Return that most of that idle time may not come again, as the end of a sentence; empty where
    it does."""
    if sum(each.seldom_ns for each in facts.idle) <= MOST * idle:
        return ""
    longest = max(
        each.longest_of[cause].cause_ns for each in facts.idle if cause in each.longest_of
    )
    return (
        "; most of that is in gaps that come once or twice, the longest of"
        f" {longest / 1e6:,.3g} ms: whether more of them come is not in this recording"
    )


def _between_steps(facts: Facts) -> tuple[Intervals, float]:
    """Return the times in which the host did something else after the device's first work, and how
    many times as much all steps have of them as those after the first: whether the device would
    have been busy before its first work is not in the trace, which may begin with an empty
    queue."""
    line, times = facts.timeline, facts.host_idle.other_times
    count = facts.step_count
    if line is None or count < 2 or not len(line.rows):
        return times, 1.0
    first = int(facts.work.begin_ns[line.rows[0]])
    return without(times, one(line.begin_ns, max(first, line.begin_ns))), count / (count - 1)


def _saved_without(facts: Facts, times: Intervals) -> tuple[float, float]:
    """Return what the run saves at least and at most without what else the host does: the profiler
    only makes what calls operators longer, and so without it the rest is more of the run, or is
    hidden, as the host is ahead of the device."""
    player = facts.faster_kernels
    if player is None:
        return 0.0, 0.0
    at = paces(facts)
    least = min(player.saved_without(times, pace) for pace in at)
    most = max(player.saved_without(times, pace, waiting=True) for pace in at)
    stalls = facts.stalls
    if len(stalls.rows):  # what copies and then works is one thing, and goes as a whole
        gone = either(times, stalls.times)
        tried = [player.saved_without_copies(stalls.rows, gone, pace) for pace in paces(facts)]
        least, most = max(least, min(tried)), max(most, *tried)
    return least, most
