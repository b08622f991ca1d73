"""One shortened life of a real script, as its harness writes it down, and what it draws.

But for one they are forked, as each would import torch anew; those of a study, in fresh processes
and private views, are looked at in `test_tune.py`.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from gpuadvisor.collectors.script.request import Command
from gpuadvisor.collectors.script.runner import run_life, run_script
from gpuadvisor.collectors.script.specification import HASH_SEED, Shortening
from gpuadvisor.domain.study import Aspect, TrialState
from gpuadvisor.tuners.equivalence import relative_difference
from gpuadvisor.tuners.knobs import load_knobs
from gpuadvisor.tuners.rehearsal.comparison import missing
from gpuadvisor.tuning.rehearsal import Rehearser
from gpuadvisor.tuning.trials.trial_runner import Side
from tests.integration import runs

DESCEND = """
def descend(model):  # an optimizer imports half as much as torch itself
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= 0.1 * parameter.grad
"""
SCRIPT = f"""
import os, torch
from torch import nn
{DESCEND}
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))
for step in range(12):
    x = torch.randn(32, 8)
    loss = model(x).square().mean()
    model.zero_grad()
    loss.backward()
    descend(model)
seen = int(model[1].num_batches_tracked)
print("drawn", torch.rand(1).item(), "mode", model.training, "seen", seen, flush=True)
os._exit(0)  # taking torch down again takes a fifth of a run's time
"""


ENDLESS = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
held_out = torch.randn(4, 8)
def batches():
    while True:
        yield torch.randn(32, 8)
for step, x in zip(range(19), batches()):
    model.train()
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 6 == 0:
        for _ in range(2):
            model.eval()
            with torch.no_grad():
                model(held_out)
"""
EPOCHS = f"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
{DESCEND}
model, total = nn.Linear(8, 1), 9
loader = DataLoader(TensorDataset(torch.randn(256, 8)), batch_size=8)
for epoch in range(total):
    if epoch == total - 4:
        model.bias.requires_grad_(False)
    for (x,) in loader:
        model.zero_grad()
        model(x).square().mean().backward()
        descend(model)
    print(epoch, model.bias.requires_grad)
too_deep = lambda n: SUM
""".replace("SUM", " + ".join(["n"] * 600))


@pytest.fixture(scope="module")
def lived(torch_imported):
    """A function that returns the life of a script."""

    def lived(
        folder, nudge=0.0, reseed=None, script=SCRIPT, template=torch_imported,
        state=TrialState.COMPLETE, **shortening,
    ):  # fmt: skip
        (folder / "train.py").write_text(script)
        command = Command(sys.executable, "train.py", folder=str(folder))
        request = replace(runs.request(command), template=template, scratch=template is None)
        request = replace(request, specification=replace(request.specification, reseed=reseed))
        life = run_life(request, Shortening("", nudge=nudge, **shortening))
        assert life.state is state, life.output
        return life

    return lived


@pytest.fixture(scope="module")
def plain(lived, tmp_path_factory):
    """The unchanged script's life."""
    return lived(tmp_path_factory.mktemp("plain"))


def flat(calls):
    return [value for call in calls for row in call.values for value in row]


def test_weights_that_were_changed_a_little(lived, plain, tmp_path):
    nudged = lived(tmp_path, 1e-3)
    assert nudged.output == plain.output, "the script draws the same and has the same state"
    assert "mode True seen 12" in plain.output
    assert 1e-5 < relative_difference(flat(plain.calls[:1]), flat(nudged.calls[:1])) < 1e-2
    assert len(plain.losses) == len(nudged.losses) == 12
    assert plain.losses != nudged.losses
    assert list(nudged.losses) == pytest.approx(list(plain.losses), rel=0.02)
    # In evaluation mode batch normalisation uses its running statistics, so this is another output.
    assert len(plain.evaluations) == 1
    assert relative_difference(flat(plain.evaluations), flat(plain.calls[:1])) > 0.01
    assert not plain.probes
    assert plain.failures == ()
    assert [call.grad for call in plain.calls] == [True] * 12
    assert len({call.random for call in plain.calls}) == 12
    assert [call.random for call in nudged.calls] == [call.random for call in plain.calls]


@pytest.mark.parametrize(("seed", "alike"), [(None, False), ("0", True)])
def test_interpreters_that_it_starts_hash_texts_by_the_users_seed_only(
    lived, tmp_path, monkeypatch, seed, alike
):
    if seed is None:
        monkeypatch.delenv(HASH_SEED, raising=False)
    else:
        monkeypatch.setenv(HASH_SEED, seed)
    script = "\n".join(
        (
            "import subprocess, sys, torch",
            "other = subprocess.check_output([sys.executable, '-c', 'print(hash(\"word\"))'])",
            "print('alike', int(other) == hash('word'))",
        )
    )
    life = lived(tmp_path, script=script)
    assert life.output.endswith(f"alike {alike}")
    assert lived(tmp_path, script=script).output == life.output


def test_other_random_numbers_from_the_first_call_on(lived, plain, tmp_path):
    other = lived(tmp_path, reseed=2)
    same = [a.input == b.input for a, b in zip(plain.calls, other.calls, strict=True)]
    assert same == [True] + [False] * 11
    assert not any(a.random == b.random for a, b in zip(plain.calls, other.calls, strict=True))


