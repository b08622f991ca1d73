"""What rules about counted kernels promise, beside whether they speak."""

import math

import pytest

from gpuadvisor.domain.severity import Severity
from gpuadvisor.rules.catalogue.small_grid import check
from gpuadvisor.rules.engine import diagnose
from gpuadvisor.rules.registry import load_rules
from tests.rules.cases.cache_bound import product
from tests.rules.cases.divergence import active
from tests.rules.counted import ACTIVE, ELAPSED, QUIET, kernel

UNCOUNTED_BYTES = {"dram__bytes_read.sum": None, "dram__bytes_write.sum": None}
"""However short a launch is: the memory's level tells what it does."""


@pytest.mark.parametrize(("ms", "low"), [(0.015, 0.0), (0.04, 24.0), (10.0, 48.0)])
def test_what_a_short_launch_gains_at_least_is_less(ms, low):
    (found,) = check(kernel(QUIET, UNCOUNTED_BYTES, grid=4, ms=ms))
    assert 100 * found.saving.low_ns / found.saving.of_ns == pytest.approx(low, abs=3)


def test_divergence_beside_memory_that_is_busier_is_a_notice_that_promises_nothing():
    rules = [rule for rule in load_rules() if rule.name == "divergence"]
    (found,) = diagnose(active(8.0, 29.0, l2=52.0), rules).findings
    assert found.severity is Severity.NOTICE and found.improvement_pct.low == 0.0
    (found,) = diagnose(active(8.0, 90.0), rules).findings
    assert found.severity is Severity.CRITICAL and found.improvement_pct.low > 20


def test_loads_that_are_spared_leave_the_special_functions_their_time():
    rules = [rule for rule in load_rules() if rule.name == "cache_bound"]
    (found,) = diagnose(product(), rules).findings
    special = {f"sm__inst_executed_pipe_xu{ELAPSED}": 40.0}
    (bound,) = diagnose(product(98.0, 0.08, special), rules).findings
    assert found.improvement_pct.high > 70 and bound.improvement_pct.high <= 61


@pytest.mark.parametrize(("name", "high"), [("my_matmul", 91.1), ("stencil", 76.8)])
def test_what_memory_moves_is_less_with_larger_tiles_of_a_product_only(name, high):
    rules = [rule for rule in load_rules() if rule.name == "cache_bound"]
    levels = {f"gpu__dram_throughput{ELAPSED}": 24.0}
    (found,) = diagnose(product(98.0, 0.08, levels, name=name), rules).findings
    assert found.improvement_pct.low == pytest.approx(76.8, abs=1)
    assert found.improvement_pct.high == pytest.approx(high, abs=1)
    assert ("larger tiles load fewer" in found.method) is (name == "my_matmul")


@pytest.mark.parametrize(("block", "high"), [(16, 50.0), (81, 15.6)])
def test_whole_warps_save_at_most_the_lanes_that_broken_ones_leave_empty(block, high):
    """Also of a kernel whose units are half busy, as its warps wait: fewer of them wait then."""
    rules = [rule for rule in load_rules() if rule.name == "occupancy_block_size"]
    busy = {f"sm__throughput{ELAPSED}": 54.0, f"l1tex__throughput{ELAPSED}": 58.0}
    (found,) = diagnose(kernel(QUIET, busy, block=block), rules).findings
    assert found.improvement_pct.high == pytest.approx(high, abs=1)


@pytest.mark.parametrize("counted", ["sum", "max", "avg"])
def test_the_time_of_a_launch_has_three_names(counted):
    """A kernel whose time is not known by one of them would be said to take none."""
    times = {"gpu__time_duration.sum": math.nan, f"gpu__time_duration.{counted}": 4e-3}
    ((told, loads),) = kernel(times).kernel_loads
    assert told.counters.time_ns == pytest.approx(4e6)
    assert told.seconds == 4e-3 and loads is not None


@pytest.mark.parametrize(("idle", "level"), [({}, 0.495), ({"gpc__cycles_elapsed.max": None}, 0.4)])
def test_the_l1_cache_is_no_busier_than_all_of_memory_where_idle_time_is_not_known(idle, level):
    busy = {f"l1tex__throughput{ELAPSED}": None, f"l1tex__throughput{ACTIVE}": 50.0}
    memory = {f"gpu__compute_memory_throughput{ELAPSED}": 40.0}
    ((told, _),) = kernel(busy, memory, idle).kernel_loads
    assert told.l1 == pytest.approx(level, abs=0.001)


@pytest.mark.parametrize(("block", "idle"), [(128, 0.5), (64, None)])
def test_parts_of_a_multiprocessor_tell_of_it_where_a_block_has_warps_on_all(block, idle):
    parts = {"sm__cycles_active.avg": None, "smsp__cycles_active.avg": 990_000.0}
    ((told, _),) = kernel(parts, block=block).kernel_loads
    assert told.idle_multiprocessors == idle
