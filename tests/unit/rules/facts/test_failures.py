"""Calls into CUDA that returned an error."""

import pytest

from gpuadvisor.domain.profile import (
    FAILED_CALLS,
    CallKind,
    FailedCalls,
    failed_calls,
    failed_calls_told,
)
from gpuadvisor.rules.facts.failures import (
    all_launches_failed,
    failures,
    lost_launches,
    none_failed,
)
from gpuadvisor.rules.facts.summary import Facts
from tests.profiles import Made


def facts_of(told, launches=3, kernels=0, copies=1):
    made = Made()
    for number in range(launches):
        if number < kernels:
            made.launched("my_kernel", (1000.0 * number, 5), (1000.0 * number + 10, 500))
        else:
            made.call("cudaLaunchKernel", (1000.0 * number, 5), CallKind.LAUNCH)
    for number in range(copies):
        made.copied((1000.0 * number, 5), (1000.0 * number + 600, 10), bytes=100)
    told = {} if told is None else {FAILED_CALLS: failed_calls_told(told)}
    return Facts(made.profile(source="nsys", facts=told))


PTX = FailedCalls("cudaLaunchKernel", 222, 3)
OUT_OF_MEMORY = FailedCalls("cudaMalloc", 2, 1)


@pytest.mark.parametrize("found", [(), (PTX,), (PTX, OUT_OF_MEMORY)])
def test_what_is_told_is_read_again(found):
    assert failed_calls({FAILED_CALLS: failed_calls_told(found)}) == found


def test_what_is_not_known_is_not_none():
    assert failed_calls({}) is None
    assert not none_failed(facts_of(None)) and none_failed(facts_of(()))
    assert failures(facts_of(None)) is None and failures(facts_of(())) is None


def test_launches_that_all_failed():
    facts = facts_of((PTX,))
    assert all_launches_failed(facts)
    told = failures(facts)
    assert told.startswith("All 3 calls that launch kernels returned an error, so no kernel ran")
    assert "cudaErrorUnsupportedPtxVersion" in told and told.endswith("3 times")


def test_some_of_the_launches():
    facts = facts_of((FailedCalls("cudaLaunchKernel", 701, 1),), kernels=2)
    assert not all_launches_failed(facts)
    assert failures(facts).startswith(
        "1 of 3 calls that launch kernels returned an error, so their"
    )


def test_a_recording_without_kernels_in_which_most_launches_succeeded_does_not_say_that_none_ran():
    told = failures(facts_of((FailedCalls("cudaLaunchKernel", 1, 1),)))
    assert "1 of 3 calls" in told and "so their kernels did not run" in told


def test_a_first_kernel_that_ended_all_others_ran_to_no_end_itself():
    facts = facts_of((FailedCalls("cudaLaunchKernel", 700, 2),))
    assert all_launches_failed(facts)
    assert "2 of 3 calls" in failures(facts)
    assert "so no kernel ran to its end" in failures(facts)


@pytest.mark.parametrize(("failed", "copies"), [(1, 1), (2, 0)])
def test_kernels_whose_rows_a_recording_lacks_may_have_run_before_one_died(failed, copies):
    """Of three launches one or two failed; where most did, nothing of the GPU was recorded."""
    facts = facts_of((FailedCalls("cudaLaunchKernel", 700, failed),), copies=copies)
    assert not all_launches_failed(facts)
    assert "so their kernels did not run" in failures(facts)


def test_one_launch_is_told_in_the_singular():
    told = failures(facts_of((FailedCalls("cudaLaunchKernel", 222, 1),), launches=1))
    assert told.startswith("The only call that launches kernels returned an error, so no kernel")


@pytest.mark.parametrize(("error", "why"), [(700, "the error 700 ends"), (1, "the last ones")])
def test_kernels_that_an_illegal_access_ended_are_not_lost_by_the_recording(error, why):
    facts = facts_of((FailedCalls("cudaMemcpy", error, 1),), launches=9, kernels=6)
    assert why in lost_launches(facts)


def test_other_calls():
    facts = facts_of((OUT_OF_MEMORY,), kernels=3)
    assert not all_launches_failed(facts)
    assert failures(facts) == (
        "Calls into CUDA returned errors: cudaMalloc 2 (cudaErrorMemoryAllocation: the GPU's memory"
        " was full), once"
    )


def test_an_error_without_a_name_keeps_its_number():
    assert "cudaMemcpy 912, 2 times" in failures(facts_of((FailedCalls("cudaMemcpy", 912, 2),)))
