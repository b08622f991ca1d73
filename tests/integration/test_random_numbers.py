"""Two runs draw the same random numbers, or others from the first forward pass on."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from gpuadvisor.collectors.script.request import Command
from gpuadvisor.collectors.script.runner import run_script
from tests.integration import runs

SELF_SEEDED = """
import torch
torch.manual_seed(1111)
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Dropout(0.5))
while True:
    model(torch.ones(4, 16)).square().mean().backward()
"""


@pytest.fixture(scope="module")
def losses(tmp_path_factory, torch_imported):
    folder = tmp_path_factory.mktemp("seeded")
    (folder / "script.py").write_text(SELF_SEEDED)
    request = runs.request(Command(sys.executable, "script.py", folder=str(folder)), runs.QUICK)
    seen = {}
    for name, reseed in (("first", None), ("same", None), ("other", 2)):
        specification = replace(request.specification, reseed=reseed)
        wanted = replace(request, specification=specification, template=torch_imported)
        outcome = run_script(wanted)
        assert outcome.measurement is not None, outcome.output
        seen[name] = outcome.measurement.trace.losses
    return seen


def test_equally_seeded_runs_agree(losses):
    assert losses["first"] == losses["same"]


def test_a_script_that_seeds_itself_still_draws_others(losses):
    assert losses["first"] != losses["other"]
