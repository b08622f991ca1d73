"""Results of tuned kernels in the store, and the file of best points that is kept with them."""

import json
from dataclasses import replace

import pytest

import gpuadvisor
from gpuadvisor.best_points import parsed, store_file
from gpuadvisor.domain.study import Objective, Verdict
from gpuadvisor.errors import UsageError
from gpuadvisor.storage.kernel_studies import best_text, studies, with_evaluations
from tests.tuned_kernels import RESULT, evaluations, kept


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("GPUADVISOR_HOME", str(tmp_path / "home"))


def best(*results):
    return parsed(best_text(results), "best.json")


def test_a_result_comes_back_with_its_evaluations():
    result = kept()
    assert studies().results == (result,)
    found = with_evaluations(result).evaluations
    assert [each.point for each in found] == [each.point for each in evaluations()]


def test_programs_find_it_at_once():
    kept()
    assert store_file().is_file()
    point = gpuadvisor.best("transpose", gpu="NVIDIA H200", rows=8192, columns=8192)
    assert (point, point.found) == ({"block_x": 16, "unroll": 2}, "tuned")
    assert "1.61x the default's speed (99 % interval 1.600 to 1.620)" in point.why


def test_a_kernel_tuned_again_replaces_its_result_unless_it_was_interrupted():
    kept()
    kept(started="2026-11-25T10:00:00+00:00", verdict=Verdict.NO_GAIN, best=None)
    kept(started="2026-11-26T10:00:00+00:00", verdict=Verdict.NOT_TRIED, best=None, speedup=None)
    (found,) = studies().results
    assert found.verdict is Verdict.NO_GAIN


def test_where_nothing_was_faster_the_best_is_the_default():
    for verdict in (Verdict.NO_GAIN, Verdict.INCONCLUSIVE):
        (entry,) = best(result(verdict=verdict, best=None))["transpose"].tuned
        assert entry.point == RESULT.default
    assert best(result(verdict=Verdict.NOT_TRIED, best=None)) == {}


def test_a_gain_of_energy_is_called_so():
    (entry,) = best(result(objective=Objective.ENERGY))["transpose"].tuned
    assert entry.said.startswith("1.61x less energy than the default")


def result(**changes):
    return replace(RESULT, **changes)


def test_of_a_kernel_that_was_changed_only_the_newest_parameters_count():
    old = result(default={"block": 32}, best={"block": 16}, device="NVIDIA A100")
    other = result(file="/elsewhere/transpose.py", device="NVIDIA L4")
    assert [each.device for each in best(RESULT, old, other)["transpose"].tuned] == ["NVIDIA H200"]


@pytest.mark.parametrize("restrictions", [None, ("rows.bit_length() > 3",)])
def test_restrictions_that_cannot_be_kept_are_not_known(restrictions):
    assert best(result(size_restrictions=restrictions))["transpose"].restrictions is None


def test_a_kernel_is_found_by_its_name_or_its_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept(file=str(tmp_path / "a.py"))
    kept(file=str(tmp_path / "b.py"), kernel="sum")
    known = studies()
    for wanted in ("transpose", "a.py", f"{tmp_path}/a.py", "a.py:transpose"):
        assert [each.kernel for each in known.of(wanted)] == ["transpose"], wanted
    assert known.of("b.py:transpose") == known.of("nothing") == []


def test_kernels_of_one_name_in_two_files_are_told_apart(tmp_path):
    kept(file=str(tmp_path / "a.py"))
    kept(file=str(tmp_path / "b.py"))
    with pytest.raises(UsageError, match=r"tuned in several files: name one of .*a.py:transpose"):
        studies().of("transpose")


@pytest.mark.parametrize(
    "text, said",
    [
        ("{", "is damaged"),
        ("{}", "is damaged (KeyError"),
        ('{"format": 1, "result": {"kernel": 3}}', "is damaged"),
        ('{"format": 2, "result": {}}', "newer gpuadvisor (format 2, this one reads 1)"),
    ],
)
def test_a_file_that_cannot_be_read_hides_no_other(text, said):
    first = kept()
    second = kept(device="NVIDIA A100")
    path = next(p for p in store_file().parent.rglob("*.study") if "A100" in p.name)
    path.write_text(text)
    known = studies()
    assert known.results == (first,)
    assert [said in problem and str(path) in problem for problem in known.problems] == [True]
    assert json.loads(store_file().read_text())["kernels"]["transpose"]["default"] == second.default
