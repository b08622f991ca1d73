"""The page of a tuned kernel, and what of its JSON is documented."""

import re
from dataclasses import replace

import pytest

from gpuadvisor.domain.study import Verdict
from gpuadvisor.reports.kernel.outcome import document, outcome
from gpuadvisor.reports.kernel.page import kernel_html, kernel_markdown
from gpuadvisor.rules.facts.ceilings import Ceilings, Peak
from tests.json_page import PAGE
from tests.pages import Checks, Page
from tests.tuned_kernels import RESULT, evaluations

CEILINGS = Ceilings(
    "NVIDIA H200",
    {"dram": Peak(4.8e12, "bytes/s", "data sheet"), "fp32": Peak(6e13, "flop/s", "data sheet")},
)


def found(**changes):
    return outcome(replace(RESULT, evaluations=evaluations(), **changes), CEILINGS)


HOSTILE = "<script>alert(1)</script>"
TWO = (
    found(useful_flops=1e9),
    found(problem={"rows": 512, "columns": 512}, kernel=HOSTILE, file=HOSTILE, device=HOSTILE),
)


class TestPage(Checks):
    """A page of two sizes, one with names that are markup."""

    @pytest.fixture
    def content(self):
        return kernel_html(TWO)

    def test_names_are_shown_and_not_obeyed(self, content):
        assert HOSTILE in Page(content).text

    def test_plots_are_told_apart(self, content):
        ids = re.findall(r' id="([^"]+)"', content)
        assert len(ids) == len(set(ids)) > 4


def test_one_size_has_no_headings_of_sizes():
    text = kernel_markdown([found()])
    assert "#### What was measured\n" in text
    assert "1.61x faster than the default" in text
    assert "| `block_x` | 100% | 8: 2.50x, 16: 1.00x, 32: 1.56x, 64: 1.87x |" in text


def test_shares_of_a_part_of_the_space_are_told_to_be_of_that_part():
    said = "They describe the points that the search chose"
    assert said not in kernel_markdown([found()])
    assert said in kernel_markdown([found(points=500)])


def test_without_bytes_points_or_a_gain_the_page_says_so():
    bare = outcome(
        replace(RESULT, useful_bytes=None, verdict=Verdict.INCONCLUSIVE, best=None), CEILINGS
    )
    text = kernel_markdown([bare])
    assert "nothing was shown to be faster than the default" in text
    assert "inconclusive, so the default" in text
    assert "Roofline" not in text
    assert "Which parameters matter" not in text


def keys(value):
    if isinstance(value, dict):
        for key, each in value.items():
            yield key
            if key not in ("problem", "default", "best", "states") or "bound" in (each or ()):
                yield from keys(each)
    elif isinstance(value, list):
        for each in value:
            yield from keys(each)


def test_every_field_is_documented():
    part = PAGE.read_text("utf-8").partition("# Tuned kernels as JSON")[2]
    named = set(re.findall(r"`(\w+)`", part))
    assert set(keys(document(TWO))) - named == set()
