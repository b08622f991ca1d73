"""Layer normalization of each row in Triton: in blocks that hold a part of a row, or whole rows."""

import torch
import triton
import triton.language as tl

from gpuadvisor import Kernel, array, output


@triton.jit
def layer_norm(
    out, values, weights, biases, rows, columns, epsilon,
    BLOCK: tl.constexpr, ROWS: tl.constexpr, READS: tl.constexpr, EVICT: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    place = tl.arange(0, BLOCK)[None, :]
    at = row.to(tl.int64) * columns + place
    if READS == 1:  # whole rows, which stay in registers
        inside = (row < rows) & (place < columns)
        part = tl.load(values + at, inside, 0.0, eviction_policy=EVICT).to(tl.float32)
        mean = tl.sum(part, 1, keep_dims=True) / columns
        away = tl.where(place < columns, part - mean, 0.0)
        variance = tl.sum(away * away, 1, keep_dims=True) / columns
        weight = tl.load(weights + place, place < columns, 0.0).to(tl.float32)
        bias = tl.load(biases + place, place < columns, 0.0).to(tl.float32)
        tl.store(out + at, away / tl.sqrt(variance + epsilon) * weight + bias, inside)
    else:
        sums = tl.zeros((ROWS, BLOCK), tl.float32)
        squares = tl.zeros((ROWS, BLOCK), tl.float32)
        for first in range(0, columns, BLOCK):
            inside = (row < rows) & (first + place < columns)
            part = tl.load(values + at + first, inside, 0.0).to(tl.float32)
            sums += part
            squares += part * part
        mean = tl.sum(sums, 1, keep_dims=True) / columns
        variance = tl.sum(squares, 1, keep_dims=True) / columns - mean * mean
        if READS == 3:  # it rounds less where the mean is large
            squares = tl.zeros((ROWS, BLOCK), tl.float32)
            for first in range(0, columns, BLOCK):
                inside = (row < rows) & (first + place < columns)
                part = tl.load(values + at + first, inside, 0.0).to(tl.float32)
                away = tl.where(inside, part - mean, 0.0)
                squares += away * away
            variance = tl.sum(squares, 1, keep_dims=True) / columns
        scale = 1 / tl.sqrt(variance + epsilon)
        for first in range(0, columns, BLOCK):
            here = first + place
            inside = (row < rows) & (here < columns)
            part = tl.load(values + at + first, inside, 0.0, eviction_policy=EVICT).to(tl.float32)
            weight = tl.load(weights + here, here < columns, 0.0).to(tl.float32)
            bias = tl.load(biases + here, here < columns, 0.0).to(tl.float32)
            tl.store(out + at + first, (part - mean) * scale * weight + bias, inside)


def normalized(out, values, weights, biases, rows, columns, epsilon):
    return torch.nn.functional.layer_norm(
        values.float(), (columns,), weights.float(), biases.float(), epsilon
    )


Kernel(
    layer_norm,
    parameters={
        "BLOCK": [256, 512, 1024, 2048, 4096, 8192, 16384],
        "ROWS": [1, 2, 4],
        "READS": [1, 2, 3],
        "EVICT": ["", "evict_first"],
        "num_warps": [1, 2, 4, 8, 16, 32],
        "num_stages": [1, 3],
    },
    default={
        "BLOCK": 1024, "ROWS": 1, "READS": 3, "EVICT": "", "num_warps": 4, "num_stages": 3,
    },
    restrictions=[
        # Elements of a thread are in registers, and no thread is without any.
        "4 * 32 * num_warps <= BLOCK * ROWS <= 64 * 32 * num_warps",
        "READS > 1 or columns <= BLOCK < 2 * columns",
        "READS > 1 or num_stages == 1",  # there is no loop then
    ],
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
)  # fmt: skip
