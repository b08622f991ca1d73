"""Times in words."""

import pytest

from gpuadvisor.printable import duration


@pytest.mark.parametrize(
    ("time_s", "words"),
    [(0.4, "0 s"), (59, "59 s"), (60, "1 min"), (723, "12 min 3 s"), (19200, "5 h 20 min")],
)
def test_duration(time_s, words):
    assert duration(time_s) == words
