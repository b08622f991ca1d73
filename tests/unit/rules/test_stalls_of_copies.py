"""What copies to the host and the work between them cost together, by playing the run without."""

import numpy as np
import pytest

from gpuadvisor.rules.catalogue import cpu_work_on_copies, host_bound, pageable_copies
from tests.rules.building import timeline
from tests.rules.cases.cpu_work_on_copies import averages
from tests.rules.programs import Program


def share(saving, evidence):
    run_ns = evidence.facts.window.run_ns
    return 100 * saving.low_ns / run_ns, 100 * saving.high_ns / run_ns


def saved_by(rounds_of, **how):
    """Return by how much a program is shorter without its copies, in percent."""
    whole, without = (
        rounds_of(**how, **more).facts.work.end_ns.max() for more in ({}, {"copies": 0})
    )
    return 100 * (1 - without / whole)


def test_the_whole_of_it_is_what_goes_without_the_average():
    evidence = averages(us=300)
    (found,) = cpu_work_on_copies.check(evidence)
    low, high = share(found.saving, evidence)
    assert low <= saved_by(averages, us=300) <= high
    assert high - low < 30


def test_it_names_the_operators_and_what_the_host_waits():
    (found,) = cpu_work_on_copies.check(averages(us=300))
    assert "8 tensors" in found.summary
    assert "6 times in the run" in found.summary
    assert "aten::add_ 2.4 ms" in found.summary


def saves(copies=30, us=400, steps=5):
    """Return steps of which one ends with a checkpoint: copies, and Python between them."""
    program = Program()
    for number in range(steps):
        began = program.now
        program.launches("kernel", runs=300, times=10, op=20)
        for _ in range(copies if number == 2 else 0):
            program.copies(4 << 20, 6, to_host=True)
            program.works(us)
        program.works(3000 if copies and number == 2 else 0)
        program.step(number, began)
    return timeline(program.made)


def test_a_checkpoint_is_one_stall_with_its_copies():
    evidence = saves(us=1200)
    (found,) = host_bound.check(evidence)
    low, high = share(found.saving, evidence)
    assert low <= saved_by(saves, us=1200) <= high
    assert "copies to the host for another" in found.summary


def test_copies_in_the_midst_of_it_are_not_worth_all_of_it():
    evidence = saves(us=1200)
    (stall,), (copies,) = host_bound.check(evidence), pageable_copies.check(evidence)
    assert share(copies.saving, evidence)[1] < share(stall.saving, evidence)[1] - 25


def test_work_in_one_step_of_several_is_not_told_of_all():
    """What comes once cannot be more of the run than it is."""
    evidence = saves(us=1200)
    (found,) = host_bound.check(evidence)
    told = next(each.value for each in found.evidence if each.metric == "gpu_idle_other_host")
    other = evidence.facts.host_idle.other_times.total_ns
    assert told == pytest.approx(100 * other / evidence.facts.window.run_ns, abs=2)


def test_rounds_are_chosen_with_their_copies():
    found = averages(every=2).facts.copied_out
    last = found.chosen(np.array([False, False, True]))
    assert len(found.times) == 3
    assert last.rows.tolist() == found.rows[found.of_round == 2].tolist()
    assert last.times.begin_ns.tolist() == found.times.begin_ns[2:].tolist()


def test_a_round_at_the_end_lasts_until_its_last_copy():
    program = Program()
    program.launches("kernel", runs=100)
    for _ in range(4):
        program.copies(1 << 20, 6, to_host=True)
    found = timeline(program.made).facts.copied_out
    assert found.times.end_ns.tolist() == [round(1000 * program.now)]
