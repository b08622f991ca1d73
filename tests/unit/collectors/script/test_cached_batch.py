"""Loaders that hand out the batch that is there already, and then go on."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, dataloader  # noqa: E402

from gpuadvisor.collectors.script.child.cached_batch import CACHED  # noqa: E402


@pytest.fixture
def turn(monkeypatch):
    base = dataloader._BaseDataLoaderIter
    monkeypatch.setattr(base, "__next__", base.__next__)
    return CACHED.live(None)


def batches():
    return iter(DataLoader(torch.arange(100.0), batch_size=4))


def test_the_stream_goes_on_where_it_was(turn):
    iterator = batches()
    assert next(iterator)[0] == 0
    turn(True)
    assert [int(next(iterator)[0]) for _ in range(5)] == [4] * 5
    turn(True)
    assert int(next(iterator)[0]) == 4
    turn(None)
    assert [int(next(iterator)[0]) for _ in range(3)] == [8, 12, 16]
    turn(True)
    other = batches()
    assert [int(next(each)[0]) for each in (iterator, other, iterator, other)] == [20, 0, 20, 0]
    turn(None)
    assert [int(batch[0]) for batch in iterator] == list(range(24, 100, 4))


@pytest.mark.parametrize("write", [lambda x: x.mul_(2), lambda x: x.numpy().fill(3)])
def test_what_is_written_to_a_batch_does_not_stay(turn, write):
    iterator = batches()
    turn(True)
    for _ in range(4):
        batch = next(iterator)
        assert batch.tolist() == [0, 1, 2, 3]
        write(batch)
    turn(None)
    assert next(iterator).tolist() == [4, 5, 6, 7]


def test_containers_are_new_each_time(turn):
    data = [{"x": torch.ones(2), "pair": (1, [2.0]), "name": "a"}] * 8
    iterator = iter(DataLoader(data, batch_size=2, collate_fn=lambda samples: samples[0]))
    turn(True)
    for _ in range(3):
        batch = next(iterator)
        assert batch["pair"] == (1, [2.0])
        assert set(batch) == {"x", "pair", "name"}
        batch["more"] = batch.pop("name")
        batch["pair"][1].append(3.0)


def test_what_cannot_be_held_is_refused(turn):
    iterator = iter(DataLoader(range(8), batch_size=2, collate_fn=lambda samples: object()))
    turn(True)
    with pytest.raises(RuntimeError, match="its batches hold a object"):
        next(iterator)


def test_where_no_loader_is_read_that_is_said(turn):
    turn(True)
    with pytest.raises(RuntimeError, match="no loader gave a batch"):
        turn(None)
    iterator = batches()
    assert [int(next(iterator)[0]) for _ in range(2)] == [0, 4]
