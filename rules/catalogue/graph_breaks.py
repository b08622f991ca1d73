"""Compiled code is cut into several graphs, or compiled again while it runs."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.idle_causes import Cause
from gpuadvisor.rules.facts.intervals import covered_ns, union
from gpuadvisor.rules.facts.steps import Steps
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.paces import idle_ns, span_ns
from gpuadvisor.rules.requirements import IDLE, KERNELS, OPERATORS, STEPS
from gpuadvisor.rules.rule import NOTICEABLE, Estimate, Rule, RuleResult, percent

REGION = re.compile(r"Torch-Compiled Region: (\d+)/(\d+)")
"""How TorchDynamo marks what it compiled: the number of the code, and of its versions."""
COMPILING = "entire_frame_compile"
"""How it marks compiling (torch/_dynamo/utils.py)."""
LEAST_SAVED, MOST_SAVED = 0.1, 0.6
"""Least and largest share of the idle time while the host launches that is saved. Each region costs
guards, a lookup and its launches: one region of all saves the parts between them. [own]"""

RULE = Rule(Category.LAUNCH_BOUND, needs=(KERNELS, IDLE, OPERATORS, STEPS), knobs=("compile",))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Count compiled regions a step, and compilations after the first step."""
    facts = evidence.known_facts
    steps = facts.steps
    assert steps is not None  # STEPS
    if not evidence.run_ns:
        return
    compiling = _compiling(facts, steps)
    if compiling is not None:
        yield _recompiles(evidence, *compiling)
        return
    regions, versions = _regions(facts)
    idle = idle_ns(facts, Cause.LAUNCHING, Cause.OTHER_HOST)
    if round(regions / len(steps.steps)) < 2 or versions < 2:
        return
    if idle < NOTICEABLE * span_ns(facts):
        return
    yield RuleResult(
        f"A step runs {regions / len(steps.steps):.0f} compiled regions of {versions} pieces of"
        " code instead of one: the graph breaks between them",
        (
            Figure("compiled_regions_a_step", round(regions / len(steps.steps), 1), "", 2),
            percent("gpu_idle_launching", evidence.share(idle), NOTICEABLE),
        ),
        "Find the breaks with TORCH_LOGS=graph_breaks and remove them (print, .item(), code that"
        " depends on values), or compile with fullgraph=True to be told.",
        Estimate(LEAST_SAVED * idle, MOST_SAVED * idle, {"idle/launching": idle}),
        "At most six tenths of the idle time in which the host launched or ran Python, by our own"
        " choice: what stays is what one region launches.",
    )


def _recompiles(evidence: Evidence, count: int, took_ns: float, idle: float) -> RuleResult:
    return RuleResult(
        f"TorchDynamo compiled {count} times after the first step, and the GPU was idle for"
        f" {evidence.share(idle):.0%} of the run meanwhile",
        (
            Figure("compilations_after_first_step", count, "", 1),
            Figure("time_compiling", round(took_ns / 1e6, 3), "ms"),
        ),
        "Find the reasons with TORCH_LOGS=recompiles: mark sizes that change as dynamic, or pad"
        " inputs to a few sizes.",
        Estimate(0.7 * idle, idle, {"idle/other_host": idle}),
        "At most all of the idle time while code was compiled; less where new sizes keep coming.",
    )


def _regions(facts: Facts) -> tuple[int, int]:
    """Return how many compiled regions ran, and of how many pieces of code."""
    ran, texts = facts.launching, facts.profile.header.texts
    numbers = {
        name: found[1] for name in _used(facts) if (found := REGION.match(texts[name])) is not None
    }
    count = int(np.isin(ran.name, list(numbers)).sum()) if numbers else 0
    return count, len(set(numbers.values()))


def _used(facts: Facts) -> list[int]:
    """Return the numbers of all names of operators."""
    used: list[int] = np.flatnonzero(np.bincount(facts.launching.name)).tolist()
    return used


def _compiling(facts: Facts, steps: Steps) -> tuple[int, float, float] | None:
    """Return compilations after the first step: how many, how long, and how long the GPU was idle
    in them; None where that is less than what matters."""
    ran, texts, line = facts.launching, facts.profile.header.texts, facts.timeline
    wanted = [name for name in _used(facts) if texts[name] == COMPILING]
    if len(steps.steps) < 2 or not wanted or line is None:
        return None
    late = np.isin(ran.name, wanted) & (ran.begin_ns >= steps.steps[1].begin_ns)
    times = union(ran.begin_ns[late], ran.end_ns[late])
    if not len(times):
        return None
    busy = facts.work.intervals(line.rows)
    worked = int(covered_ns(busy, times.begin_ns, times.end_ns).sum())
    idle = float(times.total_ns - worked)
    if idle < NOTICEABLE * span_ns(facts):
        return None
    return int(late.sum()), float(times.total_ns), idle
