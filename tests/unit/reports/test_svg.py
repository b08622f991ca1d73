"""What the plots are made of."""

import pytest

from gpuadvisor.reports import svg
from gpuadvisor.reports.markup import Markup, element, join, void


@pytest.mark.parametrize(
    ("low", "high", "count", "expected"),
    [
        (0, 1, 5, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.95, 1.42, 5, [1.0, 1.1, 1.2, 1.3, 1.4]),
        (48, 102, 6, [50, 60, 70, 80, 90, 100]),
        (0, 1000, 3, [0, 500, 1000]),
    ],
)
def test_ticks_are_round(low, high, count, expected):
    assert svg.ticks(low, high, count) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("values", "decimals"), [([0.0, 0.05], 2), ([0.0, 0.2], 1), ([0, 20], 0), ([1.0], 2)]
)
def test_ticks_have_the_decimals_that_tell_them_apart(values, decimals):
    assert svg.tick_decimals(values) == decimals


def test_a_scale_maps_and_clamps():
    scale = svg.Scale(1, 2, 100, 200)
    assert scale(1.5) == 150
    assert scale.clamp(9) == 200
    assert scale.clamp(-9) == 100


def test_long_names_are_shortened():
    assert svg.shorten("num_workers=8", 200) == "num_workers=8"
    assert svg.shorten("a" * 40, 70) == "a" * 9 + "…"


def test_text_is_escaped_once():
    inner = element("b", "<&>")
    assert inner == "<b>&lt;&amp;&gt;</b>"
    assert element("p", inner, title='"') == '<p title="&quot;"><b>&lt;&amp;&gt;</b></p>'
    assert join(["<", Markup("<br>")], ", ") == "&lt;, <br>"


def test_attributes():
    assert element("a", class_="b", stroke_width=2.0, r=None, x=1 / 3) == (
        '<a class="b" stroke-width="2" x="0.33"></a>'
    )
    assert void("meta", charset="utf-8") == '<meta charset="utf-8">'
