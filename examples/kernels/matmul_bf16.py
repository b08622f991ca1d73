"""Matrix product in bfloat16 on tensor cores: groups of tiles share operands in the L2 cache."""

import torch
import triton
import triton.language as tl

from gpuadvisor import Kernel, array, output


@triton.jit
def product(
    out, left, right, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    # Programs go down GROUP tiles before they go on to the next column of tiles.
    down, across = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    group = tl.program_id(0) // (GROUP * across)
    height = tl.minimum(down - group * GROUP, GROUP)
    within = tl.program_id(0) % (GROUP * across)
    rows = (group * GROUP + within % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = (within // height) * BLOCK_N + tl.arange(0, BLOCK_N)
    depths = tl.arange(0, BLOCK_K)
    # Beyond the edge the first rows are read once more, and not stored.
    lefts = left + (rows % m)[:, None] * k + depths[None, :]
    rights = right + depths[:, None] * n + (columns % n)[None, :]
    sums = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for _ in range(0, k, BLOCK_K):
        sums = tl.dot(tl.load(lefts), tl.load(rights), sums)
        lefts += BLOCK_K
        rights += BLOCK_K * n
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(out + rows[:, None] * n + columns[None, :], sums.to(tl.bfloat16), inside)


def multiplied(out, left, right, m, n, k):
    return torch.mm(left, right)


Kernel(
    product,
    parameters={
        "BLOCK_M": [64, 128, 256],
        "BLOCK_N": [32, 64, 128, 256],
        "BLOCK_K": [32, 64, 128],
        "GROUP": [1, 4, 8, 16],
        "num_warps": [4, 8],
        "num_stages": [2, 3, 4, 5],
    },
    default={
        "BLOCK_M": 128,
        "BLOCK_N": 64,
        "BLOCK_K": 32,
        "GROUP": 8,
        "num_warps": 4,
        "num_stages": 3,
    },
    restrictions=[
        # Tiles of both operands in flight, and the sums in registers of all threads.
        "2 * (BLOCK_M + BLOCK_N) * BLOCK_K * num_stages <= 227 * 1024",
        "16 * 32 * num_warps <= BLOCK_M * BLOCK_N <= 200 * 32 * num_warps",
        "k % BLOCK_K == 0",
    ],
    problems=[{"m": 4096, "n": 4096, "k": 4096}],
    grid="ceil_div(m, BLOCK_M) * ceil_div(n, BLOCK_N)",
    arguments=[
        output("m", "n", dtype="bfloat16"),
        array("m", "k", dtype="bfloat16"),
        array("k", "n", dtype="bfloat16"),
        "m",
        "n",
        "k",
    ],
    reference=multiplied,
    bytes="2 * (m * n + m * k + k * n)",
    flops="2 * m * n * k",
)