@pytest.mark.parametrize("redraws", [False, True])
def test_other_data_is_drawn_where_that_is_asked_for(lived, tmp_path, redraws):
    script = "\n".join(
        (
            "import random, numpy, torch",
            "random.seed(0), numpy.random.seed(0), torch.manual_seed(0)",
            "torch.nn.Linear(2, 2)(torch.ones(1, 2))",
            "print(random.random(), numpy.random.rand(), torch.rand(1).item())",
        )
    )
    ours, other = (
        lived(tmp_path, script=script, reseed=seed, redraws_data=redraws).output.split()
        for seed in (None, 2)
    )
    assert [a == b for a, b in zip(ours, other, strict=True)] == [not redraws] * 2 + [False]


def test_weights_are_made_equal_before_an_evaluation_within_a_pass(lived, tmp_path):
    (tmp_path / "kept").mkdir()
    kept = str(tmp_path / "kept")
    own, other, taking = (
        lived(tmp_path, nudge, script=ENDLESS, weights=weights, takes_weights=takes)
        for nudge, weights, takes in ((0.0, kept, False), (0.1, "", False), (0.1, kept, True))
    )
    evaluated, others, taken = (
        [call.values for call in life.calls if not call.grad] for life in (own, other, taking)
    )
    assert len(evaluated) == 8
    assert taken == evaluated, "also where further steps are behind it"
    assert not any(a == b for a, b in zip(evaluated, others, strict=True))
    # After the first and fourth step, and before the three evaluations that further steps precede.
    assert (own.equalled, other.equalled, taking.equalled) == (0, 0, 5)
    begun = [[update.losses for update in life.updates] for life in (own, taking)]
    assert begun[0][1:] == begun[1][1:] and begun[0][0] != begun[1][0]
    assert len(begun[0]) == 5


NAMED = """
import os, torch
from torch import nn
from torch.utils.data import DataLoader
class Pictures:
    def __init__(self): self.samples = [(f"{n}.png", n) for n in range(500)]
    def __len__(self): return len(self.samples)
    def __getitem__(self, n): return torch.full((4,), self.samples[n][1] / 500)
torch.manual_seed(0)
model, found = nn.Linear(4, 1), []
loader = DataLoader(Pictures(), batch_size=8)
with torch.no_grad():
    for x in loader:
        found += model(x).flatten().tolist()
with open("outputs.csv", "w") as file:
    for (name, _), value in zip(loader.dataset.samples, found, strict=True):
        print(name, value, sep=",", file=file)
"""


@pytest.mark.parametrize(("fewer", "state"), [(False, "crashed"), (True, "complete")])
def test_a_script_that_needs_an_output_for_each_sample(lived, tmp_path, fewer, state):
    """timm's `inference.py` writes file names and outputs into one table."""
    life = lived(
        tmp_path,
        script=NAMED,
        state=TrialState(state),
        batches=4,
        fewer_samples=fewer,
        template=None,
    )
    (only,) = life.epochs
    assert (len(only.batches), only.rows, only.whole_batches) == (4, 3 * 8 + 500 % 8, 63)
    if fewer:
        assert life.written["outputs.csv"].size > 0 and life.failures == ()


FOR_EVER = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loader = DataLoader(TensorDataset(torch.randn(256, 8)), batch_size=8)
def train():
    while True:
        for (x,) in loader:
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        if len(loader) < 0:
            return
train()
"""


def test_what_has_no_end_is_ended_at_a_step(lived, tmp_path):
    life = lived(tmp_path, script=FOR_EVER, state=TrialState.HUNG, batches=4, ends_after=10)
    assert [(len(each.batches), each.finished) for each in life.epochs] == [
        (4, True),
        (4, True),
        (2, False),
    ]
    assert len(life.losses) == 10 and life.trains and life.failures == ()


@pytest.mark.slow
def test_a_script_without_an_end_is_rehearsed_to_a_step(tmp_path, monkeypatch):
    """Its first life goes on until its time is over, the others to where they show as much."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(FOR_EVER)
    side = Side(Command(sys.executable, "train.py"), runs.CPU)
    rehearser = Rehearser(side, load_knobs(), 0.01, allowed_s=60.0)
    found = rehearser.rehearse({"fused_optimizer": "fused"})
    covered = {Aspect.BATCHES, Aspect.SECOND_EPOCH, Aspect.RESULTS}
    assert covered <= set(found.covered) and not found.problems
    assert Aspect.END not in found.covered and missing(found) is not None
    assert "did not end within 20 s, in which it made" in found.not_covered[Aspect.END]
    assert not found.wants_time
    assert found.wall_s < 55.0


def test_epochs_are_passed_over_to_those_that_matter(lived, tmp_path):
    life = lived(tmp_path, script=EPOCHS, later=4, template=None)  # loops are marked at the start
    assert life.output.splitlines() == ["0 True", "1 True", "5 False", "8 False"]
    assert [(each.number, len(each.batches)) for each in life.epochs] == [(n, 16) for n in range(4)]
    (loop,) = [each for each in life.loops if each.lived]
    assert (loop.planned, loop.done, loop.shortened, loop.lived) == (9, 4, True, (0, 1, 5, 8))
    assert len(loop.seconds) == 4
    (failure,) = life.failures
    assert "could not watch the branches of train.py: RecursionError" in failure


# -- what runs that are measured draw --------------------------------------------------------------

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
