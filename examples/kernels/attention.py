"""Fused causal attention in Triton: softmax(q k^T) v without the scores (Dao et al., 2022)."""

import torch
import triton
import triton.language as tl

from gpuadvisor import Kernel, array, output


@triton.jit
def attention(
    out, queries, keys, values, length, scale,
    DEPTH: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BASE_2: tl.constexpr,
):  # fmt: skip
    first_row = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1).to(tl.int64) * length * DEPTH
    rows = first_row + tl.arange(0, BLOCK_M)
    depths = tl.arange(0, DEPTH)
    places = head + rows[:, None] * DEPTH + depths[None, :]
    query = tl.load(queries + places, rows[:, None] < length, 0.0)
    most = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    sums = tl.zeros((BLOCK_M, DEPTH), tl.float32)
    # The hardware has 2^x: with the scale it takes the factor between the two exponentials, too.
    factor = scale * 1.4426950408889634 if BASE_2 else scale
    end = tl.minimum(first_row + BLOCK_M, length)
    for first in range(0, end, BLOCK_N):
        columns = first + tl.arange(0, BLOCK_N)
        across = head + columns[None, :] * DEPTH + depths[:, None]
        key = tl.load(keys + across, columns[None, :] < length, 0.0)
        scores = tl.dot(query, key) * factor
        scores = tl.where(columns[None, :] <= rows[:, None], scores, float("-inf"))
        higher = tl.maximum(most, tl.max(scores, 1))
        if BASE_2:
            weights = tl.exp2(scores - higher[:, None])
            faded = tl.exp2(most - higher)
        else:
            weights = tl.exp(scores - higher[:, None])
            faded = tl.exp(most - higher)
        total = total * faded + tl.sum(weights, 1)
        down = head + columns[:, None] * DEPTH + depths[None, :]
        value = tl.load(values + down, columns[:, None] < length, 0.0)
        sums = sums * faded[:, None] + tl.dot(weights.to(value.dtype), value)
        most = higher
    tl.store(out + places, sums / total[:, None], rows[:, None] < length)


def attended(out, queries, keys, values, length, scale):
    return torch.nn.functional.scaled_dot_product_attention(
        queries, keys, values, is_causal=True, scale=scale
    )


Kernel(
    attention,
    parameters={
        "BLOCK_M": [16, 32, 64, 128, 256],
        "BLOCK_N": [16, 32, 64, 128, 256],
        "BASE_2": [False, True],
        "num_warps": [1, 2, 4, 8, 16],
        "num_stages": [1, 2, 3, 4],
    },
    default={"BLOCK_M": 128, "BLOCK_N": 64, "BASE_2": False, "num_warps": 4, "num_stages": 3},
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
)
