"""Layer normalization of each row in Triton, in blocks that need not hold a whole row."""

import torch
import triton
import triton.language as tl

from gpuadvisor import Kernel, array, output


@triton.jit
def layer_norm(
    out, values, weights, biases, rows, columns, epsilon,
    BLOCK: tl.constexpr, ROWS: tl.constexpr, PASSES: tl.constexpr,
):  # fmt: skip
    for number in range(ROWS):
        row = tl.program_id(0) * ROWS + number
        if row < rows:
            start = values + row.to(tl.int64) * columns
            goal = out + row.to(tl.int64) * columns
            sums = tl.zeros((BLOCK,), tl.float32)
            squares = tl.zeros((BLOCK,), tl.float32)
            for first in range(0, columns, BLOCK):
                place = first + tl.arange(0, BLOCK)
                part = tl.load(start + place, place < columns, 0.0).to(tl.float32)
                sums += part
                squares += part * part
            mean = tl.sum(sums) / columns
            variance = tl.sum(squares) / columns - mean * mean
            if PASSES == 2:  # it reads once more, and rounds less where the mean is large
                squares = tl.zeros((BLOCK,), tl.float32)
                for first in range(0, columns, BLOCK):
                    place = first + tl.arange(0, BLOCK)
                    part = tl.load(start + place, place < columns, 0.0).to(tl.float32)
                    away = tl.where(place < columns, part - mean, 0.0)
                    squares += away * away
                variance = tl.sum(squares) / columns
            scale = 1 / tl.sqrt(variance + epsilon)
            for first in range(0, columns, BLOCK):
                place = first + tl.arange(0, BLOCK)
                inside = place < columns
                part = tl.load(start + place, inside, 0.0).to(tl.float32)
                weight = tl.load(weights + place, inside, 0.0).to(tl.float32)
                bias = tl.load(biases + place, inside, 0.0).to(tl.float32)
                tl.store(goal + place, (part - mean) * scale * weight + bias, inside)


def normalized(out, values, weights, biases, rows, columns, epsilon):
    return torch.nn.functional.layer_norm(
        values.float(), (columns,), weights.float(), biases.float(), epsilon
    )


Kernel(
    layer_norm,
    parameters={
        "BLOCK": [128, 256, 512, 1024, 2048, 4096, 8192, 16384],
        "ROWS": [1, 4],
        "PASSES": [1, 2],
        "num_warps": [1, 2, 4, 8, 16, 32],
        "num_stages": [1, 2, 3, 4],
    },
    default={"BLOCK": 1024, "ROWS": 1, "PASSES": 2, "num_warps": 4, "num_stages": 3},
    restrictions=["BLOCK >= 32 * num_warps", "BLOCK <= 128 * 32 * num_warps"],
    problems=[{"rows": 8192, "columns": 4096}, {"rows": 16384, "columns": 1000}],
    grid="ceil_div(rows, ROWS)",
    arguments=[
        output("rows", "columns", dtype="bfloat16"),
        array("rows", "columns", dtype="bfloat16"),
        array("columns", dtype="bfloat16"),
        array("columns", dtype="bfloat16"),
        "rows",
        "columns",
        1e-5,
    ],
    reference=normalized,
    bytes="2 * 2 * rows * columns",
)
