"""What is said of a job, and what must not be."""

from dataclasses import replace

import pytest

from gpuadvisor.domain.jobs import UNTOLD, Amounts, Job, JobProfile, Loss, ProvenPlan
from gpuadvisor.reports.jobs_document import sentence
from gpuadvisor.rules.jobs.advice import advice

HOUR_S = 3600.0
GIB = 2**30
H100 = "NVIDIA H100 80GB HBM3"


def job(hours=31.0, gpus=1, **causes):
    """A job of so many GPU-hours; of each cause, GPU-hours and those lost at most."""
    seconds = hours * HOUR_S
    return Job(
        key="a1", script="train.py", command="python train.py --lr 1", user="ann", container=None,
        gpus=tuple(f"GPU-{i}" for i in range(gpus)), pids=(7,), start_s=0.0, end_s=seconds,
        is_running=False, memory_max_bytes=70 * GIB,
        amounts=Amounts(seconds=seconds, held_s=seconds, busy_s=0.5 * seconds, busy_known_s=seconds,
                        sm_known_s=seconds, cpu_known_s=seconds),
        causes={n: Loss(h * HOUR_S, lost * HOUR_S, h * HOUR_S) for n, (h, lost) in causes.items()},
        by_gpuadvisor=False,
    )  # fmt: skip


PLAN = ProvenPlan("train-3", "train.py", "/home/ann", H100, 2.1, "/home/ann/train.plan.toml", True)


def text(subject, *plans):
    return sentence(subject, advice(subject, plans, H100))


def test_waiting_for_input():
    assert text(job(waiting_for_input=(30, 14.26), healthy=(1, 0))) == (
        "train.py, 31 GPU-hours: waits for input 46 % of the time: about 14 GPU-hours to gain"
        " (estimate), `gpuadvisor tune train.py`."
    )


def test_idle_with_memory_held_is_no_gain_of_tune():
    (said,) = advice(job(6.5, idle=(6, 6)))
    assert said.sentence == "idle for 6 h with 70 GiB held"
    assert said.gain_hours is None
    assert said.method


def test_idle_on_a_gpu_that_another_job_used_wastes_no_gpu_time_and_is_said():
    """By the share of the SMs, none of the GPU's time is its own."""
    lonely = job(0)
    shared = replace(
        lonely,
        amounts=Amounts(held_s=6 * HOUR_S, shared_s=6 * HOUR_S),
        causes={"idle": Loss(0, 0, 6 * HOUR_S)},
    )
    assert [each.sentence for each in advice(shared)] == ["idle for 6 h with 70 GiB held"]
    assert shared.lost_hours == 0


def test_a_proven_plan_that_is_not_used():
    subject = replace(job(healthy=(31, 0)), command="python /home/ann/train.py")
    (said,) = advice(subject, [PLAN], H100)
    assert said.sentence == (
        "a plan proven 2.1x for this script on this kind of GPU exists (study train-3) and is not"
        " used"
    )
    assert said.gain_hours == pytest.approx(31 * (1 - 1 / 2.1))
    assert said.what_to_do == (
        "`gpuadvisor run --plan /home/ann/train.plan.toml /home/ann/train.py`"
    )


def test_a_script_of_the_same_name_promises_nothing():
    (said,) = advice(job(healthy=(31, 0)), [PLAN], H100)
    assert "for a train.py in /home/ann on this kind of GPU" in said.sentence
    assert said.gain_hours is None


@pytest.mark.parametrize(
    "subject",
    [
        replace(job(healthy=(31, 0)), by_gpuadvisor=True),
        replace(job(healthy=(31, 0)), command="python /home/bob/train.py"),
        replace(job(healthy=(31, 0)), command="python other.py"),
        replace(job(healthy=(31, 0)), command=None),
        replace(job(healthy=(31, 0)), command="sha256:0123"),
    ],
)
def test_a_plan_is_not_pointed_to(subject):
    assert advice(subject, [PLAN], H100) == []


def test_a_plan_for_another_gpu_or_of_next_to_nothing_is_not_pointed_to():
    subject = job(healthy=(31, 0))
    assert advice(subject, [PLAN], "NVIDIA A100") == []
    assert advice(subject, [PLAN], None) == []
    assert advice(subject, [replace(PLAN, ratio=1.02)], H100) == []


def test_where_the_environment_is_closed_it_is_not_said_that_a_plan_is_not_used():
    (said,) = advice(replace(job(healthy=(31, 0)), by_gpuadvisor=None), [PLAN], H100)
    assert said.sentence.endswith("may not be used")


@pytest.mark.parametrize(
    "subject",
    [
        job(0.05, waiting_for_input=(0.05, 0.045)),  # three minutes old
        job(31, waiting_for_input=(20, 1.0)),  # a thirtieth of its time
        job(31, idle=(0.4, 0.4)),  # lunch
        job(31, healthy=(31, 0)),
        job(31, shared_gpu=(31, 0)),
        job(31, **{UNTOLD: (10, 0)}, healthy=(21, 0)),
    ],
)
def test_nothing_is_said(subject):
    assert advice(subject) == []


def test_what_cannot_be_told_is_said_with_what_would_tell():
    subject = job(31, **{UNTOLD: (20, 0)}, healthy=(11, 0))
    assert text(subject) == (
        "train.py, 31 GPU-hours: cannot tell what it waits for 65 % of the time, a profile would:"
        " `gpuadvisor profile train.py`."
    )
    old_gpu = replace(subject, amounts=replace(subject.amounts, sm_known_s=0.0))
    assert "(activity of the SMs not measured)" in text(old_gpu)
    profiled = replace(subject, profile=JobProfile(7, "ann", 0.0, "train", ("It launches.",)))
    assert "a profile would" not in text(profiled) and "It launches." in text(profiled)


def test_a_program_that_is_no_script_is_sent_to_no_tune():
    subject = replace(job(waiting_for_input=(30, 14)), script="solver", command="./solver --grid 5")
    (said,) = advice(subject)
    assert (said.what_to_do, said.gain_hours) == ("", pytest.approx(14))


def test_clocks_that_are_held_are_nothing_that_tune_could_gain():
    (said,) = advice(job(31, clocks_held=(30, 5.7)))
    assert said.sentence == (
        "held 19 % below its highest clock by its power limit or its temperature 97 % of the time"
    )
    assert (said.gain_hours, "nothing that tune could gain" in said.what_to_do) == (None, True)


def test_what_launches_cost_is_a_bound():
    """SMs without work are not all gained: kernels that are small stay so."""
    assert "up to 20 GPU-hours to gain (estimate), `gpuadvisor tune" in text(
        job(31, launch_bound=(30, 20))
    )


def test_an_idle_time_on_several_gpus_is_their_mean():
    (said,) = advice(job(16, gpus=8, idle=(12, 12)))
    assert said.sentence == "idle for 1 h 30 min on average of 8 GPUs with 70 GiB held"
