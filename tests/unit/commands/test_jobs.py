"""`gpuadvisor jobs` and `gpuadvisor.jobs()` on a store that a daemon has written."""

import json
from dataclasses import replace

import pytest

import gpuadvisor
from gpuadvisor.cli import main
from gpuadvisor.daemon.jobs import WithJobs
from gpuadvisor.daemon.process_server import told_jobs
from gpuadvisor.domain.jobs import Unclaimed
from gpuadvisor.domain.telemetry import HOST, GpuProcess, Sample
from gpuadvisor.rules.jobs.ledger import ledger
from gpuadvisor.storage.database import open_store
from gpuadvisor.storage.telemetry.jobs import _uses, stored_uses
from gpuadvisor.storage.telemetry.writer import TelemetryWriter
from tests.simulated_jobs import BEGIN_S
from tests.studies import study
from tests.telemetry import GIB, frame, h100, sample
from tests.telemetry_store import Clock

LASTS_S = 2400


def process(gpu, pid, user, command, **more):
    given = {"sm_utilization_pct": 50.0, "cpu_pct": 30.0, "children_cpu_pct": 380.0, **more}
    return GpuProcess(
        h100(gpu).uuid, pid, "compute", 70 * GIB, "python", user, command, parent_pid=5 * pid,
        started_s=BEGIN_S, by_gpuadvisor=False, **given,
    )  # fmt: skip


LOADER = process(0, 71, "ann", "python train.py --secret 1")
NOTEBOOK = process(1, 72, "bob", "python -m ipykernel_launcher -f x.json", cpu_pct=1.0,
                   children_cpu_pct=0.0, sm_utilization_pct=0.0)  # fmt: skip
