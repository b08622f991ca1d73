"""Kernels with one fault each, on an H100 and an H200, are told by their first finding."""

import math
from dataclasses import replace
from functools import cache
from statistics import mean, median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuadvisor.domain.finding import Category
from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.ncu_kernels import KernelCounters
from tests.rules.measured_kernels import PUBLISHED, estimates, findings_of, profiled, published

PLANTED = "h100_planted.raw.csv.gz"
LADDER = "a10g_gemm_esmm_b.raw.csv.gz"
FEW = "h100_kernels.raw.csv.gz"
"""Without the tables of Nsight Compute's full set."""
FULL = "h200_kernels.raw.csv.gz"
"""What `profile --ncu` collects."""
IN_BOTH = {
    "field_of_structures": Category.COALESCING,
    "transpose_rows_to_columns": Category.COALESCING,
    "column_sums<0>": Category.BANK_CONFLICT,
    "work_of_blocks": Category.TAIL,
    "one_long_block": Category.TAIL,
    "sum_loop": Category.SMALL_GRID,
    "branch_by_thread": Category.DIVERGENCE,
    "histogram_in_local": Category.LOCAL_MEMORY,
    "sum_by_atomics": Category.ATOMICS,
    "exponential<double>": Category.PRECISION,
}
FIRST = {
    PLANTED: {
        "uncoalesced_strided_load": Category.COALESCING,
        "bank_conflict_transpose": Category.BANK_CONFLICT,
        "smem_limited": Category.OCCUPANCY,
        "tiny_grid": Category.SMALL_GRID,
        "divergent": Category.DIVERGENCE,
        "spill_local": Category.LOCAL_MEMORY,
        # Labelled as without reuse in shared memory or bound by the L1 cache: reuse comes first,
        # and tensor cores need another precision too.
        "naive_matmul_fp32": Category.COMPUTE,
    },
    FEW: {**IN_BOTH, "gather_with_registers": Category.OCCUPANCY},
    FULL: {
        **IN_BOTH,
        "sum_with_registers": Category.OCCUPANCY,
        "sum_with_shared": Category.OCCUPANCY,
        "sum_plain": Category.OCCUPANCY,
        "follow<1>": Category.LATENCY,
        "product_by_threads": Category.COMPUTE,
        "invert<unsigned char>": Category.DRAM_BANDWIDTH,
    },
}
NOTICED = (FEW, "work_of_blocks")
"""Worth too little for a warning, with what was counted of it."""
HEALTHY = (
    (PLANTED, "healthy_copy"),
    (FEW, "invert"),
    (FEW, "transpose_tiles<1>"),
    (FULL, "invert<uint4>"),
    (FULL, "transpose_tiles<1>"),
    (LADDER, "ampere_sgemm"),
    ("a10g_gemm_esmm_a.raw.csv.gz", "cutlass"),
    (None, "report_v6_1d_1_per_thread"),
    (None, "report_v8_1d_4_per_thread_stripped"),
    (None, "transposeSmemPad"),
    (None, "copyGmem"),
    (None, "vec_add"),
    (None, "dot_prod"),
    (None, "rms_norm_matrix_kernel_float4"),
)
FEW_METRICS = 400
"""Of some 2,000: those that no rule looks at are left out when metrics are taken away."""


def evidence_of(file, name):
    return of_report(name) if file is None else profiled(file)


def of_report(name):
    if name not in published():
        pytest.skip(f"{PUBLISHED} names no file with this kernel")
    return published()[name]


def severe(findings):
    return [each for each in findings if each.severity.rank >= Severity.WARNING.rank]


@pytest.mark.parametrize(
    ("file", "name", "category"),
    [(file, name, each) for file, kernels in FIRST.items() for name, each in kernels.items()],
)
def test_the_first_finding_is_what_was_planted(file, name, category):
    found = findings_of(profiled(file), name)
    assert (found[0].category, found[0].hidden_by) == (category, None)
    assert (file, name) == NOTICED or found[0].severity.rank >= Severity.WARNING.rank
    assert len(severe(found)) <= 3


