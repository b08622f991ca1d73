"""Jobs out of a store that is written: the same as from its frames, however the daemon ends."""

from dataclasses import replace

import pytest

from gpuadvisor.daemon.jobs import JobKeeper, WithJobs
from gpuadvisor.domain.telemetry import Frame, GpuProcess, Sample
from gpuadvisor.rules.jobs.ledger import ledger
from gpuadvisor.rules.jobs.use import JobFold
from gpuadvisor.storage.telemetry.jobs import FOLDED, JOBS, JobsFile, JobsReader
from gpuadvisor.storage.telemetry.retention import Retention
from gpuadvisor.storage.telemetry.writer import TelemetryWriter
from tests.simulated_jobs import BEGIN_S, night
from tests.telemetry import GIB, h100
from tests.telemetry_store import Clock

LENGTH_S = 1000.0
END_S = BEGIN_S + LENGTH_S


@pytest.fixture(scope="module")
def frames():
    return list(replace(night(7, jobs=9, gpus=2, length_s=LENGTH_S), period_s=4.5).frames())


def keep(folder, frames, **kept):
    """One run of a daemon, which tends its store once a minute and is killed in the end."""
    clock = Clock(frames[0].time_s)
    with TelemetryWriter(folder, clock=clock, kept=Retention(**kept)) as writer:
        both = WithJobs(writer, folder)
        for at in range(0, len(frames), 14):
            clock.now_s = frames[at].time_s
            both.append(frames[at : at + 14])
            both.tend()
        both._jobs._file.connection.close()  # no more than a kill would do


def stored(folder):
    reader = JobsReader(folder)
    uses = list(reader.read(0, END_S))
    return ledger(uses, 0, END_S), reader.folded_s


def from_frames(frames, until_s):
    fold = JobFold()
    minutes = [minute for frame in frames for minute in fold.add(frame)]
    return ledger((u for m in minutes if m.end_s <= until_s for u in m.uses), 0, END_S)


def told(book):
    return {
        job.command: (job.key, job.gpus, job.amounts.seconds, job.amounts.energy_j, job.pids)
        for job in book.jobs
    } | {kind: (amounts.seconds, amounts.energy_j) for kind, amounts in book.unclaimed.items()}


def assert_same(book, other):
    assert book.total.seconds == pytest.approx(other.total.seconds)
    ours, theirs = told(book), told(other)
    assert ours.keys() == theirs.keys()
    for name, values in ours.items():
        for one, two in zip(values, theirs[name], strict=True):
            assert one == (pytest.approx(two) if isinstance(two, float) else two)


@pytest.mark.parametrize("kills", [(70, 71, 150)])
def test_kills_lose_nothing_and_count_nothing_twice(tmp_path, frames, kills):
    for begin, end in zip((0, *kills), (*kills, len(frames)), strict=True):
        keep(tmp_path, frames[begin:end])
    book, folded_s = stored(tmp_path)
    assert folded_s > END_S - 120
    assert_same(book, from_frames(frames, folded_s))


PARTS = tuple(replace(h100(0), uuid=f"MIG-{n}", parent_uuid="GPU-0") for n in (1, 2))


def in_and_out_of_mig_mode():
    """A GPU for 15 minutes, in parts for the five in the middle; a job on it, and on one part."""
    before = ()
    for at in range(900):
        is_parted = 300 <= at < 600
        gpus = (h100(0), *PARTS) if is_parted else (h100(0),)
        samples = {"GPU-0": Sample({"gpu_utilization_pct": 50, "power_w": 300.0})}
        samples |= {each.uuid: Sample({"memory_used_bytes": GIB}) for each in gpus[1:]}
        gpu, pid = ("MIG-1", 71) if is_parted else ("GPU-0", 70)
        job = GpuProcess(gpu, pid, "compute", GIB, "python", "ann", f"{pid}.py", started_s=BEGIN_S)
        listed = (job,) if at % 5 == 0 else None
        yield Frame(BEGIN_S + at, samples, gpus=None if gpus == before else gpus, processes=listed)
        before = gpus


@pytest.mark.parametrize("is_anew", [False, True], ids=["as it comes", "made anew"])
def test_a_gpu_in_mig_mode_is_counted_by_its_instances_also_when_it_has_none_any_more(
    tmp_path, is_anew
):
    keep(tmp_path, list(in_and_out_of_mig_mode()))
    if is_anew:
        for path in tmp_path.glob(f"{JOBS}*"):
            path.unlink()
        keep(tmp_path, [Frame(BEGIN_S + 901, gpus=(h100(0),))])
    seconds: dict[str, float] = {}
    reader = JobsReader(tmp_path)
    for use in reader.read(0, END_S):
        seconds[use.gpu] = seconds.get(use.gpu, 0.0) + use.amounts.seconds
    whole_s = reader.folded_s - BEGIN_S - 300
    assert seconds == pytest.approx({"GPU-0": whole_s, "MIG-1": 300, "MIG-2": 300}, abs=3)


