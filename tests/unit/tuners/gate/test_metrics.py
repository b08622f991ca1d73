"""What a gate's metrics say of runs: memory, waiting, counts and losses."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuadvisor.domain.gate import GateRun, GateVerdict
from gpuadvisor.domain.knobs import AppliedKnob
from gpuadvisor.domain.measurement import StepWindow, Trace
from gpuadvisor.domain.study import Trial, TrialState
from gpuadvisor.tuners.gate.metric import Evidence
from gpuadvisor.tuners.gate.metrics import load_metrics
from gpuadvisor.tuners.gate.metrics.times import time_of
from tests.simulation import measurement

FIRST = (True, False, False, True)


def made_run(side, **changes):
    measured = measurement(changes.pop("ms", [50.0] * 8), **changes)
    return GateRun(side, Trial(0, {}, "proof", TrialState.COMPLETE, measurement=measured))


def judged(name, base, head):
    """What runs with these figures say of a metric; the first two of the base are in no pair."""
    known, old = [[made_run("base", **each) for each in part] for part in (base[:2], base[2:])]
    pairs = zip(old, [made_run("head", **each) for each in head], FIRST * 6, strict=False)
    return load_metrics()[name].compare(Evidence(known, list(pairs)), 0.1)


@pytest.mark.parametrize(
    ("base_gib", "more_mib", "verdict"),
    [
        (0.1, 40, GateVerdict.PASS),
        (0.1, 200, GateVerdict.FAIL),
        (40, 100, GateVerdict.PASS),
        (40, 1000, GateVerdict.FAIL),
    ],
)
def test_memory(base_gib, more_mib, verdict):
    base = base_gib * 2**30
    found = judged(
        "peak_memory",
        [{"peak_memory_bytes": base}] * 6,
        [{"peak_memory_bytes": base + more_mib * 2**20}] * 4,
    )
    assert found.verdict is verdict


def test_a_stall_moves_no_time_but_waiting_for_data_does():
    stalled = measurement([50.0] * 7 + [500.0])
    assert time_of(stalled, by_mean=False, by_step=True) == 50.0
    assert time_of(stalled, by_mean=True, by_step=True) == pytest.approx(850 / 8)


@pytest.mark.parametrize(
    ("name", "base", "head", "verdict"),
    [
        ("graph_breaks", [{"a": 1}] * 6, [{"a": 1}] * 4, "pass"),
        ("graph_breaks", [{"a": 1}] * 6, [{"a": 1, "print": 1}] * 4, "fail"),
        ("graph_breaks", [{}] * 6, [{"print": 1}] * 4, "fail"),
        ("graph_breaks", [{"a": 2}] * 6, [{"a": 1}] * 4, "pass"),
        # Runs of the base do not count the same, so that four pairs say nothing.
        ("recompilations", [{"f": n % 2} for n in range(6)], [{"f": 3}] * 4, "inconclusive"),
        ("recompilations", [{"f": n % 2} for n in range(8)], [{"f": 3}] * 6, "fail"),
        ("recompilations", [{"f": n % 2} for n in range(8)], [{"f": 1}] * 6, "pass"),
    ],
)
def test_what_is_counted(name, base, head, verdict):
    sides = [
        [{"counts": {name: {k: (n,) for k, n in each.items()}}, "compiles": 2} for each in side]
        for side in (base, head)
    ]
    found = judged(name, *sides)
    assert found.verdict == verdict
    assert ("+1 print" in found.detail) is ("print" in head[0])
    assert load_metrics()[name].lacks(
        Evidence([made_run("base"), made_run("base", compiles=1)], [])
    )


STEPS = 5
"""Steps of a run that are counted."""


def counted(kind, base, head, same_steps=False):
    """What runs before the pairs say that counted so many in each of their steps, by name."""
    runs = [
        [made_run(side, counts={kind: each}) for each in runs]
        for side, runs in (("base", base), ("head", head))
    ]
    metric = load_metrics()[kind]
    evidence = Evidence(runs[0][1:], [], first=[runs[0][0], *runs[1]], same_steps=same_steps)
    assert not metric.lacks(evidence)
    return metric.compare(evidence, 0.1)


def windows(pattern, starts):
    """Runs of a script whose steps repeat a pattern of counts, looked at from these steps on."""
    return [
        {"f": tuple(pattern[(start + n) % len(pattern)] for n in range(STEPS))} for start in starts
    ]


PATTERN = st.lists(st.integers(1, 10_000), min_size=1, max_size=STEPS)
STARTS = st.lists(st.integers(0, 1000), min_size=3, max_size=3)


@pytest.mark.parametrize("kind", ["kernels", "copies", "operators"])
@settings(max_examples=100, deadline=None)
@given(PATTERN, STARTS, st.integers(0, 1000))
def test_what_repeats_within_some_steps_never_fails(kind, pattern, starts, start):
    found = counted(kind, windows(pattern, starts), windows(pattern, [start]))
    assert (found.verdict, found.exact) == (GateVerdict.PASS, True)


@settings(max_examples=100, deadline=None)
@given(PATTERN, st.integers(0, STEPS - 1), st.integers(1, 3), st.integers(0, 1000))
def test_in_the_same_steps_one_more_in_any_of_them_fails(pattern, odd, more, start):
    """It may be as many as a step of the base that prints the loss has."""
    (base,) = windows([each + more * (n == 0) for n, each in enumerate(pattern)], [start])
    head = {**base, "relu": tuple(more * (n == odd) for n in range(STEPS))}
    found = counted("operators", [base] * 4, [head] * 3, same_steps=True)
    assert found.verdict is GateVerdict.FAIL
    assert found.detail == f"+{more / STEPS:g} relu"
    assert counted("operators", [base] * 3, [base], same_steps=True).verdict is GateVerdict.PASS


@pytest.mark.parametrize("heads", [1, 2, 3])
@pytest.mark.parametrize("bases", [3, 4])
def test_a_count_that_looks_worse_fails_only_if_it_is_counted_again(bases, heads):
    base, head = ({"f": (n,) * STEPS} for n in (7, 8))
    found = counted("kernels", [base] * bases, [head] * heads)
    fails = (bases, heads) == (4, 3)
    assert found.verdict is (GateVerdict.FAIL if fails else GateVerdict.INCONCLUSIVE)
    assert found.exact


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 3), st.sets(st.integers(0, 4), max_size=1), STARTS)
def test_one_more_in_each_step_always_fails(usual, more, odd, starts):
    """Also where a step now and then does more, such as one that prints the loss."""
    steps = [usual + 7 * (n in odd) for n in range(STEPS)]
    base = windows(steps, starts)
    head = {"f": base[0]["f"], "relu": (more,) * STEPS}
    found = counted("kernels", [*base, base[0]], [head] * 3)
    assert (found.verdict, found.detail) == (GateVerdict.FAIL, f"+{more} relu")
    better = counted("kernels", [head] * 3, [base[0]])
    assert (better.verdict, better.detail) == (GateVerdict.PASS, "")


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.lists(st.integers(1, 1000), min_size=STEPS, max_size=STEPS), min_size=4, max_size=16
    )
)
def test_counts_without_a_pattern_fail_only_beyond_the_tolerance(runs):
    runs = [{"f": tuple(each)} for each in runs]
    base, head = runs[:-1], runs[-1:] * 3
    found = counted("kernels", base, head)
    if not found.exact or len(base) == 3:
        assert found.verdict is not GateVerdict.FAIL  # one run of the head says too little
    elif found.verdict is GateVerdict.FAIL:
        assert not set(head[0]["f"]) & {n for each in base for n in each["f"]}


def test_steps_that_could_not_be_counted():
    refused = AppliedKnob("profile", "refused", "the script uses torch.profiler itself")
    runs = [made_run("base", counts={"kernels": {"f": (1,)}})] * 3
    for metric in (load_metrics()[name] for name in ("kernels", "operators")):
        other = made_run("head", applied=(refused,))
        assert metric.lacks(Evidence(runs[1:], [], first=[runs[0], other])) == refused.detail
    none = load_metrics()["copies"].lacks(Evidence(runs[1:], [], first=[runs[0]]))
    assert none == "torch's profiler saw no copy of a GPU"


@pytest.mark.parametrize(("mib", "verdict"), [(100, "pass"), (101, "pass"), (102, "fail")])
def test_a_percent_more_memory_of_a_step_is_none(mib, verdict):
    base, head = ({"host": (size << 20,) * STEPS} for size in (100, mib))
    found = counted("allocated_bytes", [base] * 4, [head] * 3)
    assert (found.verdict, found.detail) == (verdict, "")


@pytest.mark.parametrize(
    ("head", "verdict"), [(1.0, "pass"), (1.0005, "pass"), (1.5, "fail"), (float("nan"), "fail")]
)
def test_losses(head, verdict):
    base = {"trace": Trace((3.0, 2.0, 1.0), last_loss=1.0)}
    new = {"trace": Trace((3.0 * head, 2.0 * head, head), last_loss=head)}
    assert judged("losses", [base] * 6, [new] * 4).verdict == verdict
    assert load_metrics()["losses"].lacks(Evidence([made_run("base")] * 2, []))


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "pass"), (1.2, "fail")])
def test_figures_of_runs(factor, verdict):
    steps, windows = (50.0,) * 200, (StepWindow(10, 0.5, energy_j=30.0),)
    base = {"step_ms": steps, "windows": windows, "startup_s": 20.0}
    head = {
        "step_ms": tuple(ms * factor for ms in steps),
        "windows": (StepWindow(10, 0.5, energy_j=30.0 * factor),),
        "startup_s": 20.0 * factor,
    }
    for name in ("p95", "energy", "startup"):
        assert judged(name, [base] * 6, [head] * 4).verdict == verdict


def test_rare_stalls_move_the_mean_alone():
    usual = (StepWindow(10, 0.5),) * 8
    base, head = {"windows": usual}, {"windows": (*usual[1:], StepWindow(10, 2.5))}
    assert judged("step_time", [base] * 8, [head] * 6).verdict == "pass"
    found = judged("mean_step_time", [base] * 8, [head] * 6)
    assert (found.verdict, found.role) == ("fail", "reported")
    assert found.ratio == pytest.approx(1.5)
