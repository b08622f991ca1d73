"""What counts as the same result of a kernel, by dtype."""

import pytest
import torch

from gpuadvisor.collectors.kernels.child.arguments import difference

VALUES = torch.linspace(-3, 3, 1001, dtype=torch.float64)


@pytest.mark.parametrize(
    "dtype, error, same",
    [
        (torch.float32, 1e-5, True),
        (torch.float32, 1e-3, False),  # what TF32 would do
        (torch.float64, 1e-12, True),
        (torch.float64, 1e-6, False),
        (torch.bfloat16, 1e-2, True),
        (torch.bfloat16, 0.2, False),
        (torch.float16, 1e-3, True),
    ],
)
def test_rounding_is_allowed_and_no_more(dtype, error, same):
    found = (VALUES * (1 + error)).to(dtype)
    assert (difference([found], [VALUES], None) is None) is same


def test_an_element_near_zero_is_judged_by_the_size_of_the_others():
    found = VALUES.float().clone()
    found[500] = 1e-6  # where 0 is expected
    assert difference([found], [VALUES], None) is None
    found[500] = 1e-2
    assert "1 of 1,001 elements differ by more than 0.0001: element 500 is 0.01" in str(
        difference([found], [VALUES], None)
    )


def test_what_was_not_written_is_seen():
    found = VALUES.float().clone()
    found[7:9] = float("nan")
    said = difference([found], [VALUES], None)
    assert said == "2 of 1,001 elements: element 7 was left unwritten or is NaN"
    assert difference([found], [torch.where(found.isnan(), found, VALUES)], None) is None


def test_integers_and_a_tolerance_of_zero_are_exact():
    counts = torch.arange(8, dtype=torch.int32)
    assert difference([counts], [counts.long()], None) is None
    assert difference([counts + 1], [counts], None) == "8 of 8 elements differ"
    assert difference([VALUES, VALUES * (1 + 1e-15)], [VALUES, VALUES], 0).startswith("output 2: ")
