"""What is kept of a run's outputs."""

import pytest
import torch

from gpuadvisor.collectors.script.child.trace import OUTPUT_VALUES, TraceRecorder


@pytest.mark.parametrize("size", [1, 2, 511, 512, 513, 1024 * 50_304, 2**31 + 3])
def test_values_are_taken_from_the_first_place_of_a_row_to_its_last(size):
    """Float32 has not every place of a row of logits (1,024 tokens, 50,304 words each)."""
    recorder = TraceRecorder(torch)
    row = torch.full((1,), 2.0).expand(2, size)  # one number in memory
    recorder.output(row)

    [(shape, values)] = recorder.outputs()
    assert shape == [2, size]
    assert values == [2.0] * min(size, OUTPUT_VALUES)


def test_the_ends_of_a_row_are_among_the_values():
    recorder = TraceRecorder(torch)
    recorder.output(torch.arange(100_000, dtype=torch.float64).reshape(1, -1))

    [(_, values)] = recorder.outputs()
    assert (values[0], values[-1]) == (0.0, 99_999.0)
    assert values == sorted(set(values))
