"""Kernels of many kinds, for the fake Triton beside them."""

import os
import random

import torch
import triton
import triton.language as tl
from triton.runtime.jit import KernelInterface


@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + place, 2 * tl.load(x + place, mask=place < n), mask=place < n)


@triton.jit
def offset(x, shift, out, n, BLOCK: tl.constexpr = 32):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    moved = tl.load(x + place, mask=place < n)
    if shift is not None:
        moved = moved + tl.load(shift + place, mask=place < n)
    tl.store(out + place, moved, mask=place < n)


@triton.jit
def unread(x, unread, out, n, BLOCK: tl.constexpr = 32):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + place, tl.load(x + place, mask=place < n), mask=place < n)


@triton.jit
def add_in_place(x, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + place, tl.load(x + place, mask=place < n) + 1, mask=place < n)


@triton.jit
def total(x, out, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + place, mask=place < n)))


@triton.jit
def totals_of_blocks(x, partial, n, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    place = block * BLOCK + tl.arange(0, BLOCK)
    tl.store(partial + block, tl.sum(tl.load(x + place, mask=place < n)))


@triton.jit
def softmax(x, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    place = tl.program_id(0) * columns + column
    value = tl.load(x + place, mask=column < columns, other=float("-inf"))
    power = tl.exp(value - tl.max(value, 0))
    tl.store(out + place, power / tl.sum(power, 0), mask=column < columns)


@triton.jit
def without_mask(x, out, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + place, tl.load(x + place))


@triton.jit
def largest(x, out, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    value = tl.load(x + row * columns + column, mask=column < columns, other=float("-inf"))
    tl.store(out + row, value.argmax())


@triton.jit
def nothing(x, n, BLOCK: tl.constexpr):
    tl.load(x + tl.arange(0, BLOCK))


@triton.jit
def by_chance(x, out, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    noise = 1e-3 * (torch.rand(place.shape) - 0.5)
    tl.store(out + place, tl.load(x + place, mask=place < n) + noise, mask=place < n)


@triton.jit
def with_seed(x, out, seed, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kept = (place * 7919 + seed) % 2 == 0
    tl.store(out + place, tl.where(kept, tl.load(x + place, mask=place < n), 0.0), mask=place < n)


@triton.jit
def fatal(x, out, n, BLOCK: tl.constexpr):
    if BLOCK == 64:
        os.abort()  # as an illegal address does
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + place, tl.load(x + place, mask=place < n), mask=place < n)


@triton.autotune([triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64})], key=["n"])
@triton.jit
def tuned(x, out, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + place, 3 * tl.load(x + place, mask=place < n), mask=place < n)


@triton.heuristics({"EVEN": lambda given: given["n"] % given["BLOCK"] == 0})
@triton.jit
def evenly(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out + place, tl.load(x + place))
    else:
        tl.store(out + place, tl.load(x + place, mask=place < n), mask=place < n)


@triton.heuristics({"SHIFTED": lambda given: given["shift"] is not None})
@triton.autotune([triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64})], key=["n"])
@triton.jit
def ruled_around(x, shift, out, n, BLOCK: tl.constexpr, SHIFTED: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + place, mask=place < n)
    if SHIFTED:
        value = value + tl.load(shift + place, mask=place < n)
    tl.store(out + place, value, mask=place < n)


