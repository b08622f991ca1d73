"""The list of public scripts with Triton kernels of their own, and rows of its table."""

import json

import pytest

from tests.benchmark_files import loaded

public = loaded("fetch_public")
module = loaded("triton_in_scripts")


@pytest.fixture
def listed(tmp_path):
    return module.scripts(tmp_path, module.SCRIPTS)


def test_each_script_says_what_is_right_and_whose_data_can_be_made(listed):
    for script in listed.values():
        assert len(script.about["expected"]) > 100
        assert ("module" in script.about) is not ("script" in script.about)
        assert script.about.get("data", {}).keys() <= public.MAKERS.keys()


def test_a_row_has_the_gain_and_what_was_said_of_each_kernel(listed):
    result = {
        "verdict": "faster",
        "device": {"name": "NVIDIA H200"},
        "baseline": {"step_ms": {"p50": 81.26}},
        "speedup": {"ratio": 1.0421, "ci99_low": 1.031, "ci99_high": 1.0534},
        "equivalence": {"status": "equivalent"},
        "notes": ["rational_bwd_kernel(n: 8): 10 us instead of 20 us"],
    }
    line, _, right, _, *notes = module.row(listed["flash_kat"], result).splitlines()
    assert line == (
        "| OSU-STARLAB/FlashKAT `flash_kat` | 81.3 ms | faster | 1.042x (1.031-1.053) "
        "| equivalent | NVIDIA H200 |"
    )
    assert right.startswith("Right: Fixed meta-parameters, grids given as numbers")
    assert notes == ["- rational_bwd_kernel(n: 8): 10 us instead of 20 us"]


def test_a_row_of_a_study_that_proved_nothing(listed):
    result = {"verdict": "not_tried", "device": {"name": "cpu"}, "speedup": None, "notes": []}
    line = module.row(listed["fla_hgrn"], result).splitlines()[0]
    assert line.endswith("| not measured | not_tried | no proof | not checked | cpu |")


@pytest.mark.parametrize(
    ("told", "settled"),
    [
        ({"needed_s": None, "wall_s": 190, "budget_s": 264}, True),
        ({"needed_s": 349, "wall_s": 190, "budget_s": 264}, False),
        ({"needed_s": 349, "wall_s": 190, "budget_s": 500}, True),
        ({"needed_s": 349, "wall_s": 190}, False),
        ({"needed_s": 349, "wall_s": 600}, True),
    ],
)
def test_what_had_too_little_time_is_tried_again_with_more(tmp_path, told, settled):
    result = tmp_path / "triton-x.json"
    assert not module.is_settled(result, 500)
    result.write_text(json.dumps(told), "utf-8")
    assert module.is_settled(result, 500) is settled


COMPILING = """
import os, pathlib, time
made = pathlib.Path(os.environ["TRITON_CACHE_DIR"], "kernel")
made.mkdir(parents=True)
pathlib.Path("starts").open("a").write("x")
time.sleep(600)
"""


@pytest.mark.parametrize("left_s", [60, 0])
def test_a_first_start_lasts_until_all_is_compiled_and_goes_on_if_it_is_cut_off(
    tmp_path, monkeypatch, left_s
):
    monkeypatch.setattr(module, "QUIET_S", 0.1)
    monkeypatch.setattr(module, "LOOK_S", 0.02)
    (tmp_path / "o+n").mkdir()
    (tmp_path / "o+n" / "train.py").write_text(COMPILING, "utf-8")
    cache = {"TRITON_CACHE_DIR": "{root}/cache"}
    about = {"name": "x", "script": "train.py", "folder": ".", "args": [], "first_s": 1}
    script = public.Script(tmp_path, "o/n", {**about, "environment": cache})
    module.start_once(script, left_s)
    assert (tmp_path / "cache" / "whole-x").exists() is bool(left_s)
    if left_s:
        module.start_once(script, left_s)
        assert (tmp_path / "o+n" / "starts").read_text("utf-8") == "x"
