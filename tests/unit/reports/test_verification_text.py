"""What the page of a verification says of the gain."""

from dataclasses import replace

import pytest

from gpuadvisor.domain.study import Speedup
from gpuadvisor.domain.verification import Outcome, Verification
from gpuadvisor.reports.study.verification import verification_markdown
from tests.studies import study


@pytest.mark.parametrize(
    ("measured", "row"),
    [
        (Speedup(1.5, 1.4, 1.6, 4), "| measured | 1.50x | 1.40-1.60 | 4 |"),
        (Speedup(0.86, 0.0007, 1053.0, 3), "| measured | cannot be compared |  | 3 |"),
        (None, "| measured | not measured |  |  |"),
    ],
)
def test_an_interval_that_says_nothing_is_not_printed(measured, row):
    result = replace(study(), speedup=measured)
    promised = Speedup(1.5, 1.45, 1.55, 8)
    found = Verification(
        Outcome.INCONCLUSIVE, "too wide to tell", "a.plan.toml", promised, 1.3, result, None
    )
    assert row in verification_markdown(found)
