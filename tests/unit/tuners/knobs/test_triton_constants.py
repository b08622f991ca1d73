"""What the text of a Triton kernel says of its constants."""

import ast

import pytest

pytest.importorskip("torch")

from gpuadvisor.tuners.knobs._triton.constants import Constants
from gpuadvisor.tuners.knobs._triton.sizes import sizes


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


@pytest.mark.parametrize(
    ("body", "is_size"),
    [
        ("tl.store(out + tl.arange(0, SIZE), 1)", True),
        ("part = 2 * tl.arange(0, SIZE)[None, :]; tl.store(out + part, tl.zeros([SIZE], x))", True),
        ("tl.store(out + tl.program_id(0) * SIZE + tl.arange(0, SIZE), 1)", False),
        ("part = tl.arange(0, SIZE); tl.store(out + part, 1, mask=part < n)", False),
        ("value = tl.load(x + tl.arange(0, SIZE), mask=tl.arange(0, SIZE) < n).to(x)", False),
        ("part = tl.arange(0, SIZE) % n; tl.store(out + part, 1)", False),
        ("part = tl.minimum(tl.arange(0, SIZE), n); tl.store(out + part, 1)", False),
        ("part = tl.arange(0, SIZE); part &= n; tl.store(out + part, 1)", False),
        ("part = tl.arange(0, SIZE); out += SIZE; tl.store(out + part, 1)", False),
        ("part = tl.arange(0, SIZE); more = tl.zeros([2 * SIZE], x)", False),
        ("tl.store(out + place(SIZE) + tl.arange(0, SIZE), 1)", False),
        ("part = tl.arange(0, SIZE)\n    for first in range(0, n, SIZE): tl.load(x + part)", False),
        ("tl.store(out + tl.zeros([SIZE], x), 1)", False),
    ],
)
def test_a_range_that_nothing_moves_or_ends_is_a_size(body, is_size):
    (definition,) = ast.parse(f"def kernel(x, out, n, SIZE):\n    {body}\n").body
    assert sizes(definition) == ({"SIZE"} if is_size else set())
