"""A script's loader, timed alone in processes of its own, under more and more workers."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from gpuadvisor.collectors.script.live import run_supply
from gpuadvisor.collectors.script.request import Command
from gpuadvisor.collectors.script.specification import Schedule
from gpuadvisor.domain.knobs import LoaderFacts
from gpuadvisor.domain.screening import Block
from gpuadvisor.errors import ScriptError
from tests.integration.runs import request

SCRIPT = """\
import sys, time
import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

print("started", flush=True)
WAIT_S = 0.02

class Data(Dataset):
    def __init__(self, count=4096):
        self.count, self.cache, self.file = count, {}, None
    def __len__(self):
        return self.count
    def __getitem__(self, index):
        time.sleep(WAIT_S / 4)
        return torch.full((4,), float(index))

class Cached(Data):
    def __getitem__(self, index):
        if index not in self.cache:
            self.cache[index] = super().__getitem__(index)
        return self.cache[index]

class Shared(Data):
    def __init__(self):
        super().__init__()
        self.file = open(__file__, "rb", buffering=0)
    def __getitem__(self, index):
        self.file.seek(index % 256)
        self.file.read(1)
        return super().__getitem__(index)

class Drawing(Data):
    def __init__(self):
        super().__init__()
        self.rng = numpy.random.default_rng(0)
    def __getitem__(self, index):
        return super().__getitem__(index) + float(self.rng.random())

class Broken(Data):
    def __getitem__(self, index):
        if torch.utils.data.get_worker_info() is not None:
            raise ValueError("no workers here")
        return super().__getitem__(index)

class Stream(Data, IterableDataset):
    def __iter__(self):
        return (self[index] for index in range(self.count))

def main():
    kind = sys.argv[1]
    data = Data(40) if kind == "Short" else globals()[kind]()
    for _ in DataLoader(Data(8), batch_size=4):  # another one, before
        pass
    model = nn.Linear(4, 2)
    for x in DataLoader(data, batch_size=4, **eval(sys.argv[2])):
        print("trained", flush=True)
        model(x).sum().backward()  # an optimizer imports half as much as torch itself

if __name__ == "__main__":
    main()
"""
LOADER = LoaderFacts(4, 0, False, False, None, place=1)


def workers(count, seconds=0.2, **more):
    return Block({"dataloader_workers": count, **more}, seconds)


def asked(*blocks):
    """Ask for blocks one after the other, and return what was told."""
    told = []
    for block in blocks:
        told += yield [block]
    return told


@pytest.fixture
def supply(tmp_path, torch_imported):
    """A function that times the loader of a script in blocks, and returns what it printed, too."""
    (tmp_path / "train.py").write_text(SCRIPT)

    def run(kind, *blocks, options="{}", loader=LOADER):
        said = []
        command = Command(sys.executable, "train.py", (kind, options), folder=str(tmp_path))
        wanted = request(command, Schedule())
        wanted = replace(wanted, on_output=said.append, template=torch_imported)
        told = run_supply(wanted, loader, asked(*blocks))
        return told, b"".join(said).decode()

    return run


def test_more_workers_than_cores_supply_more_where_the_loader_waits(supply):
    (none, one, eight), said = supply("Data", workers(0), workers(1), workers(8))
    assert not none.failed + one.failed + eight.failed
    assert none.step_ms >= 20
    assert one.step_ms >= 10  # some of them it had prepared before
    assert eight.step_ms < one.step_ms
    assert eight.steps % 8 == 0, "in rounds, of which each worker gives one batch"
    assert said.count("started") == 1
    assert "trained" not in said


def test_passes_that_are_shorter_than_a_block_are_timed_whole(supply):
    (told,), _ = supply("Short", workers(4, prefetch_factor=4))
    assert told.steps % 10 == 0
    assert told.step_ms >= 5


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Cached", "Shared", "Drawing"])
def test_what_reading_changes_is_as_it_was_in_the_next_block(supply, kind):
    """A block that fills the cache, draws from a generator or moves a file's offset, which workers
    share, is the last of its process."""
    told, said = supply(kind, workers(0), workers(2), workers(0))
    assert all(not each.failed for each in told)
    assert told[2].step_ms > 15, "not what the first block has cached"
    assert said.count("started") == (3 if kind == "Shared" else 2)


@pytest.mark.slow
def test_workers_leave_a_cache_alone(supply):
    told, said = supply("Cached", workers(1), workers(2), workers(1))
    assert all(each.step_ms > 8 for each in told)
    assert said.count("started") == 1


@pytest.mark.slow
def test_what_cannot_be_had_is_told_and_the_others_go_on(supply):
    (broken, none), _ = supply("Broken", workers(2), workers(0))
    assert broken.failed == "ValueError: no workers here"
    assert none.step_ms >= 20
    (more, same), _ = supply("Stream", workers(2), workers(0))
    assert "streams an IterableDataset" in more.failed
    assert same.step_ms >= 20


@pytest.mark.slow
def test_the_scripts_own_settings_hold_where_none_are_ordered(supply):
    options = "dict(num_workers=2, persistent_workers=True, prefetch_factor=3)"
    (own, none), _ = supply("Data", Block({}, 0.2), workers(0), options=options)
    assert own.step_ms < none.step_ms


@pytest.mark.slow
def test_a_script_that_never_reads_from_it(supply):
    with pytest.raises(ScriptError, match="ended"):
        supply("Data", workers(1), loader=replace(LOADER, place=5))
