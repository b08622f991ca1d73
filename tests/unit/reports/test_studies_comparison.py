"""What two studies may say of each other, and what not."""

from dataclasses import replace

import pytest

from gpuadvisor.domain.knobs import Level
from gpuadvisor.domain.study import Objective, Speedup
from gpuadvisor.reports.study.comparison import (
    SPEED_UPS,
    STEP_TIMES,
    ComparedStudy,
    compare_studies,
    verdict_of_speedups,
)
from tests.studies import CPU, H100, environment, measurement, study


def compared(*results, folders=("/a", "/a", "/a")):
    return compare_studies(
        [
            ComparedStudy(replace(result, study=f"s-{place}"), folder)
            for place, (result, folder) in enumerate(zip(results, folders, strict=False))
        ]
    )


def test_two_alike_can_be_compared_and_differ_in_nothing():
    found = compared(study(), study())
    assert (found.settings, found.environment, found.obstacles, found.remarks) == ((), (), (), ())
    assert found.same_settings == study().settings


A100 = replace(H100, name="NVIDIA A100")


@pytest.mark.parametrize(
    ("changes", "times", "gains"),
    [
        ({"script": "other.py"}, False, False),
        ({"is_module": True}, False, False),
        ({"args": ("--epochs", "4")}, False, True),
        ({"environment": environment(A100)}, False, True),
        ({"environment": environment(CPU)}, False, True),
        ({"objective": Objective.MEMORY}, True, False),
        ({"baseline": measurement(samples=64)}, False, True),
        ({"speedup": None}, True, False),
        ({"environment": environment(torch="2.8")}, True, True),
        ({"level": Level.AGGRESSIVE}, True, True),
        ({"settings": {}}, True, True),
    ],
)
def test_what_cannot_be_compared(changes, times, gains):
    found = compared(study(), study(**changes))
    assert (found.is_comparable(STEP_TIMES), found.is_comparable(SPEED_UPS)) == (times, gains)
    assert all("s-0" in each.why or "s-1" in each.why for each in found.obstacles)


def test_a_script_of_the_same_name_elsewhere_is_remarked():
    found = compared(study(), study(), folders=("/a", "/b"))
    assert any("may not be the same" in each for each in found.remarks)
    same = compared(study(), study(script="../a/train.py"), folders=("/a", "/b"))
    assert not same.obstacles


def test_of_three_each_is_compared_with_the_first():
    found = compared(study(), study(), study(objective=Objective.ENERGY))
    (obstacle,) = found.obstacles
    assert obstacle.why == "s-0 and s-2 had different objectives, throughput and energy"


def test_a_value_and_a_switch_are_not_the_same():
    found = compared(study(settings={"x": 1}), study(settings={"x": True}))
    assert [each.values for each in found.settings] == [(1, True)]


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [(1.1, 1.38, "differ"), (1.1, 1.40, "overlap"), (1.46, 1.6, "differ"), (1.3, 1.6, "overlap")],
)
def test_speed_ups_differ_only_where_their_intervals_do_not_touch(low, high, words):
    other = study(speedup=Speedup((low + high) / 2, low, high, 8))
    assert words in verdict_of_speedups(compared(study(), other))


@pytest.mark.parametrize(
    "others", [(study(speedup=None),), (study(script="x.py"),), (study(), study())]
)
def test_where_speed_ups_cannot_be_compared_nothing_is_said_of_them(others):
    assert verdict_of_speedups(compared(study(), *others)) is None


def test_an_unknown_environment_is_not_the_same_as_a_known_one():
    found = compared(study(), study(environment=environment(driver=None)))
    assert [(each.name, each.values) for each in found.environment] == [
        ("driver", ("570.86.15", None))
    ]
