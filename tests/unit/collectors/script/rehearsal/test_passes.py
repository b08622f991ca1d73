"""Passes over loaders are shortened to the same samples, timed and written down."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from pathlib import Path

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
    dataloader,
)

from gpuadvisor.collectors.script.child.rehearsal.passes import Part, Passes
from gpuadvisor.collectors.script.child.rehearsal.record import Record, record_file
from gpuadvisor.collectors.script.child.rehearsal.short_sampler import (
    ShortSampler,
    short_batches,
    whole_batches,
)
from gpuadvisor.collectors.script.child.shortening.progress import Progress


def sampler(count, size, drop_last=False, shuffle=False):
    data = range(count)
    kind = RandomSampler if shuffle else SequentialSampler
    return BatchSampler(kind(data), size, drop_last)


class TestSampler:
    @pytest.mark.parametrize("shuffle", [False, True])
    def test_each_pass_has_the_same_samples_spread_evenly(self, shuffle):
        short = ShortSampler(torch, sampler(1000, 8, shuffle=shuffle), 4, 8)
        passes = [[each for batch in short for each in batch] for _ in range(3)]
        assert {frozenset(each) for each in passes} == {frozenset(passes[0])}
        assert len(passes[0]) == 32
        assert max(passes[0]) > 900
        assert (passes[0] == sorted(passes[0])) is not shuffle

    @pytest.mark.parametrize(("drop_last", "sizes"), [(False, [8, 8, 8, 3]), (True, [8, 8, 8])])
    def test_the_last_batch_is_as_incomplete_as_that_of_the_whole(self, drop_last, sizes):
        short = ShortSampler(torch, sampler(1003, 8, drop_last), 4, 8)
        assert [len(batch) for batch in short] == sizes
        assert len(short) == len(sizes)

    def test_larger_batches_read_the_same_samples(self):
        own = ShortSampler(torch, sampler(1000, 8), 4, 8)
        doubled = ShortSampler(torch, sampler(1000, 16), 4, 8)
        assert [i for b in own for i in b] == [i for b in doubled for i in b]

    def test_a_short_data_set_is_read_whole(self):
        short = ShortSampler(torch, sampler(20, 8), 4, 8)
        assert list(short) == list(sampler(20, 8))

    def test_a_sampler_without_an_end_gives_as_many_as_are_asked_for(self):
        """To draw all of them would take 80 GB."""
        endless = RandomSampler(range(50), replacement=True, num_samples=10**10)
        short = ShortSampler(torch, BatchSampler(endless, 8, False), 4, 8)
        assert [len(batch) for batch in short] == [8] * 4
        assert len(short) == 4
        assert whole_batches(short) == 10**10 // 8

    def test_a_sampler_that_does_not_tell_its_length_may_have_no_end(self):
        class Forever(RandomSampler):
            def __len__(self):
                raise TypeError("no end")

        endless = Forever(range(50), replacement=True, num_samples=10**10)
        short = ShortSampler(torch, BatchSampler(endless, 8, False), 4, 8)
        assert [len(batch) for batch in short] == [8] * 4

    def test_a_sampler_of_its_own_making_ends_early_and_shows_through(self):
        class Own:
            batch_size = 2

            def __iter__(self):
                return iter([[1, 2]] * 50)

            def __len__(self):
                return 50

        short = ShortSampler(torch, Own(), 4, 2)
        assert list(short) == [[1, 2]] * 4
        assert (len(short), short.batch_size) == (4, 2)
        assert (short_batches(short), whole_batches(short)) == (4, 50)


@pytest.fixture
def passes(tmp_path, monkeypatch):
    """Passes that stand in DataLoader until the test ends, and what they wrote down."""
    for cls, names in (
        (DataLoader, ("__init__", "__iter__", "_index_sampler")),
        (dataloader._BaseDataLoaderIter, ("__next__",)),
        (dataloader._MultiProcessingDataLoaderIter, ("__init__",)),
    ):
        for name in names:
            monkeypatch.setattr(cls, name, vars(cls)[name])
    made = Passes(
        torch,
        Record(str(tmp_path)),
        4,
        lambda batch: [Part([int(x) for x in batch[0][:, 0]])],
        lambda: 0,
        lambda: None,
        Progress(),
    )
    made.install()

    def written(kind):

        lines = record_file(str(tmp_path), os.getpid()).read_text().splitlines()
        return [record for line in lines if (record := json.loads(line))["record"] == kind]

    return made, written


def numbers(count):
    return TensorDataset(torch.arange(count, dtype=torch.float32)[:, None])


class TestPasses:
    def test_they_are_written_down_with_what_they_gave(self, passes):
        _, written = passes
        loader = DataLoader(numbers(100), batch_size=5)
        assert len(loader) == 4
        for _ in range(2):
            assert sum(1 for _ in loader) == 4
        epochs = written("epoch")
        assert [(each["loader"], each["number"]) for each in epochs] == [(0, 0), (0, 1)]
        assert [each["whole_batches"] for each in epochs] == [20, 20]
        assert all(each["finished"] and each["rows"] == 20 for each in epochs)
        assert epochs[0]["batches"] == epochs[1]["batches"]
        assert all(each["seconds"] > 0 for each in epochs)

    def test_data_sets_have_numbers_and_a_new_one_like_one_that_is_gone_is_the_same(self, passes):
        _, written = passes
        kept = DataLoader(numbers(30), batch_size=5)
        for _ in range(2):
            list(DataLoader(numbers(100), batch_size=5))
            list(kept)
        found = [(each["loader"], each["number"]) for each in written("epoch")]
        assert found == [(0, 0), (1, 0), (0, 1), (1, 1)]

    def test_a_pass_that_is_left_is_written_down_at_the_end(self, passes):
        made, written = passes
        iterator = iter(DataLoader(numbers(100), batch_size=5))
        next(iterator)
        made.finish()
        (epoch,) = written("epoch")
        assert (epoch["finished"], epoch["rows"]) == (False, 5)

    def test_what_a_data_set_changes_is_written_down(self, passes):
        _, written = passes

        class Counting(TensorDataset):
            count = 0

            def __getitem__(self, index):
                self.count += 1
                return (*super().__getitem__(index), torch.rand(1))

        data = Counting(torch.arange(40, dtype=torch.float32)[:, None])
        list(DataLoader(data, batch_size=5))
        found = {(each["path"], each["kind"], each["moment"]) for each in written("change")}
        assert ("dataset.count", "value", "reading") in found
        assert ("torch", "generator", "reading") in found

    @pytest.mark.parametrize("moment", ["read", "stepped"])
    def test_what_a_script_feeds_back_to_its_data_between_batches(self, passes, moment):
        made, written = passes
        weights = torch.ones(100).share_memory_()
        level = multiprocessing.Value("i", 0)

        class Data(TensorDataset):
            def __getitem__(self, index):
                if moment == "read":
                    weights[index] += level.value
                    level.value += 1
                return super().__getitem__(index)

        class Own(SequentialSampler):
            hard = 1.0

        data = Data(*numbers(100).tensors)
        data.weights, data.level = weights, level
        own = Own(data)
        for _ in DataLoader(data, batch_size=5, sampler=own):
            if moment == "stepped":
                weights[3] *= 2
                level.value += 1
                own.hard += 1
        weights[3] *= 2
        own.hard += 1
        made.finish()
        found = {each["path"] for each in written("change") if each["moment"] == "between_batches"}
        all_of_them = {"dataset.weights", "dataset.level", "sampler.hard"}
        assert found == (all_of_them if moment == "stepped" else set())

    @pytest.mark.parametrize("moment", ["read", "stepped"])
    def test_what_a_script_feeds_back_to_the_workers_that_it_has(self, passes, moment):
        made, written = passes

        class Counting(TensorDataset):
            def __getitem__(self, index):
                self.level.value += 1
                self.weights[index] += self.level.value
                return super().__getitem__(index)

        class Steady(TensorDataset):
            def __getitem__(self, index):
                return (*super().__getitem__(index), self.level.value, self.weights[index])

        data = (Counting if moment == "read" else Steady)(*numbers(100).tensors)
        data.level, data.weights = multiprocessing.Value("i", 0), torch.ones(100).share_memory_()
        for _ in DataLoader(data, batch_size=5, num_workers=1, multiprocessing_context="fork"):
            time.sleep(0.02)  # the worker reads on meanwhile
            if moment == "stepped":
                data.level.value += 1
                data.weights[3] *= 2
        made.finish()
        found = {each["path"] for each in written("change") if each["moment"] == "between_batches"}
        assert found == ({"dataset.level", "dataset.weights"} if moment == "stepped" else set())

    def test_looking_at_an_inner_loader_is_no_time_of_the_outer_pass(self, passes, monkeypatch):
        made, written = passes
        slow = made._states.begin
        monkeypatch.setattr(made._states, "begin", lambda *of: (slow(*of), time.sleep(0.05)))
        outer, inner = DataLoader(numbers(100), batch_size=5), DataLoader(numbers(30), batch_size=5)
        began_s = time.perf_counter()
        for _ in outer:
            list(inner)
        wall_s = time.perf_counter() - began_s
        (whole,) = (each for each in written("epoch") if each["whole_batches"] == 20)
        assert whole["seconds"] < wall_s - 4 * 0.05  # four inner passes were looked at for so long

    def test_a_data_set_that_cannot_be_looked_at_is_told(self, passes, monkeypatch):
        _, written = passes
        monkeypatch.setattr("gpuadvisor.collectors.script.child.rehearsal.passes.state_of", None)
        assert sum(1 for _ in DataLoader(numbers(100), batch_size=5)) == 4
        assert {"look at a data set" in each["detail"] for each in written("harness_failed")} == {
            True
        }


def test_records_of_a_process_that_was_killed_in_the_middle(tmp_path: Path):
    from gpuadvisor.collectors.script.lives import _records

    record = Record(str(tmp_path))
    record.send("losses", values=[1.0])
    path = record_file(str(tmp_path), os.getpid())
    path.write_bytes(path.read_bytes() + b'{"kind": "lo')
    assert [each["values"] for each in _records(path)] == [[1.0]]
    assert list(_records(tmp_path / "none")) == []
