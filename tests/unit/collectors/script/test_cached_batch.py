"""Loaders that hand out the batch that is there already, and then go on."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, dataloader  # noqa: E402

from gpuadvisor.collectors.script.child import cached_batch  # noqa: E402
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


def test_what_a_script_makes_of_a_tensor_does_not_stay(turn):
    """Its shape, its gradient, and the graph that it became part of."""
    weight = torch.ones(4, requires_grad=True)
    iterator = batches()
    turn(True)
    for _ in range(4):
        batch = next(iterator)
        assert (batch.shape, batch.requires_grad, batch.grad) == ((4,), False, None)
        batch.mul_(weight).sum().backward()
        batch.unsqueeze_(1)
        batch.detach_().resize_(1)
    assert weight.grad.tolist() == [0.0, 4.0, 8.0, 12.0]


def test_a_script_that_infers_gets_its_batch_as_it_was(turn):
    iterator = batches()
    turn(True)
    with torch.inference_mode():
        for _ in range(4):
            batch = next(iterator)
            assert batch.tolist() == [0, 1, 2, 3]
            batch.add_(1).unsqueeze_(0)
    assert turn.failure() == ""


def test_what_cannot_be_held_is_given_once_and_said(turn):
    iterator = iter(DataLoader(range(8), batch_size=2, collate_fn=lambda samples: {samples[0], 9}))
    turn(True)
    turn.begin_block()
    assert [next(iterator) for _ in range(3)] == [{0, 9}, {2, 9}, {4, 9}]
    assert turn.failure() == "its batches hold a set"
    turn(None)
    assert turn.failure() == ""


class Sealed(dict):
    def __setitem__(self, key, value):
        raise KeyError("it is sealed")


def test_what_does_not_let_itself_be_built_anew_stops_no_script(turn):
    iterator = iter(DataLoader(range(8), batch_size=2, collate_fn=lambda rows: Sealed(a=rows[0])))
    turn(True)
    turn.begin_block()
    assert [next(iterator)["a"] for _ in range(3)] == [0, 2, 4]
    assert "it is sealed" in turn.failure()


def test_where_no_loader_is_read_that_is_said(turn):
    turn(True)
    turn.begin_block()
    assert "no loader gave a batch" in turn.failure()
    iterator = batches()
    assert [int(next(iterator)[0]) for _ in range(2)] == [0, 0]
    assert turn.failure() == ""
    turn.begin_block()
    assert "no loader gave a batch" in turn.failure()


def test_an_evaluation_between_two_steps_has_an_end(turn):
    iterator = batches()
    for _ in range(3):
        next(iterator)
        turn.end_step()
    turn(True)
    assert [int(next(iterator)[0]) for _ in range(1)] == [12]
    turn.end_step()
    assert [int(batch[0]) for batch in batches()] == list(range(0, 100, 4))
    assert int(next(iterator)[0]) == 12
    turn.end_step()
    assert int(next(iterator)[0]) == 12


def test_as_many_as_a_step_takes_are_given_again(turn):
    iterator = batches()
    for _ in range(6):
        next(iterator)
        next(iterator)
        turn.end_step()
    turn(True)
    assert [int(next(iterator)[0]) for _ in range(2)] == [48, 48]


def test_another_batch_takes_its_place_after_a_while(turn, monkeypatch):
    now_s = [0.0]
    monkeypatch.setattr(cached_batch.time, "perf_counter", lambda: now_s[0])
    data = torch.arange(100.0)

    def collate(samples):
        now_s[0] += 0.5
        return torch.stack(samples)

    iterator = iter(DataLoader(data, batch_size=4, collate_fn=collate))
    seen = []
    turn(True)
    for _ in range(12):
        turn.begin_block()
        seen.append(int(next(iterator)[0]))
        now_s[0] += 1.0
    assert seen == [0] * 5 + [4] * 5 + [8] * 2  # half a second to come, five to stay


def test_the_last_batch_of_an_epoch_is_not_given_again(turn):
    loader = DataLoader(torch.arange(10.0), batch_size=4)
    iterator = iter(loader)
    next(iterator)
    turn(True)
    assert next(iterator).numel() == 4
    turn(None)
    turn(True)
    assert next(iterator).numel() == 2
    with pytest.raises(StopIteration):
        next(iterator)
    iterator = iter(loader)
    assert [int(next(iterator)[0]) for _ in range(3)] == [0, 0, 0]


def test_an_evaluation_of_the_same_data_in_larger_batches_changes_nothing(turn):
    data = torch.arange(100.0)
    iterator = iter(DataLoader(data, batch_size=4))
    turn(True)
    next(iterator)
    next(iter(DataLoader(data, batch_size=25)))
    turn(None)
    turn(True)
    turn.begin_block()
    assert [int(next(iterator)[0]) for _ in range(3)] == [4, 4, 4]
    assert turn.failure() == ""
