"""What is said of two profiles: slower, faster, new, gone; and when they do not compare."""

import json

import pytest

from gpuadvisor.reports import strict_json
from gpuadvisor.reports.json_documents import comparison_json
from gpuadvisor.reports.profile.comparison import (
    comparison_lines,
    comparison_markdown,
    headline,
)
from gpuadvisor.rules.facts.comparison import Verdict, compare
from gpuadvisor.rules.facts.summary import Facts
from gpuadvisor.rules.facts.time_breakdown import TimeCategory
from tests.profile_reports import GEMM, HOSTILE, V100, counted, empty, hostile, whole
from tests.profiles import Made


def compared(before, after):
    return compare(Facts(before), Facts(after), ("before", "after"))


def of(changes, name):
    (found,) = (each for each in changes if each.name == name)
    return found


def kernels(**times_us):
    """A profile of one kernel each, one after another."""
    made, at = Made(), 0.0
    for name, time in times_us.items():
        made.launched(name, (at, 1), (at + 2, time))
        at += time + 3
    return made.profile()


@pytest.mark.parametrize(
    ("before", "after", "verdict", "worth_ns"),
    [
        (100, 150, Verdict.SLOWER, 50_000),
        (100, 40, Verdict.FASTER, -60_000),
        (100, 100.5, Verdict.SAME, 500),  # within 1 %
        (100, None, Verdict.GONE, -100_000),
        (None, 100, Verdict.NEW, 100_000),
    ],
)
def test_what_became_of_a_kernel(before, after, verdict, worth_ns):
    one = kernels(other=50, **({} if before is None else {"k": before}))
    two = kernels(other=50, **({} if after is None else {"k": after}))
    change = of(compared(one, two).kernels, "k")
    assert change.verdict is verdict
    assert change.worth_ns == worth_ns


def test_a_large_relative_change_of_little_is_none():
    one, two = kernels(large=100_000, small=1), kernels(large=100_000, small=2)
    assert of(compared(one, two).kernels, "small").verdict is Verdict.SAME


def test_what_is_worth_most_comes_first():
    changes = compared(kernels(a=10, b=100, c=50), kernels(a=15, b=60, d=200)).kernels
    assert [change.name for change in changes] == ["d", "c", "b", "a"]


def test_a_profile_with_itself_is_the_same():
    found = compared(whole(), whole())
    rows = (*found.parts, *found.kernels, *found.operators, *found.copies)
    assert {each.verdict for each in rows} == {Verdict.SAME}
    assert found.remarks == ()


def test_times_are_those_of_a_step():
    found = compared(whole(number=4), whole(number=8))
    assert found.per_step
    assert of(found.kernels, GEMM).before.time_ns == 200_000
    assert of(found.kernels, GEMM).before.count == 1
    assert of(found.kernels, GEMM).verdict is Verdict.SAME


def test_only_what_a_step_launched_counts():
    made = Made()
    for step in range(2):
        made.range(f"ProfilerStep#{step}", (1000 * step, 1000), 1)
        # Launched in the step, and late on the device: even after the last step's end.
        made.launched("k", (1000 * step + 900, 5), (1000 * step + 1100, 50))
    made.launched("before the steps", (-100, 5), (-50, 10))
    found = compared(made.profile(), made.profile())
    assert [change.name for change in found.kernels] == ["k"]
    assert of(found.kernels, "k").before.time_ns == 50_000


def ahead(kernel_us):
    """Steps that the host launches in 1 ms each, while the device takes longer."""
    made = Made()
    for step in range(4):
        made.range(f"ProfilerStep#{step}", (1000 * step, 1000), 1)
        made.launched("k", (1000 * step, 5), (10 + kernel_us * step, kernel_us))
    return made.profile()


def test_where_the_host_runs_ahead_a_step_takes_as_long_as_on_the_device():
    assert headline(compared(ahead(2000), ahead(4000))) == (
        "A step takes 4.00 ms instead of 2.00 ms: 2.00x as long."
    )
    assert headline(compared(ahead(500), ahead(400))) == (
        "A step takes 1.00 ms instead of 1.00 ms: no difference."
    )


def test_a_device_that_is_not_described_is_a_device():
    made = Made()
    made.launched("k", call=(0, 5), runs=(8, 10), device=3)
    found = compared(made.profile(devices=()), made.profile(devices=()))
    assert found.before.devices == ("GPU 3",)


def test_what_got_less_of_the_idle_time():
    found = compared(whole(data_us=300.0), whole(data_us=100.0))
    data = of(found.parts, TimeCategory.WAITING_FOR_DATA)
    assert data.verdict is Verdict.FASTER
    assert data.worth_ns < 0


def test_copies_compare_by_direction_and_memory():
    (change,) = compared(whole(), whole()).copies
    assert change.name == "host to device, pageable to device"
    assert change.before.bytes == 4_000_000


REMARKS = [
    (whole, lambda: whole(devices=(V100,)), "The devices differ (NVIDIA H100"),
    (whole, lambda: whole(source="nsys"), "Other tools recorded them (kineto; nsys)"),
    (whole, lambda: whole(number=9), "They have 4 and 9 steps"),
    (whole, lambda: kernels(a=5), "as no steps are known of after"),
    (whole, counted, "after has no timeline"),
    (whole, empty, "Nothing that ran on a GPU was recorded in after"),
]


@pytest.mark.parametrize(("before", "after", "sentence"), REMARKS)
def test_what_is_not_like_with_like_is_said(before, after, sentence):
    assert any(sentence in remark for remark in compared(before(), after()).remarks)


@pytest.mark.parametrize("other", [whole, hostile, empty, counted])
def test_all_of_it_can_be_printed(other):
    found = compared(whole(), other())
    text = "\n".join(comparison_lines(found))
    assert "before" in text
    assert comparison_markdown(found).startswith("### `before` and `after`")
    document = json.loads(strict_json.text(comparison_json(found)))
    assert document["kind"] == "comparison"
    assert len(document["kernels"]) == len(found.kernels)


def test_no_operators_is_not_the_same_operators():
    text = "\n".join(comparison_lines(compared(whole(), kernels(a=5))))
    assert "operators: not measured in both profiles" in text


def test_names_stay_names():
    found = compared(whole(), hostile())
    assert of(found.kernels, HOSTILE).verdict is Verdict.NEW
    assert "\x1b" not in "\n".join(comparison_lines(found))
    assert "\x1b" not in comparison_markdown(found)
    assert "\x1b" not in strict_json.text(comparison_json(found))
