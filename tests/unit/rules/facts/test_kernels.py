"""Kernels that are the same, against the same counted row by row."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from gpuadvisor.columns import MemoryProfile
from gpuadvisor.domain.profile import TABLES, Header
from gpuadvisor.rules.facts.kernels import KEYS, kernel_times

TEXTS = ("", "gemm", "relu", "copy")


def kernels(count, kinds=3):
    random = np.random.default_rng(0)
    columns = {
        name: random.integers(0, kinds if name in KEYS[:3] else 1, count).astype(kind)
        for name, kind in TABLES["kernels"].items()
    }
    columns["begin_ns"] = random.integers(0, 10**9, count)
    columns["duration_ns"] = random.integers(-5, 1000, count)
    return columns


def times(columns):
    profile = MemoryProfile()
    profile.add("kernels", columns)
    profile.finish(Header("kineto", texts=TEXTS))
    return kernel_times(profile)


def test_kernels_of_one_name_and_launch_are_together():
    columns = kernels(1000)
    expected = defaultdict(list)
    for row in range(1000):
        key = tuple(int(columns[name][row]) for name in KEYS)
        expected[key].append(max(int(columns["duration_ns"][row]), 0))
    found = times(columns)
    assert len(found) == len(expected) == 27
    assert [each.time_ns for each in found] == sorted(map(sum, expected.values()), reverse=True)
    for each in found:
        shape = (*each.grid, *each.block)
        rest = (each.registers, each.shared_bytes, each.device, each.stream)
        durations = sorted(expected[TEXTS.index(each.name), *shape, *rest])
        assert (each.count, each.time_ns) == (len(durations), sum(durations))
        assert each.p50_ns == durations[-(-50 * len(durations) // 100) - 1]
        assert each.p95_ns == durations[-(-95 * len(durations) // 100) - 1]


def test_the_sum_of_absurd_durations_is_exact():
    columns = {**kernels(9, kinds=1), "duration_ns": np.full(9, 2**63 - 1)}
    columns["begin_ns"][:] = 0
    (found,) = times(columns)
    assert (found.time_ns, found.p95_ns) == (9 * 2**60, 2**60)


def test_no_kernels():
    assert times(kernels(0)) == ()
