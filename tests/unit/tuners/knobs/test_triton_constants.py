"""What the text of a Triton kernel says of its constants."""

import pytest

pytest.importorskip("torch")

from gpuadvisor.tuners.knobs._triton.constants import Constants


@pytest.mark.parametrize(
    ("name", "lengths", "places"),
    [
        ("scale", {"BLOCK"}, {"BLOCK"}),
        ("softmax", {"BLOCK"}, {"columns"}),
        ("column_totals", {"BLOCK", "ROWS"}, {"BLOCK"}),
        ("over_steps", {"BLOCK"}, {"BLOCK"}),
        ("by_parts", {"BLOCK"}, {"BLOCK"}),
        ("below_diagonal", {"ROWS", "STEP"}, {"ROWS", "n"}),
        ("from_memory", {"BLOCK"}, set()),
        ("some_rows", {"BLOCK"}, {"ROWS", "columns"}),
    ],
)
def test_blocks_and_what_programs_lie_apart_by(kernels, name, lengths, places):
    function = getattr(kernels, name)
    while hasattr(function, "fn"):
        function = function.fn
    found = Constants(function)
    assert (found.lengths, found.places) == (lengths, places)
