"""A chart of characters: what is known is drawn, what is not is blank, with and without braille."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuadvisor.domain.timeline import Column, Timeline
from gpuadvisor.tui.watch import plot
from gpuadvisor.tui.watch.cells import Style

BEGIN_S = 1_700_002_800.0
GLYPHS = pytest.mark.parametrize("glyphs", [plot.DOTTED, plot.PLAIN], ids=["braille", "ascii"])


def timeline(*columns, step_s=60.0, metric="power_w"):
    made = [
        None if c is None else c if isinstance(c, Column) else Column(c, c, float(c), 60, 0.0)
        for c in columns
    ]
    return Timeline(metric, BEGIN_S, step_s, tuple(made))


def text(line):
    return "".join(part for part, _ in line)


def drawn(found, width, height, **options):
    return [text(line) for line in plot.graph(found, width, height, 0, 100, **options)]


@GLYPHS
def test_the_least_value_is_at_the_bottom_and_the_greatest_at_the_top(glyphs):
    low = drawn(timeline(*[0] * 20), 10, 4, glyphs=glyphs)
    high = drawn(timeline(*[100] * 20), 10, 4, glyphs=glyphs)
    assert [bool(line.strip()) for line in low] == [False, False, False, True]
    assert [bool(line.strip()) for line in high] == [True, False, False, False]
    assert len(low[3].strip()) == 10


@GLYPHS
def test_no_line_goes_through_a_gap(glyphs):
    lines = drawn(timeline(*[90] * 8, *[None] * 4, *[10] * 8), 10, 6, glyphs=glyphs)
    assert all(line[4:6] == "  " for line in lines)
    assert plot.axis(timeline(*[90] * 8, *[None] * 4, *[10] * 8), 10, glyphs=glyphs) == (
        glyphs.known * 4 + "  " + glyphs.known * 4
    )


@GLYPHS
def test_a_step_is_joined_where_nothing_is_missing_and_not_where_something_is(glyphs):
    whole = timeline(*[90] * 8, *[10] * 8)
    part = timeline(*[90] * 8, Column(10, 10, 10.0, 50, 9.0), *[10] * 7)
    joined, broken = drawn(whole, 8, 6, glyphs=glyphs), drawn(part, 8, 6, glyphs=glyphs)
    assert any(line.strip() for line in joined[2:4])
    assert not any(line.strip() for line in broken[2:4])
    assert plot.axis(part, 8, glyphs=glyphs)[4] == glyphs.partly


@GLYPHS
@given(
    place=st.integers(0, 239),
    width=st.integers(1, 120),
    height=st.integers(1, 20),
    value=st.floats(50, 100),
)
def test_a_spike_of_one_column_is_drawn_at_its_height(glyphs, place, width, height, value):
    columns = [Column(0, value if n == place else 0, 0.0, 60, 0.0) for n in range(240)]
    found = timeline(*columns)
    flat = drawn(timeline(*[0] * 240), width, height, glyphs=glyphs)
    lines = drawn(found, width, height, glyphs=glyphs)
    rows = height * glyphs.down
    row = (rows - 1 - round(value / 100 * (rows - 1))) // glyphs.down
    at = place * width * glyphs.across // 240 // glyphs.across
    if rows > 2:
        assert lines[row][at] != " "
        assert (lines[row][at] != flat[row][at]) or (glyphs.down == 1 and row == height - 1)


@given(
    columns=st.lists(
        st.none() | st.floats(-10, 200).map(lambda v: Column(v, v + 5, v + 1, 3, 0.0)), max_size=300
    ),
    width=st.integers(1, 300),
    height=st.integers(0, 80),
)
def test_a_chart_is_as_wide_and_high_as_it_is_asked_for(columns, width, height):
    found = timeline(*columns)
    for glyphs in (plot.DOTTED, plot.PLAIN):
        lines = drawn(found, width, height, glyphs=glyphs, cursor=0 if columns else None)
        assert [len(line) for line in lines] == [width] * height
    assert len(plot.axis(timeline(*columns or [None]), width)) == width


def test_the_line_and_its_shade_look_different_without_colour():
    found = timeline(*[Column(0, 100, 50.0, 60, 0.0)] * 40)
    lines = plot.graph(found, 20, 5, 0, 100)
    assert [line[0][1] for line in lines] == [Style.QUIET] * 2 + [Style.ACCENT] + [Style.QUIET] * 2
    shade, line = lines[1][0][0][5], lines[2][0][0][5]
    assert (ord(line) - plot.BRAILLE).bit_count() > (ord(shade) - plot.BRAILLE).bit_count()


def test_the_cursor_points_at_its_column():
    found = timeline(*[None] * 40)
    lines = plot.graph(found, 20, 3, 0, 100, cursor=20)
    assert {text(line).index("│") for line in lines} == {10}
    assert plot.axis(found, 20, 20).index("▲") == 10


def test_reasons_have_a_lane_each_and_unknown_is_not_none():
    found = timeline(0, 4, 4, None, 0x40, 0, metric="throttle_reasons")
    lanes = {name: text(line) for name, line in plot.lanes(found, 6)}
    assert lanes == {"hw thermal": "---- "[:3] + " █-", "power cap": "-██ --"}


@pytest.mark.parametrize(
    ("step_s", "count", "words"),
    [
        (1.0, 60, "23:00:00"),
        (60.0, 120, "23:30"),
        (3600.0, 240, "16 Nov"),
    ],
)
def test_times_are_below_their_columns(step_s, count, words):
    found = timeline(*[1] * count, step_s=step_s)
    line = plot.ticks(found, 100)
    assert words in line
    assert len(line) <= 100


def test_an_event_is_marked_where_it_began_and_as_long_as_it_lasts():
    found = timeline(*[1] * 20)
    spans = [(BEGIN_S + 300, BEGIN_S + 500, 2), (BEGIN_S + 420, BEGIN_S + 420, 3)]
    marks = plot.marks(spans, found, 20, {2: "W", 3: "E"})
    assert "".join(mark for mark, _ in marks) == "     W-E-" + " " * 11
    lasting = plot.marks([(BEGIN_S - 50, None, 3)], found, 20, {3: "E"})
    assert "".join(mark for mark, _ in lasting) == "-" * 20


@pytest.mark.parametrize(
    ("value", "top"), [(0, 1), (0.9, 1), (1, 1), (1.2, 1.5), (652, 800), (1980, 2000), (2200, 2500)]
)
def test_a_scale_ends_at_a_round_number(value, top):
    assert plot.nice_top(value) == pytest.approx(top)