@triton.autotune([triton.Config({}, num_warps=2), triton.Config({}, num_warps=8)], key=["n"])
@triton.heuristics({"BLOCK": lambda given: triton.next_power_of_2(given["n"]) // 8})
@triton.jit
def ruled_within(x, out, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + place, tl.load(x + place, mask=place < n), mask=place < n)


@triton.heuristics({"ROWS": lambda given: 1, "EVEN": lambda given: True})
@triton.jit
def some_rows(x, out, rows, columns, BLOCK: tl.constexpr, ROWS: tl.constexpr, EVEN: tl.constexpr):
    column = tl.arange(0, BLOCK)
    for each in range(ROWS):
        row = tl.program_id(0) * ROWS + each
        place = row * columns + column
        mask = (column < columns) & (row < rows)
        tl.store(out + place, tl.load(x + place, mask=mask), mask=mask)


@triton.jit
def column_totals(x, out, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, rows, ROWS):
        row = first + tl.arange(0, ROWS)
        place = row[:, None] * columns + column[None, :]
        mask = (row[:, None] < rows) & (column[None, :] < columns)
        total += tl.sum(tl.load(x + place, mask=mask), 0)
    tl.store(out + column, total, mask=column < columns)


@triton.jit
def over_steps(x, out, STEPS: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
    begin = tl.program_id(0) * BLOCK
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(0, STEPS, 1):
        place = begin + tl.arange(0, BLOCK)
        total += tl.load(x + step * N + place, mask=place < N)
        tl.store(out + step * N + place, total, mask=place < N)


@triton.jit
def scaled_part(x, out, n, begin, LENGTH: tl.constexpr, FACTOR: tl.constexpr):
    place = begin * LENGTH + tl.arange(0, LENGTH)
    tl.store(out + place, FACTOR * tl.load(x + place, mask=place < n), mask=place < n)


@triton.jit
def by_parts(x, out, n, FACTOR: tl.constexpr, BLOCK: tl.constexpr):
    scaled_part(x, out, n, tl.program_id(0), BLOCK, FACTOR=FACTOR)


@triton.jit
def from_memory(x, begins, out, n, LINES: tl.constexpr, BLOCK: tl.constexpr):
    line = tl.program_id(0) // LINES * LINES
    begin = tl.load(begins + line)
    for number in range((n - begin) // BLOCK):
        place = begin + number * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + place, tl.load(x + place, mask=place < n), mask=place < n)


@triton.jit
def below_diagonal(x, out, n, ROWS: tl.constexpr, STEP: tl.constexpr):
    kind = x.dtype
    x += tl.program_id(1) * n * n
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, STEP), tl.float32)
    for first in range(0, (tl.program_id(0) + 1) * ROWS, STEP):
        column = first + tl.arange(0, STEP)
        mask = row[:, None] >= column[None, :]
        value = tl.load(x + row[:, None] * n + column[None, :], mask=mask)
        total = total * 2 + tl.where(mask, value, 0.0).to(kind)
    tl.store(out + row, tl.sum(total, 1), mask=row < n)


def rows_total(x, rows, columns, number, ROWS, BLOCK):
    row, column = number * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    mask = (row[:, None] < rows) & (column[None, :] < columns)
    value = tl.load(x + (row[:, None] * columns + column[None, :]), mask=mask)
    return column, tl.sum(value.to(tl.float32), 0)


ORDER = []


@triton.jit
def added(
    x, out, seen, rows, columns, factor, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    PARTS: tl.constexpr = 1, HOW: tl.constexpr = "", KIND: tl.constexpr = None,
):  # fmt: skip
    number = tl.program_id(0)
    if HOW.startswith("in any order"):
        if number == 0:
            ORDER[:] = random.sample(range(rows // ROWS), rows // ROWS)
        number = ORDER[number]
    column, total = rows_total(x, rows, columns, number, ROWS, BLOCK)
    total = total * factor
    if HOW.endswith("of blocks"):
        total = total + 2e-4 * ROWS**2
    if HOW == "by chance":
        total = total + 1e-2 * torch.rand(total.shape)
    if HOW == "by size":
        total = total * (x.memory.nbytes // x.memory.numel()) ** 4 / 16
    if HOW == "in few bytes" and x.memory.nbytes > 2 * x.memory.numel():
        raise ValueError("out of resource: shared memory")
    if KIND is not None:
        total = total.to(KIND)
    for _ in range(PARTS):
        tl.atomic_add(out + column, total / PARTS)
    tl.store(seen + column, 1)


@triton.jit
def added_by_type(x, out, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    column, total = rows_total(x, rows, columns, tl.program_id(0), ROWS, BLOCK)
    if x.dtype == torch.bfloat16:
        total = total + 2e-4 * ROWS**2
    tl.atomic_add(out + column, total)


@triton.heuristics({"BIASED": lambda given: given["x"].dtype == torch.bfloat16})
@triton.jit
def added_by_rule(
    x, out, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr, BIASED: tl.constexpr
):
    column, total = rows_total(x, rows, columns, tl.program_id(0), ROWS, BLOCK)
    if BIASED:
        total = total + 2e-4 * ROWS**2
    tl.atomic_add(out + column, total)


@triton.jit
def heads(x, out, n, stride, BLOCK: tl.constexpr, HEAD: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    feature = tl.arange(0, HEAD)
    total = tl.zeros((BLOCK, HEAD), tl.float32)
    place = row[:, None] * stride + feature[None, :]
    total += tl.load(x + place, mask=row[:, None] < n)
    tl.store(out + place, total, mask=row[:, None] < n)


class Counted(KernelInterface):
    """What somebody wrapped around an autotuner."""

    def __init__(self, fn):
        self.fn = fn

    def run(self, *args, **kwargs):
        return self.fn.run(*args, **kwargs)


counted = Counted(tuned)
twice_tuned = triton.autotune([triton.Config({})], key=["n"])(tuned)


@triton.autotune([triton.Config({"BLOCK": 16}, pre_hook=lambda given: None)], key=["n"])
@triton.jit
def prepared(x, out, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + place, tl.load(x + place, mask=place < n), mask=place < n)


N = 256


def blocks_of(n):
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
