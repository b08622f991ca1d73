"""Which processes are one job, and what it is called."""

from dataclasses import replace

import pytest

from gpuadvisor.domain.telemetry import GpuProcess
from gpuadvisor.rules.jobs.launches import launches, script_of, script_path

ONE = GpuProcess(
    "GPU-0", 10, "compute", 1, "python", "ann", "python train.py", parent_pid=5, started_s=1000.0
)


def groups(*processes):
    return {frozenset(p.pid for p in group) for group in launches(processes, lambda p: p)}


RANK = replace(ONE, pid=11, gpu="GPU-1", started_s=1003.0)


@pytest.mark.parametrize(
    "other",
    [
        RANK,  # torchrun's workers
        replace(RANK, parent_pid=10, command="python -c spawn_main"),  # a fork, or spawned
        replace(RANK, pid=10),  # on two GPUs
        replace(ONE, started_s=1000.9),  # the machine's start was set right meanwhile
    ],
)
def test_one_job(other):
    assert len(groups(ONE, other)) == 1


@pytest.mark.parametrize(
    "other",
    [
        replace(RANK, command="python train.py --lr 2"),  # a sweep in one shell
        replace(RANK, started_s=1100.0),  # the same, started again
        replace(RANK, user="bob"),
        replace(RANK, container="c0ffee"),
        replace(RANK, parent_pid=1),
        replace(RANK, parent_pid=None, started_s=None),
        replace(RANK, parent_pid=10, started_s=900.0),  # older than what has its parent's number
    ],
)
def test_two_jobs(other):
    assert len(groups(ONE, other)) == 2


def test_a_number_that_came_again_is_another_job():
    assert len(launches([ONE, replace(ONE, started_s=5000.0)], lambda p: p)) == 2


def test_ranks_in_the_command_line_do_not_part_a_launch():
    ranks = [
        replace(ONE, pid=20 + i, command=f"python -u train.py --local_rank={i} --x 1")
        for i in range(8)
    ]
    assert len(groups(*ranks)) == 1


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python train.py --lr 1", "train.py"),
        ("/opt/conda/bin/python3.11 -u -W ignore /home/ann/a/train.py x.py", "train.py"),
        ("python -m ann.train --lr 1", "-m ann.train"),
        ("python -m torch.distributed.run --nproc-per-node 8 train.py", "train.py"),
        ("/usr/bin/torchrun --nproc-per-node 8 pre/train.py", "train.py"),
        ("/usr/bin/python3 /usr/local/bin/vllm serve", "vllm"),
        ("python -c import torch", "python -c"),
        ("python", "python"),
        ("./solver --grid 512", "solver"),
        ("sha256:0123456789abcdef", "sha256:0123456789abcdef"),
        (None, "python"),
    ],
)
def test_what_a_job_is_called(command, script):
    assert script_of([replace(ONE, command=command)]) == script


def test_a_job_of_which_nothing_is_known():
    assert script_of([GpuProcess("GPU-0", 1, "compute", 1, None)]) == "?"


def test_a_path_is_kept_where_it_is_asked_for():
    assert script_path("python /home/ann/train.py") == "/home/ann/train.py"
