"""Numbers as people read them."""

import math

import pytest

from gpuadvisor.reports import figures

CASES = [
    (figures.number, 3262, "3,262"),
    (figures.number, 78.66, "78.7"),
    (figures.number, 99.96, "100"),
    (figures.number, 9.996, "10.0"),
    (figures.number, 0.01234, "0.0123"),
    (figures.number, 0.00001234, "1.23e-05"),
    (figures.number, 1_234_567, "1,234,567"),
    (figures.number, 0, "0"),
    (figures.number, -78.66, "-78.7"),
    (figures.short, 0.0021, "0.0021"),
    (figures.short, 0.010, "0.01"),
    (figures.ratio, 1.4249, "1.42x"),
    (figures.ratio, 12.345, "12.3x"),
    (figures.ratio, 0.071, "0.07x"),
    (figures.milliseconds, 78.66, "78.7 ms"),
    (figures.milliseconds, 0.0787, "78.7 µs"),
    (figures.milliseconds, 12_345, "12.3 s"),
    (figures.milliseconds, 1234.5, "1,234 ms"),
    (figures.memory, 12.3 * 2**30, "12.3 GiB"),
    (figures.memory, 512, "512 B"),
    (figures.memory, 1023 * 2**20, "0.999 GiB"),
    (figures.memory, 3 * 2**50, "3,072 TiB"),
    (figures.energy, 14.2, "14.2 J"),
    (figures.energy, 0.83, "830 mJ"),
    (figures.energy, 1200, "1.20 kJ"),
    (figures.percent, 0.296, "29.6 %"),
    (figures.duration, 4.21, "4.2 s"),
    (figures.duration, 42, "42 s"),
    (figures.duration, 59.6, "1 min 00 s"),
    (figures.duration, 192, "3 min 12 s"),
    (figures.duration, 3900, "1 h 05 min"),
    (figures.knob_value, True, "on"),
    (figures.knob_value, False, "off"),
    (figures.knob_value, 8, "8"),
    (figures.knob_value, 0.5, "0.5"),
    (figures.knob_value, "max-autotune", "max-autotune"),
    (figures.settings, {}, "as the script is"),
    (figures.settings, {"tf32": True, "num_workers": 8}, "tf32, num_workers=8"),
    (figures.settings, {"compile": False, "x": 1}, "compile=off, x=1"),
]


@pytest.mark.parametrize(("show", "value", "shown"), CASES)
def test_a_figure(show, value, shown):
    assert show(value) == shown


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
@pytest.mark.parametrize(
    "show",
    [
        figures.number,
        figures.short,
        figures.ratio,
        figures.milliseconds,
        figures.memory,
        figures.energy,
        figures.percent,
        figures.duration,
        lambda value: figures.throughput(value, "samples/s"),
        lambda value: figures.interval(value, 1.0),
        lambda value: figures.interval(1.0, value),
    ],
)
def test_what_was_not_measured_is_said_in_words(show, value):
    assert show(value) == "not measured"


def test_throughput_has_its_unit():
    assert figures.throughput(3261.6, "samples/s") == "3,262 samples/s"


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (1.39, 1.45, "1.39-1.45"),
        (1.002, 1.006, "1.002-1.006"),
        (0.98, 1.0, "0.98-1.00"),
        (0.00473, 279.14, "0.005-279"),
    ],
)
def test_the_ends_of_an_interval_can_be_told_apart(low, high, shown):
    assert figures.interval(low, high) == shown


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        (78.7, 55.4, "-29.6 %"),
        (1, 3.5, "+250 %"),
        (1, 1.0001, "no change"),
        (0, 1, ""),
        (None, 1, ""),
        (1, math.nan, ""),
    ],
)
def test_a_change(before, after, shown):
    assert figures.change(before, after) == shown


def test_a_count_agrees_with_its_noun():
    assert figures.count(1, "trial") == "1 trial"
    assert figures.count(1204, "trial") == "1,204 trials"
    assert figures.count(2, "study", "studies") == "2 studies"
