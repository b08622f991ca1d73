"""`report`, `compare` and `export` on real traces, with the real program."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.integration.program import run
from tests.pages import Page, is_alone

DATA = Path(__file__).parents[1] / "data" / "profiles"
ALONE = DATA / "v100_resnet50_workers0.json.gz"
WORKERS = DATA / "v100_resnet50_workers4.json.gz"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A store with both traces in it."""
    folder = tmp_path_factory.mktemp("home")
    answer = run(folder, "import", str(ALONE), str(WORKERS), folder=folder)
    assert answer.status == 0, answer.err
    return folder


@pytest.fixture(scope="module")
def comparison(home):
    answer = run(home, "compare", ALONE.name[:-8], WORKERS.name[:-8], "--json", folder=home)
    assert answer.status == 0, answer.err
    return json.loads(answer.out)


def test_the_page_of_a_stored_profile(home, here):
    answer = here(home, "report", "v100_resnet50_workers0", "--html", "page.html")
    assert answer.status == 0, answer.err
    content = (home / "page.html").read_text("utf-8")
    is_alone(content)
    assert "waiting for data" in content
    assert len(content) < 300_000


@pytest.mark.parametrize(
    "name",
    ["h100_small_cnn_train.json.gz", "mi300_bert_small.json.gz", "hta_cpu_only.json.gz"],
)
def test_the_page_of_a_file(name, tmp_path, here):
    answer = here(tmp_path, "report", str(DATA / name), "--html", "page.html")
    assert answer.status == 0, answer.err
    Page((tmp_path / "page.html").read_text("utf-8"))


def test_occupancy_where_kinetos_is_zero(tmp_path, here):
    path = DATA / "h100_small_cnn_train.json.gz"
    answer = here(tmp_path, "report", str(path), "--json")
    kernels = json.loads(answer.out)["kernels"]
    wrong = [each for each in kernels if each["kineto_occupancy_is_wrong"]]
    assert wrong
    assert all(each["shared_bytes"] > 48 * 1024 for each in wrong)
    assert all(each["occupancy"] > 0 for each in wrong)


def test_workers_are_what_changed_the_waiting_for_data(comparison):
    moved = max(comparison["parts"], key=lambda each: abs(each["worth_ns"]))
    assert moved["name"] == "waiting_for_data"
    assert moved["verdict"] == "faster"
    assert moved["worth_ns"] < -40e6  # of a step of 175 ms
    assert comparison["before"]["data_wait_share"] > 0.3 > comparison["after"]["data_wait_share"]


def test_steps_are_what_the_sample_says(comparison):
    assert comparison["per_step"]
    assert comparison["before"]["step_mean_ns"] == pytest.approx(174.8e6, rel=0.01)
    assert comparison["after"]["step_mean_ns"] == pytest.approx(139.7e6, rel=0.01)
    assert comparison["remarks"] == []


def test_a_comparison_on_the_terminal(home, here):
    answer = here(home, "compare", str(ALONE), str(WORKERS))
    assert answer.status == 0, answer.err
    assert "A step takes 141 ms instead of 178 ms: 1.26x as fast." in answer.out
    assert "ms less of idle: waiting for data." in answer.out
    assert max(map(len, answer.out.splitlines())) < 130


def test_a_comparison_as_markdown(home, here):
    words = ["compare", str(ALONE), str(WORKERS), "--markdown", "x.md"]
    answer = here(home, *words)
    assert answer.status == 0, answer.err
    assert "| idle: waiting for data |" in (home / "x.md").read_text("utf-8")


def test_an_export_is_the_same_profile(home, here):
    answer = here(home, "export", "v100_resnet50_workers0", "-o", "out.json.gz")
    assert answer.status == 0, answer.err
    again = here(home, "compare", "v100_resnet50_workers0", "out.json.gz", "--json")
    found = json.loads(again.out)
    for what in ("parts", "kernels", "operators", "copies"):
        assert found[what]
        assert {each["worth_ns"] for each in found[what]} == {0}


def test_an_export_does_not_replace_a_file(home, here):
    (home / "there.json").write_text("mine")
    words = ["export", "v100_resnet50_workers0", "-o", "there.json"]
    answer = here(home, *words)
    assert answer.status == 2
    assert answer.sentence == "there.json is there already: choose another name, or add --force"
    assert (home / "there.json").read_text() == "mine"
    assert here(home, *words, "--force").status == 0


def test_an_export_to_an_unknown_format(home, here):
    answer = here(home, "export", "v100_resnet50_workers0", "-o", "x.csv")
    assert answer.status == 2
    assert "ends in neither .json nor .json.gz" in answer.sentence


@pytest.mark.parametrize("command", ["report", "compare"])
def test_an_unknown_name_lists_near_ones(command, home, here):
    words = ["v100_resnet_workers4"] * (2 if command == "compare" else 1)
    answer = here(home, command, *words)
    assert answer.status == 2
    assert "there are: profiles v100_resnet50_workers4, v100_resnet50_workers0." in answer.sentence


def test_a_file_that_is_no_profile(tmp_path, here):
    shutil.copy(__file__, tmp_path / "x.json")
    answer = here(tmp_path, "report", "x.json")
    assert answer.status == 2
    assert "is no profile that gpuadvisor knows" in answer.sentence
