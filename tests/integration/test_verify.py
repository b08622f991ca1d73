"""`gpuadvisor verify` with the real program: what it tells by its exit status.

That of a script which cannot be measured is looked at in `test_tune.py`, beside a plan.
"""

import json
import shutil

import pytest

from gpuadvisor.domain.knobs import Level
from gpuadvisor.domain.study import Objective, Plan, Speedup
from gpuadvisor.tuning.plans.file import write_plan
from tests.integration import program

pytestmark = pytest.mark.slow

UNEVEN = """
import pathlib, sys, time, torch
runs = pathlib.Path("runs")
run = len(runs.read_text()) if runs.exists() else 0
runs.write_text("x" * (run + 1))
pause = (0.01, 0.04)[run % 2]  # the second of each two, whatever its settings
model = torch.nn.Linear(4, 1)
for _ in range(16):
    model(torch.ones(2, 4)).mean().backward()
    time.sleep(pause)
"""


def verified(home, pause, arguments, *words, script="paced.py"):
    """The answer for a plan that sets the script's pause and promises twice the speed."""
    write_plan(
        Plan(
            script,
            tuple(arguments),
            {"arg:pause": pause},
            Speedup(2.0, 1.6, 2.4, 8),
            Level.BALANCED,
            Objective.THROUGHPUT,
        ),
        home / "p.toml",
    )
    options = ("--plan", "p.toml", "--budget", "8s", *words)
    return program.run(home, "verify", script, *options, "--", *arguments, PYTHONPATH=program.CLOCK)


@pytest.fixture
def home(cpu, tmp_path):
    shutil.copy(program.SCRIPTS / "paced.py", tmp_path)
    return tmp_path


def test_0_where_the_plan_holds(home):
    answer = verified(home, "0.03", ("--pause", "0.06", "--steps", "12"), "--json")
    assert answer.status == 0, answer.err
    found = json.loads(answer.out)
    assert found["outcome"] == "holds"
    assert found["study"]["speedup"]["ci99_low"] > 1.6
    listed = program.run(home, "studies", "--folder", ".")
    assert f"verifies {home.resolve() / 'p.toml'}" in listed.out


def test_1_where_the_script_fails_under_the_plan(home):
    answer = verified(home, "soon", ("--steps", "8"))
    assert answer.status == 1
    assert "the script fails under the plan: crashed: " in answer.err.splitlines()[-1]


def test_1_where_the_gain_is_gone(home):
    answer = verified(home, "0.08", ("--pause", "0.08", "--steps", "12"))
    assert answer.status == 1
    assert "gain" in answer.err.splitlines()[-1]


def test_6_where_it_cannot_be_told(home):
    (home / "uneven.py").write_text(UNEVEN)
    answer = verified(home, "0.03", (), script="uneven.py")
    assert answer.status == 6, answer.err
    assert "the interval is too wide to tell" in answer.err.splitlines()[-1]
