"""Memory-bound operators run one by one, each through memory, where one fused kernel could do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from gpuadvisor.domain.finding import Category, Figure
from gpuadvisor.rules.estimates import LEAST_SAVED, PLAYED, RowGain, launching, row_saving
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.compiled import made_by_compiler
from gpuadvisor.rules.facts.reordered import reordered
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.facts.unfused import Chain
from gpuadvisor.rules.requirements import LAUNCHES
from gpuadvisor.rules.rule import NOTICEABLE, Rule, RuleResult, percent

LEAST_SHARE = 0.1
"""Least share of the kernel time, in chains of three kernels and more. [own]"""

RULE = Rule(Category.FUSION, needs=(LAUNCHES,), knobs=("compile", "compile_max_autotune"))


def check(evidence: Evidence) -> Iterator[RuleResult]:
    """Find chains; those of optimizers, of attention and of images in two orders are other rules'
    savings."""
    facts = evidence.known_facts
    total = facts.kernel_uses.time_ns
    # The kernels of an optimizer's step are of different parameters, one beside the other.
    found = [each for each in facts.chains if not each.in_optimizer]
    share = sum(each.time_ns for each in found) / total if total else 0.0
    if share < LEAST_SHARE:
        return
    beside = reordered(facts.kernel_uses, facts.kernel_uses.of("layout"))
    images = [each.rows for each in beside.copies + beside.others]
    others = frozenset(np.concatenate((facts.attention.between, *images)).tolist())
    fused = [each for each in found if not (others and others.intersection(each.rows.tolist()))]
    gains = [
        RowGain(each.rows, each.time_ns, LEAST_SAVED * each.spared_share, each.most_spared_share)
        for each in fused
    ]
    longest = max(len(each.rows) for each in found)
    yield RuleResult(
        f"{share:.0%} of the GPU's kernel time goes into {_chains(found)}"
        f" (up to {longest:,} in a row), each of which reads and writes memory",
        (
            percent("elementwise_chains", share, LEAST_SHARE),
            Figure("longest_chain", longest, "kernels", 3),
        ),
        f"{_compile(facts)}, or write these steps as one kernel.",
        row_saving(
            facts,
            gains,
            launching(facts, [each.rows for each in fused if each.is_elementwise]),
            (0.0, 1.0),
        ),
        "The tensors that pass from one kernel of a chain to the next need not pass through memory;"
        f" at least {LEAST_SAVED:.0%} of them; {PLAYED}, and at most without the host's time"
        " between their launches.",
    )


def _compile(facts: Facts) -> str:
    """Return what of the program is left to compile."""
    share = made_by_compiler(facts.work, by_time=True)
    if share < NOTICEABLE:
        return "Compile the model"
    return (
        f"Compile what is not compiled yet (PyTorch's compiler made {share:.0%} of the kernel time"
        " here)"
    )


def _chains(found: Sequence[Chain]) -> str:
    """Return what the chains are of, in words."""
    kinds = "elementwise kernels"
    if not all(each.is_elementwise for each in found):
        kinds = "kernels that normalize, activate, add or pool"
    summed = ", some of which end in a sum" if any(each.reduces for each in found) else ""
    return f"{len(found):,} chain{'s' * (len(found) != 1)} of {kinds}{summed}"
