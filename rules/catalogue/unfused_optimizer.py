"""The optimizer updates parameter by parameter, in many small kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from gpuadvisor.domain.finding import RUN, Category, Figure, Scope, ScopeKind
from gpuadvisor.rules.estimates import PLAYED, RowGain, row_saving
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.intervals import covered_ns
from gpuadvisor.rules.facts.kernel_families import kind_of
from gpuadvisor.rules.requirements import LAUNCHES, RANGES
from gpuadvisor.rules.rule import NOTICEABLE, Rule, RuleResult, percent

LEAST_KERNELS = 30
"""Fewest kernels in a step of the optimizer: a fused one has as many as it has groups of tensors.
[own]"""
FUSED = re.compile(r"Fused|AdamFunctor|SgdFunctor|LambFunctor", re.I)
"""Parts of the names of kernels that do all of an update at once: PyTorch's and Apex'."""
SINGLE = ((0.8, 0.97), (0.05, 0.7))
"""Share of the host's time in the step, and of the kernels': what a fused update saves, at least
and at most. Adam in single operations moves 18 tensors of a parameter's size through memory, 21
with weight decay, and fused 7; SGD with momentum 11 and 5. What is small stays in the cache: on an
H200 four programs with AdamW of bfloat16 saved 0.06 to 0.27 of the kernels' time. [own]"""
SINGLE_OF_FEW = ((0.8, 0.97), (0.0, 0.4))
"""Shares of the time of host and kernels that a fused update saves where updates are of at most two
kinds of kernels: SGD without momentum moves as much fused."""
FEW = 2
FOREACH = ((0.0, 0.4), (0.0, 0.6))
"""Shares of the time of host and kernels that a fused update saves where one kernel takes many
parameters already. ResNet-50 gained 3.7 % of a step on an H100, and nothing on an H200."""
HAVE_FUSED = ("Adam", "AdamW", "SGD")
"""Optimizers of torch with a fused update on a GPU; a class of the user's own has none."""
AT_ONCE = ("LBFGS",)
"""Optimizers of torch that work on one vector of all parameters already, in many iterations a
step."""

RULE = Rule(
    Category.OPTIMIZER,
    needs=(LAUNCHES, RANGES),
    knobs=("fused_optimizer",),
    hides=("launch_bound",),
)


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find steps of optimizers with many kernels."""
    facts = evidence.known_facts
    steps, work = facts.optimizer_steps, facts.work
    if not steps.count or not evidence.run_ns:
        return
    name = steps.names[0].removeprefix("Optimizer.step#").removesuffix(".step")
    if name in AT_ONCE:
        return
    kernels = len(steps.rows) / steps.count
    times = work.kernel_times_ns(steps.rows)
    time = sum(times.values())
    fused = any(FUSED.search(each) for each in times)
    begin, end = (np.array([each], np.int64) for each in facts.window.span)
    host_share = evidence.share(int(covered_ns(steps.times, begin, end).sum()))
    share = time / facts.kernel_uses.time_ns if facts.kernel_uses.time_ns else 0.0
    if kernels < LEAST_KERNELS or fused or max(host_share, share) < NOTICEABLE:
        return
    host, device = _shares(times)
    saving = row_saving(facts, [RowGain(steps.rows, time, *device)], steps.times, host)
    idle = max((each.idle_ns for each in facts.idle), default=0)
    launching = {"idle/launching": min(host[1] * steps.times.total_ns, idle)}
    yield RuleResult(
        f"{name} launches {kernels:,.0f} kernels in each of its steps, in which the host spends"
        f" {host_share:.0%} of the run",
        (
            Figure("optimizer_kernels_a_step", round(kernels), "", LEAST_KERNELS),
            percent("host_time_in_optimizer", host_share, NOTICEABLE),
            percent("optimizer_kernel_time", share, NOTICEABLE),
        ),
        f"Construct {name} with `fused=True`."
        if name in HAVE_FUSED
        else f"Update all parameters of {name} at once (`torch._foreach_*`), or use an optimizer of"
        f" torch with `fused=True` ({', '.join(HAVE_FUSED)}).",
        replace(saving, parts={**saving.parts, **launching}),
        "What a fused update leaves of the host's time in the optimizer's steps, and of their"
        f" kernels' time; {PLAYED}.",
        knobs=None if name in HAVE_FUSED else (),
        scope=RUN if 2 * saving.high_ns > idle else Scope(ScopeKind.OPERATOR, steps.names[0]),
    )


def _shares(times: Mapping[str, int]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return what a fused update saves of the host's and of the kernels' time."""
    together = sum(time for name, time in times.items() if kind_of(name).family == "optimizer")
    if 2 * together > sum(times.values()):
        return FOREACH
    return SINGLE if len(times) > FEW else SINGLE_OF_FEW