WAITS = sample(gpu_utilization_pct=54, sm_active_pct=45)
IDLE = sample(gpu_utilization_pct=0, sm_active_pct=0, power_w=70.0)
MACHINE = Sample({"cpu_pct": 30.0, "io_stall_pct": 0.0})


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Two thirds of an hour of a job that waits for input, of an idle notebook, and of a free GPU;
    the newest minutes are not yet made into uses."""
    home = tmp_path_factory.mktemp("store")
    frames = []
    for number in range(int(LASTS_S / 4)):
        made = frame(0.0, WAITS, IDLE, IDLE)
        listed = (LOADER, NOTEBOOK)
        samples = {**made.samples, HOST: MACHINE}
        frames.append(
            replace(made, time_s=BEGIN_S + 4.0 * number, samples=samples, processes=listed)
        )
    clock = Clock(frames[-1].time_s)
    folder = home / "telemetry"
    with TelemetryWriter(folder, clock=clock) as writer, WithJobs(writer, folder) as both:
        both.append(frames[:500])
        both.tend()
        both.append(frames[500:])
    return home


@pytest.fixture
def jobs(store, monkeypatch, capsys):
    monkeypatch.setenv("GPUADVISOR_HOME", str(store))

    def run(*words):
        status = main(["jobs", "--since", "2023-11-14T00:00+00:00", *words])
        return status, capsys.readouterr()

    return run


def test_what_is_wasted_comes_first(jobs):
    status, said = jobs()
    lines = " ".join(said.out.split())
    assert status == 0
    assert "Of 2.0 measured GPU-hours, 2 jobs took 1.3, 0.67 were free." in lines
    assert "-m ipykernel_launcher, 0.67 GPU-hours: idle for 39 min" in lines
    assert "with 70 GiB held, end it, or free its memory." in lines
    assert (
        "train.py, 0.67 GPU-hours: waits for input 46 % of the time: about 0.30 GPU-hours to gain"
        " (estimate), `gpuadvisor tune train.py`."
    ) in lines
    assert lines.index("ipykernel") < lines.index("train.py")
    assert "How it is estimated:" in lines


def test_the_json_adds_up(jobs):
    found = json.loads(jobs("--json")[1].out)
    parts = [*(each["gpu_hours"] for each in found["jobs"])]
    parts += [each["gpu_hours"] for each in found["unclaimed"].values()]
    assert sum(parts) == pytest.approx(found["total"]["gpu_hours"])
    assert found["total"]["gpu_hours"] == pytest.approx(3 * (LASTS_S - 4) / 3600)
    assert [each["user"] for each in found["jobs"]] == ["bob", "ann"]
    assert found["jobs"][1]["causes"]["waiting_for_input"]["wasted_gpu_hours"] > 0.3


@pytest.mark.parametrize(
    ("by", "rows"),
    [("user", ["bob", "ann"]), ("script", ["-m", "train.py"]), ("gpu", ["GPU 1", "GPU 0"])],
)
def test_grouped(jobs, by, rows):
    lines = jobs("--by", by)[1].out.splitlines()
    found = [line for line in lines for row in rows if line.startswith(row)]
    assert [line[: len(row)] for line, row in zip(found, rows, strict=False)] == rows


def test_a_digest_is_one_page(jobs):
    page = jobs("--digest")[1].out
    assert page.startswith("### ")
    assert "waits for input 46 % of the time" in page
    assert "| bob | 1 |" in page
    assert len(page.splitlines()) < 60


@pytest.mark.parametrize("words", [("--digest", "--json"), ("--by", "gpu", "--json")])
def test_what_does_not_go_together_is_refused(jobs, words):
    status, said = jobs(*words)
    assert status == 2
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize("by", [(), ("--by", "user")])
def test_a_time_without_measurements_is_not_said_to_be_without_jobs(jobs, by):
    status, said = jobs("--until", "2023-11-14T20:00+00:00", *by)
    assert (status, said.out.strip()) == (0, "Nothing was measured of the GPUs in this time.")
    assert said.err == (
        "gpuadvisor: nothing is known of this time: see a longer one with `--since 30d`\n"
    )


def test_a_plan_of_a_study_that_is_not_used_is_pointed_to(jobs, store):
    result = replace(study(), study="train-1", trials=())
    with open_store(store / "gpuadvisor.db") as studies:
        studies.create_study(
            "train-1", result.script, result.args, result.environment, result.level,
            result.objective, result.started, "/home/ann", result.is_module, result.verifies,
        )  # fmt: skip
        studies.finish_study(result)
    try:
        lines = " ".join(jobs()[1].out.split())
    finally:
        (store / "gpuadvisor.db").unlink()
    assert (
        "a plan proven 1.4x for a train.py in /home/ann on this kind of GPU exists (study train-1)"
        " and is not used, `gpuadvisor run --plan /home/ann/train.plan.toml train.py`"
    ) in lines


def test_as_a_table(store, monkeypatch):
    monkeypatch.setenv("GPUADVISOR_HOME", str(store))
    table = gpuadvisor.jobs("2023-11-14T00:00+00:00")
    assert list(table["user"]) == ["bob", "ann"]
    assert table["gpu_hours"].sum() == pytest.approx(2 * (LASTS_S - 4) / 3600)
    assert str(table["start"].dtype).endswith(", UTC]")
    assert list(table["cause"].str.split(" ").str[0]) == ["idle", "waiting"]
    assert gpuadvisor.jobs("2023-11-14T00:00+00:00", "2023-11-14T20:00+00:00").empty


@pytest.mark.parametrize("shows", [False, True])
def test_another_user_sees_others_jobs_only_where_that_is_configured(store, shows):
    whole = stored_uses(store / "telemetry", 0, BEGIN_S + 1e6)
    told = told_jobs(whole, "ann", shows)
    book = ledger(_uses(told), 0, 0, told.withheld)
    all_of_it = ledger(_uses(whole), 0, 0)
    assert book.total.seconds == pytest.approx(all_of_it.total.seconds)
    assert "bob" not in str(told) or shows
    assert "ipykernel" not in str(told)
    commands = {job.user: job.command for job in book.jobs}
    assert commands["ann"] == LOADER.command
    assert commands == {"ann": LOADER.command} | ({"bob": None} if shows else {})
    assert (Unclaimed.OTHERS in book.unclaimed) is not shows
    assert told.withheld
    nobody = told_jobs(whole, None, shows)
    assert "secret" not in str(nobody)
