"""Where a plan was proven, and what differs here."""

from dataclasses import replace

import pytest

from gpuadvisor.domain.knobs import Level
from gpuadvisor.domain.study import Objective, Plan
from gpuadvisor.tuning.plans.file import environment_differences, environment_fingerprint
from tests.studies import CPU, H100, environment

PLAN = Plan(
    "train.py",
    (),
    {},
    None,
    Level.BALANCED,
    Objective.THROUGHPUT,
    environment=environment_fingerprint(environment()),
)
A100 = replace(H100, name="NVIDIA A100-SXM4-40GB", compute_capability=(8, 0))

CASES = [
    (
        {"device": A100},
        "the plan was proven on NVIDIA H100 80GB HBM3, this is NVIDIA A100-SXM4-40GB:"
        " its gain is not known here",
    ),
    (
        {"torch": "2.8.0+cu126"},
        "the plan was proven with torch 2.7, this is 2.8: its gain may differ here",
    ),
    (
        {"cuda": "12.8"},
        "the plan was proven with CUDA 12.6, this is 12.8: its gain may differ here",
    ),
    (
        {"driver": "580.1"},
        "the plan was proven with driver 570, this is 580: its gain may differ here",
    ),
    ({"torch": None}, "the plan was proven with torch 2.7, the one here is not known"),
]


@pytest.mark.parametrize(("changes", "sentence"), CASES)
def test_what_differs(changes, sentence):
    assert environment_differences(PLAN, environment(**changes)) == [sentence]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"torch": "2.7.0"},
        {"driver": "570.1"},
        {"python": "3.11.1", "platform": "other", "git_dirty": True},
        {"device": replace(H100, index=3, uuid="GPU-other")},
    ],
)
def test_what_does_not_matter(changes):
    assert environment_differences(PLAN, environment(**changes)) == []


def test_every_difference_has_its_sentence():
    here = environment(CPU, torch="2.8", cuda=None, driver=None)
    assert len(environment_differences(PLAN, here)) == 4


def test_what_the_plan_does_not_say_is_not_compared():
    assert environment_differences(replace(PLAN, environment={}), environment(A100)) == []


def test_what_could_not_be_read_is_left_out():
    known = environment_fingerprint(environment(CPU, torch=None))
    assert "torch" not in known
    assert "compute_capability" not in known
    assert known["device"] == CPU.name
