"""Jobs of a span by the time of now: none is said to run that nobody sees, nor is the future."""

import time
from dataclasses import replace

import pytest

from gpuadvisor.accounting.gathering import gather
from gpuadvisor.rules.jobs.ledger import ALIVE_S, LATE_S, ledger
from gpuadvisor.rules.jobs.use import JobFold
from tests.simulated_jobs import BEGIN_S, Night, Simulated
from tests.telemetry_store import stored

LENGTH_S = 600.0
END_S = BEGIN_S + LENGTH_S
JOBS = [Simulated(1, 60.0, LENGTH_S, (0,)), Simulated(2, 60.0, 300.0, (1,))]


def frames(later_s=0.0):
    """Ten minutes, at the end of which the first of two jobs still runs."""
    for each in Night(JOBS, 2, LENGTH_S).frames():
        listed = each.processes
        if listed is not None:
            listed = tuple(replace(p, started_s=p.started_s + later_s) for p in listed)
        yield replace(each, time_s=each.time_s + later_s, processes=listed)


def running(now_s, later_s=0.0):
    """The commands of jobs that are said to run at a Unix time."""
    fold = JobFold()
    minutes = [minute for each in frames(later_s) for minute in fold.add(each)]
    uses = [use for minute in [*minutes, *fold.finish()] for use in minute.uses]
    book = ledger(uses, BEGIN_S, now_s, now_s=now_s)
    assert all(job.end_s >= job.start_s for job in book.jobs)
    return [job.command for job in book.jobs if job.is_running]


@pytest.mark.parametrize(
    ("now_s", "expected"),
    [
        (END_S, [JOBS[0].command]),
        (END_S + ALIVE_S + 60, [JOBS[0].command]),  # whole minutes come late to other users
        (END_S + LATE_S + 1, []),  # no daemon runs: nobody knows
        (END_S + 86400, []),
    ],
)
def test_a_job_runs_only_where_it_was_seen_lately(now_s, expected):
    assert running(now_s) == expected


def test_what_is_of_before_the_clock_was_set_back_does_not_run():
    assert running(END_S, later_s=86400.0) == []


def test_the_time_in_which_no_daemon_ran_any_more_is_not_measured(tmp_path):
    stored(tmp_path, *frames())
    until_s = END_S + 7200
    found = gather(BEGIN_S, until_s, folder=tmp_path)
    assert found.unmeasured_s == pytest.approx(2 * 7200, abs=30)
    assert not any(each.job.is_running for each in found.jobs)
    assert gather(BEGIN_S, END_S, folder=tmp_path).unmeasured_s < 30


def test_what_was_measured_with_a_clock_that_was_ahead_is_not_of_now(tmp_path):
    year_s = 365 * 86400.0
    ahead_s = time.time() + year_s - BEGIN_S
    stored(tmp_path, *frames(), *frames(ahead_s))
    found = gather(BEGIN_S, folder=tmp_path)
    assert len(found.jobs) == len(JOBS)
    assert not any(each.job.is_running for each in found.jobs)
    assert found.ledger.until_s == pytest.approx(END_S, abs=2)
    assert found.unmeasured_s < 2 * (time.time() - BEGIN_S)