TURN = 110
"""The frame at which a clock is set."""


def set_by(frames, by_s):
    """The same seconds, as a machine tells them whose clock is set in the middle."""
    return [
        *frames[:TURN],
        *(replace(each, time_s=each.time_s + by_s) for each in frames[TURN:]),
    ]


def seconds_of(folder, until_s=1e11):
    """GPU time by the job, and of nobody."""
    found: dict[str, float] = {}
    for use in JobsReader(folder).read(0, until_s):
        name = use.process.command if use.process else str(use.unclaimed)
        found[name] = found.get(name, 0.0) + use.amounts.seconds
    return found


YEAR_S = 365 * 86400.0
LOST_S = 2 * (60 + 4.5 + 20)
"""GPU time of two GPUs that may be missing: the newest minute, a poll, and who has it until the
processes are listed again."""


@pytest.mark.parametrize("by_s", [-2.1, -30.1, -300.1, -10_000.1, -YEAR_S, 300.1, YEAR_S])
def test_a_clock_that_is_set_loses_no_job_and_counts_nothing_twice(tmp_path, frames, by_s):
    keep(tmp_path / "right", frames)
    keep(tmp_path / "set", set_by(frames, by_s))
    right, other = seconds_of(tmp_path / "right"), seconds_of(tmp_path / "set")
    other["unknown"] = other.get("unknown", 0.0)  # until the processes are listed again
    assert other.keys() - {"unknown"} <= right.keys()
    for name in right.keys() - {"unknown", "free"}:
        assert right[name] - LOST_S <= other.get(name, 0.0) <= right[name] + 2 * 4.5, name
    assert sum(right.values()) - LOST_S <= sum(other.values()) <= sum(right.values()) + 2 * 60


@pytest.mark.parametrize("by_s", [-300.1, -YEAR_S])
def test_a_clock_that_was_set_back_while_no_daemon_ran_loses_no_job(tmp_path, frames, by_s):
    keep(tmp_path, frames[:TURN])
    before = seconds_of(tmp_path)
    keep(tmp_path, set_by(frames, by_s)[TURN:])
    gained_s = sum(seconds_of(tmp_path).values()) - sum(before.values())
    measured_s = 2 * (frames[-1].time_s - frames[TURN].time_s)
    assert measured_s - LOST_S <= gained_s <= measured_s + 2 * 60


def test_a_clock_that_is_a_year_ahead_for_minutes_removes_no_job(tmp_path, frames):
    keep(tmp_path, frames[:TURN])
    before = seconds_of(tmp_path)
    keep(tmp_path, set_by(frames, YEAR_S)[TURN:])
    after = seconds_of(tmp_path, BEGIN_S + YEAR_S / 2)
    assert all(after[name] >= seconds for name, seconds in before.items())


def test_what_is_removed_of_raw_rows_stays_in_jobs(tmp_path, frames):
    later = [replace(frame, time_s=frame.time_s + 7 * 3600) for frame in frames[:60]]
    keep(tmp_path, frames, raw_s=3600.0)
    keep(tmp_path, later, raw_s=3600.0)
    first = from_frames(frames, END_S)
    found = {job.command: job for job in stored(tmp_path)[0].jobs}
    assert {job.command for job in first.jobs} <= found.keys()


def test_a_damaged_file_is_made_anew_of_the_days_that_are_left(tmp_path, frames):
    keep(tmp_path, frames[:150])
    (tmp_path / JOBS).write_text("This was a database. " * 1000)
    keep(tmp_path, frames[150:])
    book, folded_s = stored(tmp_path)
    assert_same(book, from_frames(frames, folded_s))
    assert list(tmp_path.glob(f"{JOBS}.damaged-*"))


def test_it_is_for_its_owner_alone_and_old_uses_go(tmp_path, frames):
    keep(tmp_path, frames)
    assert (tmp_path / JOBS).stat().st_mode & 0o777 == 0o600
    file = JobsFile(tmp_path / JOBS)
    file.forget(BEGIN_S + 3600)
    assert file.moment(FOLDED) > BEGIN_S
    assert not file._known_programs()
    file.close()
    assert stored(tmp_path)[0].jobs == ()


def test_what_is_wrong_is_said_once_and_tried_again(tmp_path, frames, caplog):
    keep(tmp_path, frames[:60])
    (tmp_path / JOBS).unlink()
    (tmp_path / JOBS).mkdir()  # nobody can open that
    keeper = JobKeeper(tmp_path)
    keeper.tend(1e9)
    keeper.tend(1e9)
    assert [each.message[:33] for each in caplog.records] == ["jobs are not brought up to date: "]
    (tmp_path / JOBS).rmdir()
    keeper.tend(1e9)
    keeper.close()
    assert stored(tmp_path)[0].jobs
