"""What one matrix product saves in the place of many by hand."""

import pytest

from gpuadvisor.rules.catalogue.product_by_hand import check
from tests.rules.cases.product_by_hand import OUTER, by_hand, search
from tests.rules.queued import K, queued


def worth(evidence):
    """Return the range of what is saved, in percent of the run."""
    (found,) = check(evidence)
    run_ns = evidence.facts.window.run_ns
    return 100 * found.saving.low_ns / run_ns, 100 * found.saving.high_ns / run_ns


def test_it_says_what_is_multiplied_and_written():
    (found,) = check(search())
    assert "24 times aten::mul of 100000x512 by 512 writes 205 MB" in found.summary
    assert "up to 8 times in a row" in found.summary


def test_at_least_the_matrix_may_have_to_be_read_for_each_vector():
    """As in a power iteration, whose next vector is the product before it."""
    least, _ = worth(search())
    # 8 times 300 us of 3700 us, less what reading eight of them takes.
    assert least == pytest.approx(100 * (2400 - 8 * 100) / 3700, abs=2)


def test_at_most_all_between_two_of_them_goes_but_for_one_pass():
    _, most = worth(search())
    assert most == pytest.approx(1.03 * 100 * (2400 + 7 * 60) / 3700, abs=2)


def test_where_no_rate_is_known_the_sums_stay():
    evidence = queued([*by_hand(OUTER), K("gemm", 400)] * 6, None)
    least, most = worth(evidence)
    assert least == pytest.approx(100 * 200 / 700, abs=2)
    assert most == pytest.approx(1.03 * 100 * 300 / 700, abs=2)
