"""A running script that does not wait for its loader for some blocks, and then goes on."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

import pytest

from gpuadvisor.collectors.script.live import run_live
from gpuadvisor.collectors.script.request import Command
from gpuadvisor.collectors.script.specification import Schedule
from gpuadvisor.domain.screening import Block
from gpuadvisor.tuners.loader.ceiling import CACHED
from gpuadvisor.tuners.screening.course import screen
from gpuadvisor.tuners.space import Space
from tests.integration.runs import request

LIVE = {CACHED: "gpuadvisor.collectors.script.child.cached_batch:CACHED"}
SCRIPT = """\
import sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self):
        return 100_000
    def cost(self, index):  # varies between batches: that of some is five times the usual
        return 2.5 if index // 4 % 4 == 0 else 0.5
    def __getitem__(self, index):
        time.sleep(float(sys.argv[1]) / 4 * self.cost(index))
        return {"x": torch.full((4,), float(index)), "names": [str(index)]}

def main():
    model = nn.Linear(4, 2)
    for batch in DataLoader(Data(), batch_size=4, num_workers=int(sys.argv[2])):
        x = batch["x"]
        print("batch", int(x[0, 0]), int(x.sum()), len(batch), len(batch["names"][0]), flush=True)
        if sys.argv[3] == "in_place":
            x.add_(1.0)
            batch["names"].append("more")
            batch["more"] = x
        if sys.argv[3] == "numpy":
            x.numpy()[:] += 1
        time.sleep(0.01)
        model(x / 1e9).sum().backward()  # an optimizer imports half as much as torch itself

if __name__ == "__main__":
    main()
"""


OWN_CLOCK = """\
import time
asleep = [0.0]
time.sleep = lambda seconds: asleep.__setitem__(0, asleep[0] + seconds)
time.perf_counter = lambda: asleep[0]
"""
"""Has steps take what they sleep and nothing else, in no time; what workers sleep is not seen."""
STEADY = "Data.cost = lambda self, index: 1.0\n"


def asked(*blocks):
    return (yield list(blocks))


@pytest.fixture
def live(tmp_path, torch_imported):
    def run(screening, load_s, workers, change="none", clock=""):
        (tmp_path / "train.py").write_text(SCRIPT.replace("\ndef main", f"{clock}\ndef main"))
        said = []
        command = Command(
            sys.executable, "train.py", (str(load_s), str(workers), change), folder=str(tmp_path)
        )
        wanted = request(command, Schedule(warmup_s=0.05))
        wanted = replace(wanted, on_output=said.append, template=torch_imported)
        found = run_live(wanted, LIVE, screening)
        lines = re.findall(r"batch (\d+) (\d+) (\d+) (\d+)", b"".join(said).decode())
        return found, [tuple(map(int, line)) for line in lines]

    return run


USUAL, FREE = Block({}, 0.3), Block({CACHED: True}, 0.3)


@pytest.mark.parametrize(
    ("workers", "load_s", "change"),
    [
        (0, 0.03, "in_place"),
        *(pytest.param(2, 0.12, each, marks=pytest.mark.slow) for each in ("none", "numpy")),
    ],
)
def test_no_batch_is_lost_and_what_the_script_writes_to_one_does_not_stay(
    live, workers, load_s, change
):
    (before, free, after, again), batches = live(
        asked(USUAL, FREE, USUAL, FREE), load_s, workers, change, "" if workers else OWN_CLOCK
    )
    assert not before.failed + free.failed + after.failed + again.failed
    assert free.step_ms < before.step_ms
    assert again.step_ms < after.step_ms
    different = list(dict.fromkeys(batches))
    assert [first for first, *_ in different] == [4 * n for n in range(len(different))]
    assert all(total == 16 * first + 24 for first, total, *_ in different)
    assert {tuple(rest) for _, _, *rest in different} == {(2, 4)}
    repeated = [batch for batch in different if batches.count(batch) > 1]
    assert len(repeated) == 2
    assert all(abs(batches.count(batch)) >= 8 for batch in repeated)


def test_the_ceiling_is_what_loading_takes(live):
    """By a clock that only sleep moves: a step sleeps for 10 ms, and loads for 30 more."""
    found, _ = live(screen(Space(), lambda: 60.0, cached=True), 0.03, 0, clock=OWN_CLOCK + STEADY)
    ceiling = found.loaders
    assert [ceiling.low, ceiling.ratio, ceiling.high] == pytest.approx([4.0] * 3)


def test_a_batch_is_given_several_times_over_in_one(live):
    larger = Block({CACHED: 3}, 0.2)
    times, lines = live(asked(FREE, larger, FREE), 0.001, 0)
    assert not any(each.failed for each in times)
    folds = [total / (16 * first + 24) for first, total, *_ in lines]
    assert set(folds) == {1.0, 3.0}
    assert folds.count(3.0) >= times[1].steps


@pytest.mark.slow
def test_batches_grow_no_further_than_the_memory(live):
    enormous = Block({CACHED: 1_000_000_000}, 0.2)
    (small, failed, after), _ = live(asked(FREE, enormous, FREE), 0.001, 0)
    assert "would need" in failed.failed
    assert not small.failed and not after.failed
