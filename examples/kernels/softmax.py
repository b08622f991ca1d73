"""Softmax of each row in Triton, in blocks that need not hold a whole row."""

import torch
import triton
import triton.language as tl

from gpuadvisor import Kernel, array, output


@triton.jit
def softmax(out, values, rows, columns, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    for number in range(ROWS):
        row = tl.program_id(0) * ROWS + number
        if row < rows:
            start = values + row.to(tl.int64) * columns
            most = tl.full((), float("-inf"), tl.float32)
            total = tl.full((), 0.0, tl.float32)
            for first in range(0, columns, BLOCK):
                place = first + tl.arange(0, BLOCK)
                part = tl.load(start + place, place < columns, float("-inf")).to(tl.float32)
                higher = tl.maximum(most, tl.max(part))
                total = total * tl.exp(most - higher) + tl.sum(tl.exp(part - higher))
                most = higher
            goal = out + row.to(tl.int64) * columns
            for first in range(0, columns, BLOCK):
                place = first + tl.arange(0, BLOCK)
                part = tl.load(start + place, place < columns, float("-inf")).to(tl.float32)
                tl.store(goal + place, tl.exp(part - most) / total, place < columns)


Kernel(
    softmax,
    parameters={
        "BLOCK": [128, 256, 512, 1024, 2048, 4096, 8192, 16384],
        "ROWS": [1, 2, 4, 8],
        "num_warps": [1, 2, 4, 8, 16, 32],
        "num_stages": [1, 2, 3, 4],
    },
    default={"BLOCK": 1024, "ROWS": 1, "num_warps": 4, "num_stages": 3},
    restrictions=["BLOCK >= 32 * num_warps", "BLOCK <= 128 * 32 * num_warps"],
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
)
