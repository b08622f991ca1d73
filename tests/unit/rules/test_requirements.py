"""What rules need: what was recorded and did not happen is not missing."""

from dataclasses import replace

import pytest

from gpuadvisor.domain.profile import FAILED_CALLS, CallKind, FailedCalls, failed_calls_told
from gpuadvisor.domain.telemetry import State, Unavailable
from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.evidence import Evidence
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.registry import load_rules
from gpuadvisor.rules.requirements import NOT_ON_THIS_GPU, WITH_DAEMON, WITH_MORE_SECONDS
from tests.profiles import Made
from tests.rules.building import H100
from tests.rules.machines import machine
from tests.rules.programs import Program

COPY_RULES = {"exposed_copies", "managed_memory", "many_small_copies", "pageable_copies"}
RANK_RULES = {"straggler_rank", "uneven_ranks"}
ALLREDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def missing(evidence):
    return {each.rule: each for each in diagnose(evidence, load_rules()).not_measured}


def launching(kernel="gemm", copying=False, failed=0, **header):
    """Many launches of a kernel, and perhaps calls that copy, of which some failed; no copy was
    recorded."""
    made = Made()
    for number in range(200):
        made.launched(kernel, (100.0 * number, 5), (100.0 * number + 8, 50))
        if copying:
            made.call("cudaMemcpy", (100.0 * number + 60, 20), CallKind.COPY)
    if failed:
        header["facts"] = {FAILED_CALLS: failed_calls_told([FailedCalls("cudaMemcpy", 1, failed)])}
    return Evidence(facts=Facts(made.profile(**header)))


def test_rules_of_copies_look_where_none_ran():
    assert not COPY_RULES & set(missing(launching()))


@pytest.mark.parametrize(
    ("evidence", "why"),
    [
        (launching(copying=True), "calls that copy were recorded, but not the copies"),
        (launching(not_measured={"copies": "copies were left out"}), "copies were left out"),
    ],
)
def test_rules_of_copies_cannot_look_where_they_were_not_recorded(evidence, why):
    found = missing(evidence)
    assert set(found) >= {"managed_memory"}
    assert found["managed_memory"].why == why


@pytest.mark.parametrize(("failed", "looks"), [(200, True), (199, False)])
def test_calls_that_failed_to_copy_lack_no_copies(failed, looks):
    found = missing(launching(copying=True, failed=failed))
    assert ("managed_memory" not in found) is looks


def only_copying(launches=0, **header):
    """A loop that fetches values one by one, without any kernel; perhaps launches are recorded."""
    ran = Program()
    for _ in range(200):
        ran.works(30)
        ran.item()
    for _ in range(launches):
        ran.made.call("cudaLaunchKernel", (ran.now, 5), CallKind.LAUNCH)
    return Evidence(facts=Facts(ran.made.profile(**header)))


def test_waits_of_a_program_that_only_copies_are_looked_at():
    assert "sync_in_loop" not in missing(only_copying())


@pytest.mark.parametrize(
    "evidence",
    [only_copying(launches=1), only_copying(not_measured={"kernels": "kernels were left out"})],
    ids=["kernels were launched", "kernels were left out"],
)
def test_waits_are_not_judged_where_kernels_may_be_missing(evidence):
    assert "kernels" in missing(evidence)["sync_in_loop"].why


@pytest.mark.parametrize(
    ("evidence", "lacks"),
    [
        (launching(), set()),
        (launching(ALLREDUCE), RANK_RULES),
        (launching(world_size=8), RANK_RULES),
    ],
)
def test_a_program_that_is_alone_waits_for_no_other_rank(evidence, lacks):
    assert RANK_RULES & set(missing(evidence)) == lacks


def test_columns_of_a_table_that_cannot_be_are_missing_for_the_same_reason():
    evidence = launching(devices=(H100,), not_measured={"operators": "none here"})
    assert missing(evidence)["misaligned_gemm"].why == "none here"


def test_who_runs_a_daemon_is_not_told_to_start_one():
    short = replace(launching(), no_telemetry="no poll of the daemon fell into the 156 ms")
    for rule in ("xid", "power_capped", "shared_gpu"):
        found = missing(short)[rule]
        assert (found.why, found.how) == (short.no_telemetry, WITH_MORE_SECONDS)
    assert missing(launching())["xid"].how == WITH_DAEMON


@pytest.mark.parametrize(
    ("state", "how"),
    [(State.NOT_SUPPORTED, NOT_ON_THIS_GPU), (State.NO_PERMISSION, WITH_DAEMON),
     (None, WITH_MORE_SECONDS)],
)  # fmt: skip
def test_a_metric_that_telemetry_lacks(state, how):
    evidence = machine((30, {"throttle_reasons": None}))
    (gpu,) = evidence.telemetry.gpus
    told = {} if state is None else {"throttle_reasons": Unavailable(state, 0.0)}
    telemetry = replace(evidence.telemetry, gpus=(replace(gpu, unavailable=told),))
    found = missing(replace(evidence, telemetry=telemetry))["power_capped"]
    assert (found.why, found.how) == ("telemetry has no throttle_reasons", how)
