"""Fused causal attention in Triton: softmax(q k^T) v without the scores (Dao et al., 2022)."""

import torch
import triton
import triton.language as tl

from gpuadvisor import Kernel, array, output


@triton.jit
def blocks(
    sums, total, most, query, keys, values, rows, first, end, length, factor,
    DEPTH: tl.constexpr, BLOCK_N: tl.constexpr, BASE_2: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Attend to the keys from `first` to `end`, with or without asking which are allowed."""
    depths = tl.arange(0, DEPTH)
    for start in range(first, end, BLOCK_N):
        columns = start + tl.arange(0, BLOCK_N)
        across = columns[None, :] * DEPTH + depths[:, None]
        down = columns[:, None] * DEPTH + depths[None, :]
        if MASKED:
            key = tl.load(keys + across, columns[None, :] < length, 0.0)
            scores = tl.dot(query, key) * factor
            scores = tl.where(columns[None, :] <= rows[:, None], scores, float("-inf"))
            value = tl.load(values + down, columns[:, None] < length, 0.0)
        else:
            scores = tl.dot(query, tl.load(keys + across)) * factor
            value = tl.load(values + down)
        higher = tl.maximum(most, tl.max(scores, 1))
        if BASE_2:
            weights = tl.exp2(scores - higher[:, None])
            faded = tl.exp2(most - higher)
        else:
            weights = tl.exp(scores - higher[:, None])
            faded = tl.exp(most - higher)
        total = total * faded + tl.sum(weights, 1)
        sums = tl.dot(weights.to(value.dtype), value, sums * faded[:, None])
        most = higher
    return sums, total, most


@triton.jit
def attention(
    out, queries, keys, values, length, scale,
    DEPTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BASE_2: tl.constexpr, SPLIT: tl.constexpr, LONGEST_FIRST: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    if LONGEST_FIRST:  # the last rows have most keys: nothing waits for them at the end
        block = tl.num_programs(0) - 1 - block
    first_row = block * BLOCK_M
    head = tl.program_id(1).to(tl.int64) * length * DEPTH
    rows = first_row + tl.arange(0, BLOCK_M)
    places = head + rows[:, None] * DEPTH + tl.arange(0, DEPTH)[None, :]
    query = tl.load(queries + places, rows[:, None] < length, 0.0)
    most = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    sums = tl.zeros((BLOCK_M, DEPTH), tl.float32)
    # The hardware has 2^x: with the scale it takes the factor between the two exponentials, too.
    factor = scale * 1.4426950408889634 if BASE_2 else scale
    keys += head
    values += head
    free = 0
    if SPLIT:  # blocks of keys that all of these rows may see
        free = first_row // BLOCK_N * BLOCK_N
        sums, total, most = blocks(
            sums, total, most, query, keys, values, rows, 0, free, length, factor,
            DEPTH, BLOCK_N, BASE_2, False,
        )  # fmt: skip
    end = tl.minimum(first_row + BLOCK_M, length)
    sums, total, most = blocks(
        sums, total, most, query, keys, values, rows, free, end, length, factor,
        DEPTH, BLOCK_N, BASE_2, True,
    )  # fmt: skip
    tl.store(out + places, sums / total[:, None], rows[:, None] < length)


def attended(out, queries, keys, values, length, scale):
    return torch.nn.functional.scaled_dot_product_attention(
        queries, keys, values, is_causal=True, scale=scale
    )


Kernel(
    attention,
    parameters={
        "BLOCK_M": [32, 64, 128, 256],
        "BLOCK_N": [32, 64, 128],
        "BASE_2": [False, True],
        "SPLIT": [False, True],
        "LONGEST_FIRST": [False, True],
        "num_warps": [2, 4, 8],
        "num_stages": [2, 3, 4],
    },
    default={
        "BLOCK_M": 128, "BLOCK_N": 64, "BASE_2": False, "SPLIT": False, "LONGEST_FIRST": False,
        "num_warps": 4, "num_stages": 3,
    },
    restrictions=[
        # Tiles of keys and values in flight, and the sums in registers of all threads.
        "2 * 2 * BLOCK_N * DEPTH * num_stages + 2 * BLOCK_M * DEPTH <= 227 * 1024",
        "BLOCK_M * (DEPTH + BLOCK_N) <= 200 * 32 * num_warps",
        "BLOCK_M * BLOCK_N >= 8 * 32 * num_warps",
    ],
    problems=[{"heads": 64, "length": 4096, "DEPTH": 64}],
    grid=["ceil_div(length, BLOCK_M)", "heads"],
    arguments=[
        output("heads", "length", "DEPTH", dtype="float16"),
        array("heads", "length", "DEPTH", dtype="float16"),
        array("heads", "length", "DEPTH", dtype="float16"),
        array("heads", "length", "DEPTH", dtype="float16"),
        "length",
        "DEPTH ** -0.5",
    ],
    reference=attended,
    bytes="2 * 4 * heads * length * DEPTH",
    flops="2 * 2 * heads * length * length * DEPTH / 2",
)  # fmt: skip
