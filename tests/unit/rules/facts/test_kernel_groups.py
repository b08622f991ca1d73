"""Kernels that are the same, batch by batch, against the same found at once."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from gpuadvisor.columns.in_memory import MemoryProfile
from gpuadvisor.domain.profile import TABLES, Header
from gpuadvisor.rules.facts import kernel_groups
from gpuadvisor.rules.facts.kernel_groups import KernelGrouping
from gpuadvisor.rules.facts.kernels import KEYS, kernel_times

TEXTS = ("", "gemm", "relu", "copy")


def kernels(count, kinds=3, seed=0):
    random = np.random.default_rng(seed)
    columns = {
        name: random.integers(0, kinds if name in KEYS[:3] else 1, count).astype(kind)
        for name, kind in TABLES["kernels"].items()
    }
    columns["begin_ns"] = random.integers(0, 10**9, count)
    columns["duration_ns"] = random.integers(-5, 1000, count)
    return columns


def grouped(columns, batch, **options):
    grouping = KernelGrouping(**options)
    for begin in range(0, len(columns["name"]), batch):
        grouping.add({name: each[begin : begin + batch] for name, each in columns.items()})
    return grouping.times(TEXTS)


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_it_is_what_is_found_at_once_whatever_the_batches(batch):
    columns = kernels(1000)
    profile = MemoryProfile()
    profile.add("kernels", columns)
    profile.finish(Header("kineto", texts=TEXTS))
    found = grouped(columns, batch)
    assert len(found) == 27
    assert tuple(found) == kernel_times(profile)


@pytest.mark.parametrize("merged", [1, 10, 100])
def test_equal_durations_may_be_counted_at_any_time(monkeypatch, merged):
    columns = kernels(1000)
    expected = grouped(columns, 1000)
    monkeypatch.setattr(kernel_groups, "MERGED_ROWS", merged)
    assert grouped(columns, 7) == expected


def test_the_sum_of_absurd_durations_is_exact():
    columns = {**kernels(9, kinds=1), "duration_ns": np.full(9, 2**63 - 1)}
    columns["begin_ns"][:] = 0
    (found,) = grouped(columns, 2)
    assert (found.time_ns, found.p95_ns) == (9 * 2**60, 2**60)


def test_memory_follows_the_different_durations():
    grouping, columns = KernelGrouping(), kernels(1 << 16)
    peaks = []
    for _ in range(2):
        tracemalloc.start()
        for _ in range(30):
            grouping.add(columns)
        peaks.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    assert peaks[1] < 2**20


def test_numbers_that_collide_do_not_join_kernels(monkeypatch):
    columns = kernels(200)
    expected = grouped(columns, 50)
    monkeypatch.setattr(kernel_groups, "_MIX", np.uint64(0))
    assert grouped(columns, 50) == expected


def test_beyond_the_limit_the_first_groups_stay_whole():
    columns = kernels(500)
    everything = {(each.name, each.grid): each for each in grouped(columns, 100)}
    found = grouped(columns, 100, most_groups=5)
    assert len(found) == 5
    for each in found:
        assert each == everything[each.name, each.grid]


def test_no_kernels_and_unknown_names():
    assert grouped(kernels(0), 10) == []
    columns = kernels(3, kinds=1)
    columns["name"] = np.array([-1, 99, 1], np.int32)
    assert sorted(each.name for each in grouped(columns, 10)) == ["", "", "gemm"]
