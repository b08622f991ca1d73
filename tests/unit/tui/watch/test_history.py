"""What is kept of the last minutes, and the picture of it."""

import pytest

from gpuadvisor.tui.watch.history import KEPT_S, SPARKLINES, STEPS_S, History, blocks, step_s
from tests.telemetry import START_S, frame, sample

UTIL = "gpu_utilization_pct"


def history(*readings):
    """A history of (second, utilization); None is a frame without it."""
    kept = History()
    for at_s, value in readings:
        kept.add(frame(at_s, sample(gpu_utilization_pct=value)))
    return kept


def means(kept, at_s, step, count):
    return kept.means("GPU-0", UTIL, START_S + at_s, step, count)


def test_a_step_without_readings_is_unknown_and_not_zero():
    kept = history((0, 10), (1, 0), (2, None), (3, 30))
    assert means(kept, 3, 1.0, 5) == [None, 10, 0, None, 30]


def test_several_readings_in_a_step_are_averaged():
    assert means(history((0, 10), (0.5, 30), (1, 50)), 1, 1.0, 2) == [20, 50]


def test_what_is_drawn_moves_on_while_nothing_is_read():
    assert means(history((0, 10), (1, 20)), 4, 1.0, 5) == [10, 20, None, None, None]


def test_another_gpu_has_a_history_of_its_own():
    kept = History()
    kept.add(frame(0, sample(gpu_utilization_pct=1), sample(gpu_utilization_pct=2)))
    assert kept.means("GPU-1", UTIL, START_S, 1.0, 1) == [2]


def test_what_is_too_old_is_let_go():
    kept = history((0, 10), (KEPT_S + 1, 20))
    assert means(kept, KEPT_S + 1, 60.0, 20) == [None] * 19 + [20]


def test_after_the_clock_was_set_back_it_begins_anew():
    assert means(history((100, 10), (0, 20)), 100, 200.0, 2) == [None, 20]


@pytest.mark.parametrize(("width", "step"), [(60, 1.0), (59, 2.0), (30, 2.0), (12, 5.0), (1, 60.0)])
def test_a_picture_shows_a_minute_or_more(width, step):
    assert step_s(width) == step
    assert step in STEPS_S
    assert step * width >= 60.0


@pytest.mark.parametrize(
    ("values", "top", "picture"),
    [
        ([], 100.0, ""),
        ([None, 0, 100], 100.0, " ▁█"),
        ([0, 50, 100, 250], 100.0, "▁▅██"),
        ([0, 1, 2], None, "▁▅█"),
        ([0, 0], None, "▁▁"),
        ([None, None], None, "  "),
        ([5], 0.0, "█"),
    ],
)
def test_the_picture(values, top, picture):
    assert blocks(values, top) == picture


def test_each_picture_has_a_short_title_of_its_own():
    titles = [sparkline.title for sparkline in SPARKLINES]
    assert len(set(titles)) == len(titles)
    assert max(map(len, titles)) <= 12
