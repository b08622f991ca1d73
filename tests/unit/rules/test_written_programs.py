"""The programs with one defect each that a stranger wrote: `benchmarks/defects/written`."""

import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "benchmarks" / "defects" / "written"
ANSWERS = [json.loads(line) for line in (FOLDER / "answers.jsonl").read_text("utf-8").splitlines()]
PAIRS = [each for each in ANSWERS if "cured" in each]
HEALTHY = [each for each in ANSWERS if "cured" not in each]
BETWEEN_FORMS = 0.01
"""Relative; bfloat16 keeps 8 bits, and a fused kernel rounds elsewhere than the unfused ones."""


def test_the_answers_name_every_script_once_and_the_line_that_is_wrong():
    named = [each[form] for each in ANSWERS for form in ("program", "cured") if form in each]
    assert sorted(named) == sorted(path.name for path in FOLDER.glob("*.py"))
    assert (len(PAIRS), len(HEALTHY)) == (20, 6)
    for each in PAIRS:
        program = (FOLDER / each["program"]).read_text("utf-8").splitlines()
        assert program[each["line"] - 1].strip() == each["code"], each["name"]
        assert program != (FOLDER / each["cured"]).read_text("utf-8").splitlines()
        assert each["expected_gain"] in ("large", "medium", "small")
        assert each["wrong"]


def results(script, folder):
    """The numbers that two tiny steps of a script end with, on the CPU."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    tiny = {"TINY": "1", "STEPS": "2", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, FOLDER / script],
        env={**os.environ, **tiny},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    word, *numbers = ended.stdout.splitlines()[-1].split()
    assert word == "final"
    found = [float(number) for number in numbers]
    assert found
    assert all(math.isfinite(number) for number in found)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("answer", PAIRS, ids=lambda each: each["name"])
def test_both_forms_compute_the_same(answer, tmp_path):
    cured = results(answer["cured"], tmp_path)
    assert results(answer["program"], tmp_path) == pytest.approx(cured, rel=BETWEEN_FORMS)


@pytest.mark.slow
@pytest.mark.parametrize("answer", HEALTHY, ids=lambda each: each["name"])
def test_a_healthy_program_runs(answer, tmp_path):
    results(answer["program"], tmp_path)
