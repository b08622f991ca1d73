"""The programs with one defect each that a stranger wrote: `benchmarks/defects/written2`."""

import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

DEFECTS = Path(__file__).parents[3] / "benchmarks" / "defects"
FOLDER = DEFECTS / "written2"


ANSWERS = [json.loads(line) for line in (FOLDER / "answers.jsonl").read_text("utf-8").splitlines()]
PAIRS = [each for each in ANSWERS if "cure" in each]
HEALTHY = [each for each in ANSWERS if "cure" not in each]
LIBRARIES = ("torch", "einops", "timm", "transformers")
BETWEEN_FORMS = 0.01
"""Relative; bfloat16 keeps 8 bits, and a fused kernel rounds elsewhere than the unfused ones."""


@pytest.fixture(scope="module")
def cured(made):
    """What makes the cured form of an answer's program, as `written.py` does."""
    form = made("written").cured
    return lambda answer: form(written(answer), answer["cure"])


def test_answers_name_every_script_once_what_is_wrong_and_its_cure(cured):
    assert sorted(each["program"] for each in ANSWERS) == sorted(
        p.name for p in FOLDER.glob("*.py")
    )
    assert (len(PAIRS), len(HEALTHY)) == (18, 6)
    for each in PAIRS:
        assert written(each).splitlines()[each["line"] - 1].strip() == each["code"], each["name"]
        compile(cured(each), each["name"], "exec")
        assert each["expected_gain"] in ("large", "medium", "small")
        assert each["wrong"]


def test_a_cure_of_what_stands_nowhere_or_twice_is_an_error(cured):
    with pytest.raises(ValueError, match="stands 0 times"):
        cured(PAIRS[0] | {"cure": [["no such line", ""]]})


def results(program, folder):
    """The numbers that six tiny steps of a script end with, on the CPU."""
    for library in LIBRARIES:
        if library in program and importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")
    script = folder / "program.py"
    script.write_text(program, "utf-8")
    tiny = {"TINY": "1", "STEPS": "6", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, script],
        env={**os.environ, **tiny},
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    _, *numbers = ended.stdout.splitlines()[-1].split()  # after "final", or a request's number
    found = [float(number) for number in numbers]
    assert found
    assert all(math.isfinite(number) for number in found)
    return found


def written(answer):
    return (FOLDER / answer["program"]).read_text("utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("answer", PAIRS, ids=lambda each: each["name"])
def test_both_forms_compute_the_same(answer, tmp_path, cured):
    expected = pytest.approx(results(cured(answer), tmp_path), rel=BETWEEN_FORMS)
    assert results(written(answer), tmp_path) == expected


@pytest.mark.slow
@pytest.mark.parametrize("answer", HEALTHY, ids=lambda each: each["name"])
def test_a_healthy_program_runs(answer, tmp_path):
    results(written(answer), tmp_path)