@pytest.mark.parametrize(("file", "name"), HEALTHY)
def test_a_healthy_kernel_gets_no_warning(file, name):
    assert severe(findings_of(evidence_of(file, name), name)) == []


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("naiveGmem", Category.COALESCING),
        ("dot_prod_naive", Category.ATOMICS),
        ("report_v4_8_per_thread", Category.COALESCING),
    ],
)
def test_published_kernels_are_told_too(name, category):
    assert findings_of(of_report(name), name)[0].category is category


def test_a_ladder_with_few_metrics_is_told():
    said = {
        name: findings_of(profiled(LADDER), name)[0].rule
        for name in ("basic", "gmem_coalesce", "smem_blocking", "warptiling")
    }
    assert said == {
        "basic": "uncoalesced_loads",
        "gmem_coalesce": "cache_bound",
        "smem_blocking": "cache_bound",
        "warptiling": "small_grid",
    }


def test_estimates_are_honest():
    """As the project promises: 8 in 10 inside, 30 points wide, 5 points off where memory limits."""
    found = list(estimates())
    assert sum(each.inside for each in found) >= 0.8 * len(found)
    assert median(each.estimate.width for each in found) <= 30
    assert mean(each.error for each in found if each.memory_bound) <= 5


class Watched(dict):
    """Metrics that remember which of them were asked for."""

    def __init__(self, metrics):
        super().__init__(metrics)
        self.asked = set()

    def get(self, name, default=None):
        self.asked.add(name)
        return super().get(name, default)


def with_metrics(evidence, metrics_of):
    """Return the evidence with other metrics of its kernels."""
    changed = Evidence(facts=evidence.facts)
    kernels = tuple(replace(each, metrics=metrics_of(each)) for each in evidence.kernel_counters)
    changed.__dict__["kernel_counters"] = kernels  # as if a profile had them
    return changed


@cache
def watched():
    """Return the planted kernels with the metrics that rules look at."""
    evidence = with_metrics(profiled(PLANTED), lambda kernel: Watched(kernel.metrics))
    diagnose(evidence)
    asked = set().union(*(kernel.metrics.asked for kernel in evidence.kernel_counters))
    assert len(asked) < FEW_METRICS
    return with_metrics(
        evidence,
        lambda kernel: {name: kernel.metrics[name] for name in asked if name in kernel.metrics},
    )


def said(evidence):
    diagnosis = diagnose(evidence)
    assert diagnosis.failed == ()
    return {(each.rule, each.scope) for each in diagnosis.findings}


def names():
    return sorted({name for kernel in watched().kernel_counters for name in kernel.metrics})


def test_no_metric_less_makes_a_new_finding():
    before = said(watched())
    for gone in names():
        less = with_metrics(watched(), lambda kernel: without(kernel, {gone}))  # noqa: B023
        assert said(less) <= before, gone


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_fewer_metrics_make_no_new_finding(data):
    kept = data.draw(st.sets(st.sampled_from(names())))
    gone = set(names()) - kept
    less = with_metrics(watched(), lambda kernel: without(kernel, gone))
    assert said(less) <= said(watched())


def without(kernel: KernelCounters, gone):
    return {name: value for name, value in kernel.metrics.items() if name not in gone}


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_strange_values_do_no_harm(data):
    strange = st.sampled_from(
        [math.nan, math.inf, 0.0, -1.0, 1e-300, 1e-9, 101.0, 1e15, 1e300, -1e300]
    )
    values = data.draw(st.dictionaries(st.sampled_from(names()), strange))
    changed = with_metrics(watched(), lambda kernel: {**kernel.metrics, **values})
    for finding in diagnose(changed).findings:
        worth = finding.improvement_pct
        assert worth is None or 0 <= worth.low <= worth.high <= 100
    assert diagnose(changed).failed == ()


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 1000))
def test_the_order_of_kernels_does_not_matter(seed):
    evidence = profiled(PLANTED)
    kernels = list(watched().kernel_counters)
    changed = Evidence(facts=evidence.facts)
    changed.__dict__["kernel_counters"] = tuple(kernels[seed % 8 :] + kernels[: seed % 8])
    assert diagnose(changed).findings == diagnose(watched()).findings
