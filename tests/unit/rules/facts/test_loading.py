"""Waits for batches: which of them are late, and which only the start of the workers."""

import pytest

from gpuadvisor.domain.profile import Range
from gpuadvisor.rules.facts.loading import READY_NS, loading
from gpuadvisor.rules.facts.summary import Facts
from tests.profiles import Made


@pytest.mark.parametrize(
    ("waits_us", "late_us"),
    [
        ([40_000, 2_000, 2_000, 2_000], 4 * 2_000),
        # Two workers that start alike deliver two batches at once: none of it is a start.
        ([15_000, 100, 38_000, 100, 40_000], 93_000),
    ],
)
def test_only_the_longest_wait_is_taken_for_a_start(waits_us, late_us):
    made = Made()
    for number, wait in enumerate(waits_us):
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        made.range(name, (100_000 * number, wait), Range.LOADER)
    found = loading(made.profile())
    late = sum(1000 * wait > READY_NS for wait in waits_us)
    assert found.late_ns == pytest.approx(1000 * late_us - late * READY_NS)


def test_without_a_gpu_the_wait_before_the_first_step_is_none_of_the_run():
    made = Made()
    for number in range(3):
        made.range("enumerate(DataLoader)#_Iter.__next__", (1000 * number, 400), Range.LOADER)
        made.range("Optimizer.step#SGD.step", (1000 * number + 900, 100))
    facts = Facts(made.profile())
    steps = facts.steps.steps
    assert facts.window.run_ns == sum(step.duration_ns for step in steps) == 2_000_000
