"""Batches made of several that are the same, and the memory that they are expected to need."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from gpuadvisor.collectors.script.child import repeated_batch  # noqa: E402
from gpuadvisor.collectors.script.child.repeated_batch import Memory, repeated  # noqa: E402

ROWS = 3


def sizes(value):
    if isinstance(value, torch.Tensor):
        return tuple(value.shape)
    if isinstance(value, dict):
        return {key: sizes(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [sizes(each) for each in value]
    return value


@pytest.mark.parametrize(
    ("batch", "expected"),
    [
        (torch.zeros(3, 5), (6, 5)),
        ([torch.zeros(3, 5), torch.zeros(3)], [(6, 5), (6,)]),
        ({"x": torch.zeros(3, 5), "scale": torch.tensor(1.0)}, {"x": (6, 5), "scale": ()}),
        ((torch.zeros(3, 5), ["a", "b", "c"], 7), [(6, 5), ["a", "b", "c"] * 2, 7]),
        # As detection has it: images of different sizes, and what is on each.
        (
            ([torch.zeros(1, 2), torch.zeros(1, 4), torch.zeros(1, 9)], [{"a": 1}] * 3),
            [[(1, 2), (1, 4), (1, 9)] * 2, [{"a": 1}] * 6],
        ),
        # Three kinds of input, as many as samples.
        ([torch.zeros(3, 5), torch.zeros(3), torch.zeros(3, 1)], [(6, 5), (6,), (6, 1)]),
    ],
)
def test_each_sample_is_there_as_often(batch, expected):
    assert sizes(repeated(batch, ROWS, 2)) == expected
    assert repeated(batch, ROWS, 1) is batch


def test_what_has_another_length_is_not_made_up():
    with pytest.raises(RuntimeError, match="a tensor of 7"):
        repeated([torch.zeros(3), torch.zeros(7)], ROWS, 2)


class TestMemory:
    @pytest.fixture
    def machine(self, monkeypatch):
        """A machine with 1,000 bytes, 100 of which a model takes; a batch takes 20."""
        state = {"times": 1}
        monkeypatch.setattr(repeated_batch, "_limit_bytes", lambda: 1000)
        monkeypatch.setattr(repeated_batch, "_forget_peak", lambda: None)
        monkeypatch.setattr(repeated_batch, "_peak_bytes", lambda: 100 + 20 * state["times"])
        return state

    def test_grows_to_the_margin(self, machine):
        memory, done = Memory(), []
        for times in (1, 2, 4, 8, 16, 32, 64):
            machine["times"] = times
            try:
                memory.begin(times)
            except RuntimeError as error:
                assert "it would need 0.0 GB" in str(error)
                break
            memory.end()
            done.append(times)
        assert done == [1, 2, 4, 8, 16, 32]  # 740 of 900; 64 would need 1,380

    def test_the_first_step_may_double_all_that_there_is(self, machine, monkeypatch):
        memory = Memory()
        memory.begin(1)
        memory.end()
        monkeypatch.setattr(repeated_batch, "_limit_bytes", lambda: 260)
        with pytest.raises(RuntimeError, match="are free"):  # 140 would do, nobody knows
            memory.begin(2)

    def test_nothing_is_tried_without_knowing(self, machine):
        with pytest.raises(RuntimeError, match="nothing says"):
            Memory().begin(2)

    def test_a_process_is_looked_at(self):
        memory = Memory()
        memory.begin(1)
        held = torch.ones(30_000_000)
        memory.end()
        assert memory._peaks[1] >= held.numel() * 4
        memory.begin(2)
        memory.end()
        assert memory._peaks[2] > 0
