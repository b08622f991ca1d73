"""Programs as they should be but for a little of what rules look for: nobody has to hear of it."""

import pytest

from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.engine import diagnose
from tests.rules.cases.exposed_communication import steps
from tests.rules.cases.type_conversions import CAST, PRODUCT
from tests.rules.cases.unfused_elementwise import ADD
from tests.rules.counted import ACTIVE, ELAPSED, QUIET, STALLED, kernel
from tests.rules.queued import K, queued

FP32 = "ampere_sgemm_128x128_tn"

BETWEEN = {
    "weights are converted, and a few operators stand alone": lambda: queued(
        [K(CAST, 40), K(PRODUCT, 435), *[K(ADD, 30)] * 3, K(PRODUCT, 435)] * 4
    ),
    "the last bucket of gradients is not hidden": lambda: steps(950, 40),
    "too few products in FP32 to tell": lambda: queued([K(FP32, 19), K(PRODUCT, 981)] * 4),
    "a kernel that waits a little, and has most of its warps": lambda: kernel(
        QUIET,
        {
            f"sm__throughput{ELAPSED}": 55.0,
            f"gpu__compute_memory_throughput{ELAPSED}": 58.0,
            f"gpu__dram_throughput{ELAPSED}": 58.0,
            f"lts__throughput{ELAPSED}": 52.0,
            "dram__bytes_read.sum": 0.97e9,
            "dram__bytes_write.sum": 0.97e9,
            "sm__maximum_warps_per_active_cycle_pct": 75.0,
            f"sm__warps_active{ACTIVE}": 62.0,
            STALLED.format("long_scoreboard"): 40.0,
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BETWEEN)
def test_what_is_between_a_fault_and_none_is_no_notice(case):
    found = diagnose(BETWEEN[case]()).findings
    assert [each.rule for each in found if each.severity.rank >= Severity.NOTICE.rank] == []
