"""What the text of a Triton kernel says of its constants."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("torch")

from gpuadvisor.tuners.knobs._triton.constants import Constants

FAKE = Path(__file__).parents[3] / "fake_triton"


@pytest.fixture
def kernels(monkeypatch):
    """Kernels of all kinds, made with a Triton that needs no GPU; a real one comes back."""
    real = {n: sys.modules.pop(n) for n in list(sys.modules) if n.split(".")[0] == "triton"}
    monkeypatch.syspath_prepend(FAKE)
    yield import_module("odd_kernels")
    for name in [n for n in sys.modules if n.split(".")[0] in ("triton", "odd_kernels")]:
        del sys.modules[name]
    sys.modules.update(real)


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
