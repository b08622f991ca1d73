"""A script with torch, run in a fork of a process that has imported torch already."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpuadvisor.collectors.script.request import Command
from gpuadvisor.collectors.script.runner import run_script, start_template
from tests.integration import program, runs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forked on Linux only")

SCRIPT = """
import gc, numpy, torch
from own import Squares
if __name__ == "__main__":
    print(torch.rand(1).item(), numpy.random.rand())
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(), torch.nn.Linear(8, 1))
    for workers in (0, 1):
        loader = torch.utils.data.DataLoader(
            Squares(), batch_size=8, shuffle=True, num_workers=workers,
            multiprocessing_context="fork" if workers else None,
        )
        for batch in loader:
            loss = model(batch).square().mean()
            loss.backward()
            with torch.no_grad():  # an optimizer imports half as much as torch itself
                for parameter in model.parameters():
                    parameter -= 0.01 * parameter.grad
            model.zero_grad()
        print(workers, loss.item(), torch.rand(64, 64).matmul(torch.rand(64, 64)).sum().item())
gc.freeze()  # else the interpreter looks through all of torch before it ends: half a second
"""
OWN = """
import torch
print("own module")
class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return torch.rand(8) * index
"""


def test_a_forked_run_computes_what_a_fresh_one_does_and_begins_sooner(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "own.py").write_text(OWN)
    command = Command(sys.executable, "train.py", folder=str(tmp_path))
    wanted = runs.request(command, OMP_NUM_THREADS="2")
    notes = tmp_path / "notes.json"
    noted = replace(wanted, specification=replace(wanted.specification, notes=str(notes)))
    fresh = run_script(noted)
    template = start_template(wanted, notes)
    try:
        forked = run_script(replace(wanted, template=template))
    finally:
        template.close()
    assert (fresh.forked, forked.forked) == (False, True)
    assert (forked.state, forked.reason) == (fresh.state, fresh.reason)
    assert len(fresh.output.splitlines()) == 4
    assert forked.output == fresh.output
    assert forked.steps == fresh.steps == 16
    assert fresh.torch_s is not None
    assert forked.torch_s is not None
    assert forked.torch_s < fresh.torch_s
    if fresh.measurement and forked.measurement:
        assert repr(forked.measurement.trace) == repr(fresh.measurement.trace)  # NaN, too


def test_a_library_that_imports_torch_itself_is_imported_ahead(tmp_path: Path) -> None:
    """When torch is there, that library is not yet; what it changes then, it changes later."""
    packages = tmp_path / "site-packages"
    (packages / "wrapping").mkdir(parents=True)
    (packages / "wrapping" / "__init__.py").write_text(
        "import os, torch\nos.environ['CHOSEN_BY_IT'] = 'here'\nprint(os.getpid())\n"
    )
    (tmp_path / "train.py").write_text(
        "import gc, os, wrapping\n"
        "model = wrapping.torch.nn.Linear(2, 1)\n"
        "for _ in range(8): model(wrapping.torch.ones(1, 2)).sum().backward()\n"
        "print(os.getpid(), os.environ['CHOSEN_BY_IT'])\n"
        "gc.freeze()\n"
    )
    command = Command(sys.executable, "train.py", folder=str(tmp_path))
    wanted = runs.request(command, PYTHONPATH=f"{packages}:{program.QUICK}")
    notes = tmp_path / "notes.json"
    fresh = run_script(
        replace(wanted, specification=replace(wanted.specification, notes=str(notes)))
    )
    template = start_template(wanted, notes)
    try:
        forked = run_script(replace(wanted, template=template))
    finally:
        template.close()
    imported, *rest = fresh.output.split()
    assert rest == [imported, "here"]
    imported, *rest = forked.output.split()
    assert forked.forked
    assert rest[0] != imported == str(template.process.pid)
    assert rest[1:] == ["here"]
