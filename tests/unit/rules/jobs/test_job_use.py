"""What jobs took of GPUs: the sums are those of telemetry, whatever happens to the daemon."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuadvisor.domain.jobs import Unclaimed
from gpuadvisor.domain.telemetry import PROCESSES, Frame, GpuProcess, Sample, State, Unavailable
from gpuadvisor.reports.jobs_document import summary
from gpuadvisor.rules.jobs.ledger import ledger
from gpuadvisor.rules.jobs.use import WARM_UP_S, JobFold
from tests.simulated_jobs import BEGIN_S, Night, Simulated, night
from tests.telemetry import h100

LENGTH_S = 900.0
LISTING_S = 5.0


def folded(frames, restarts=()):
    """The uses of frames by one fold after the other: each is lost without a word, with the minute
    under way, and the next begins where whole minutes end, as a daemon that is killed."""
    frames = list(frames)
    uses, since_s = [], 0.0
    for begin_s, end_s in pairwise((0.0, *sorted(restarts), float("inf"))):
        fold = JobFold(since_s)
        seen = [f for f in frames if since_s - WARM_UP_S <= f.time_s < BEGIN_S + end_s]
        for frame in seen:
            for minute in fold.add(frame):
                uses += minute.uses
                since_s = minute.end_s
        if end_s == float("inf"):
            uses += [use for minute in fold.finish() for use in minute.uses]
        assert begin_s <= end_s
    return uses


def hours(book):
    return book.total.seconds, book.total.energy_j


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    restarts=st.lists(st.floats(1, LENGTH_S), max_size=4),
    gaps=st.lists(
        st.tuples(st.floats(0, LENGTH_S), st.floats(6, 200)).map(lambda g: (g[0], sum(g))),
        max_size=2,
    ),
)
def test_jobs_and_what_is_nobodys_add_up_and_none_is_lost(seed, restarts, gaps):
    played = replace(night(seed, jobs=8, gpus=3, length_s=LENGTH_S), gaps=gaps, period_s=2.5)
    frames = list(played.frames())
    if not frames:
        return
    whole = ledger(folded(frames), 0, BEGIN_S + LENGTH_S)
    assert hours(whole) == pytest.approx((played.totals.gpu_s, played.totals.energy_j))
    in_pieces = ledger(folded(frames, restarts), 0, BEGIN_S + LENGTH_S)
    assert hours(in_pieces) == pytest.approx(hours(whole))
    assert {j.key: j.amounts.seconds for j in in_pieces.jobs} == pytest.approx(
        {j.key: j.amounts.seconds for j in whole.jobs}
    )
    listed = {p.command for f in frames for p in f.processes or ()}
    found = [job.command for job in whole.jobs]
    assert len(found) == len(set(found))
    assert set(found) <= listed
    by_command = {job.command: job for job in whole.jobs}
    for each in played.jobs:
        true_s = played.totals.by_job.get(each.number, 0.0)
        edges_s = 2 * len(each.gpus) * (LISTING_S + played.period_s) * (1 + len(gaps))
        job = by_command.get(each.command)
        if each.is_alone and (job or true_s > edges_s):
            assert job.amounts.seconds == pytest.approx(true_s, abs=edges_s)
            assert set(job.gpus) == {h100(gpu).uuid for gpu in each.gpus}
            assert len(job.pids) == len(each.gpus)


def test_a_shared_gpu_is_divided_by_the_sms_that_each_used_and_equally_where_that_is_not_known():
    one = Simulated(1, 0, 700, (0,), 60, user="ann")
    two = Simulated(2, 0, 700, (0,), 20, user="bob")
    played = Night((one, two), 1, 600)
    by_share = {job.user: job for job in ledger(folded(played.frames()), 0, 0).jobs}
    total_s = played.totals.gpu_s
    assert by_share["ann"].amounts.seconds == pytest.approx(0.75 * total_s)
    assert by_share["bob"].amounts.energy_j == pytest.approx(0.25 * played.totals.energy_j)
    assert by_share["bob"].amounts.shared_s == pytest.approx(total_s)
    unknown = [
        replace(f, processes=f.processes and tuple(
            replace(p, sm_utilization_pct=None if p.user == "bob" else 60.0) for p in f.processes
        ))
        for f in played.frames()
    ]  # fmt: skip
    equal = ledger(folded(unknown), 0, 0).jobs
    assert [job.amounts.seconds for job in equal] == pytest.approx([total_s / 2] * 2)


def test_a_job_does_not_seem_to_start_where_another_fold_goes_on():
    """Every few minutes one does, as a daemon that begins anew, with the minute before."""
    played = Night((Simulated(1, 0, 700, (0,), 95),), 1, 600)
    for restarts in ((), (130, 250, 370, 490)):
        (job,) = ledger(folded(played.frames(), restarts), 0, 0).jobs
        assert {name: round(loss.seconds) for name, loss in job.causes.items()} == {
            "healthy": 580, "untold": 19
        }  # fmt: skip


def test_a_gap_is_unknown_and_neither_idle_nor_used():
    job = Simulated(1, 0, 4000, (0,), 0)
    played = Night((job,), 1, 3600, gaps=((600, 3000),))
    (found,) = ledger(folded(played.frames()), 0, 0).jobs
    assert found.amounts.seconds == pytest.approx(1200, abs=3)
    assert sum(loss.seconds for loss in found.causes.values()) == pytest.approx(1200, abs=3)


def test_a_silent_driver_is_not_an_idle_gpu():
    played = Night((), 1, 100)
    silent = [replace(f, samples={h100(0).uuid: Sample({})}) for f in played.frames()]
    assert folded(silent) == []


def test_what_no_process_was_listed_for_is_an_entry_of_its_own():
    played = Night((), 2, 300)
    busy = Sample({"gpu_utilization_pct": 50, "power_w": 300.0})
    frames = [replace(f, samples={**f.samples, h100(1).uuid: busy}) for f in played.frames()]
    book = ledger(folded(frames), 0, 0)
    assert book.jobs == ()
    assert book.unclaimed[Unclaimed.FREE].seconds == pytest.approx(299)
    assert book.unclaimed[Unclaimed.UNATTRIBUTED].seconds == pytest.approx(299)
    untold = ledger(folded(replace(f, processes=None) for f in frames), 0, 0)
    assert set(untold.unclaimed) == {Unclaimed.UNKNOWN}
    absence = {PROCESSES: Unavailable(State.STALE, BEGIN_S)}
    of_one = [
        replace(f, samples={**f.samples, h100(1).uuid: Sample(busy.values, absence)})
        for f in frames
    ]
    book = ledger(folded(of_one), 0, 0)
    assert book.unclaimed[Unclaimed.FREE].seconds == pytest.approx(299)
    assert book.unclaimed[Unclaimed.UNKNOWN].seconds == pytest.approx(299)


def test_a_gpu_in_parts_is_counted_by_its_parts():
    part = replace(h100(0), uuid="MIG-1", parent_uuid=h100(0).uuid)
    values = Sample({"gpu_utilization_pct": 50, "power_w": 300.0})
    frames = [
        Frame(BEGIN_S + at, {h100(0).uuid: values, "MIG-1": values}, gpus=(h100(0), part),
              processes=(GpuProcess("MIG-1", 7, "compute", 2**30, "python", started_s=BEGIN_S),))
        for at in range(100)
    ]  # fmt: skip
    uses = list(folded(frames))
    assert {use.gpu for use in uses} == {"MIG-1"}
    told = summary(ledger(uses, BEGIN_S, BEGIN_S + 100), 0.0)
    assert told.startswith("Of 0.03 measured GPU-hours, 1 job took 0.03.")
    assert told.endswith("Each MIG instance counts as a GPU; the driver tells no power of one.")


def test_a_process_that_has_ended_and_is_still_listed_is_no_other_job():
    """The driver takes some seconds, in which nobody knows any more who it was."""
    played = Night((Simulated(1, 0, 700, (0,), 60),), 1, 600)
    ended = [
        replace(f, processes=f.processes and tuple(
            replace(p, name=None, user=None, command=None, parent_pid=None, started_s=None)
            if f.time_s > BEGIN_S + 580 else p
            for p in f.processes
        ))
        for f in played.frames()
    ]  # fmt: skip
    (job,) = ledger(folded(ended), 0, 0).jobs
    assert (job.script, job.amounts.seconds) == ("train_1.py", pytest.approx(599, abs=2))


@pytest.mark.parametrize("step_s", [-500.0, -60.0, -5.0, 5.0, 60.0, 500.0])
def test_a_clock_that_is_set_splits_no_job(step_s):
    """The kernel tells the start of each process by the clock, and a daemon that begins anew asks
    again. It can be told where the step is shorter than the job had run."""
    played = Night((Simulated(1, 0, 1200, (0, 1), 60),), 2, 1300)
    frames = [f if f.time_s <= BEGIN_S + 600 else _later(f, step_s) for f in played.frames()]
    set_at = len([f for f in played.frames() if f.time_s <= BEGIN_S + 600])
    uses = folded(frames[:set_at]) + folded(frames[set_at:])
    (job,) = ledger(uses, 0, 0).jobs
    assert job.amounts.seconds == pytest.approx(2400, abs=30)


def _later(frame, step_s):
    processes = frame.processes and tuple(
        replace(each, started_s=each.started_s + step_s) for each in frame.processes
    )
    return replace(frame, time_s=frame.time_s + step_s, processes=processes)


def test_the_same_number_at_another_time_is_another_job_of_the_same_script():
    first = Simulated(1, 0, 200, (0,), 60)
    second = replace(first, begin_s=300, end_s=500)
    found = ledger(folded(Night((first, second), 1, 600).frames()), 0, 0).jobs
    assert [job.amounts.seconds for job in found] == pytest.approx([200, 200], abs=10)
