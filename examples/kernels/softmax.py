"""Softmax of each row in Triton: in blocks that hold a part of a row, or whole rows."""

import torch
import triton
import triton.language as tl

from gpuadvisor import Kernel, array, output


@triton.jit
def softmax(
    out, values, rows, columns,
    BLOCK: tl.constexpr, ROWS: tl.constexpr, WHOLE: tl.constexpr, EVICT: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    place = tl.arange(0, BLOCK)[None, :]
    at = row.to(tl.int64) * columns + place
    if WHOLE:  # the rows are read once, and stay in registers
        inside = (row < rows) & (place < columns)
        part = tl.load(values + at, inside, float("-inf"), eviction_policy=EVICT).to(tl.float32)
        raised = tl.exp(part - tl.max(part, 1, keep_dims=True))
        tl.store(out + at, raised / tl.sum(raised, 1, keep_dims=True), inside)
    else:
        most = tl.full((ROWS, 1), float("-inf"), tl.float32)
        total = tl.zeros((ROWS, 1), tl.float32)
        for first in range(0, columns, BLOCK):
            inside = (row < rows) & (first + place < columns)
            part = tl.load(values + at + first, inside, float("-inf")).to(tl.float32)
            higher = tl.maximum(most, tl.max(part, 1, keep_dims=True))
            raised = tl.sum(tl.exp(part - higher), 1, keep_dims=True)
            total = total * tl.exp(most - higher) + raised
            most = higher
        for first in range(0, columns, BLOCK):
            inside = (row < rows) & (first + place < columns)
            part = tl.load(values + at + first, inside, float("-inf"), eviction_policy=EVICT)
            tl.store(out + at + first, tl.exp(part.to(tl.float32) - most) / total, inside)


Kernel(
    softmax,
    parameters={
        "BLOCK": [256, 512, 1024, 2048, 4096, 8192, 16384, 65536],
        "ROWS": [1, 2, 4, 8],
        "WHOLE": [False, True],
        "EVICT": ["", "evict_first"],
        "num_warps": [1, 2, 4, 8, 16, 32],
        "num_stages": [1, 2, 3],
    },
    default={
        "BLOCK": 1024, "ROWS": 1, "WHOLE": False, "EVICT": "", "num_warps": 4, "num_stages": 3,
    },
    restrictions=[
        # Elements of a thread are in registers, and no thread is without any.
        "4 * 32 * num_warps <= BLOCK * ROWS <= 64 * 32 * num_warps",
        "not WHOLE or columns <= BLOCK < 2 * columns",
        "WHOLE or BLOCK <= 16384",
        "not WHOLE or num_stages == 1",  # there is no loop then
    ],
    problems=[{"rows": 8192, "columns": 4096}, {"rows": 4096, "columns": 50257}],
    grid="ceil_div(rows, ROWS)",
    arguments=[
        output("rows", "columns", dtype="bfloat16"),
        array("rows", "columns", dtype="bfloat16"),
        "rows",
        "columns",
    ],
    reference=lambda out, values, rows, columns: torch.softmax(values.float(), 1),
    bytes="2 * 2 * rows * columns",
)  # fmt: skip
