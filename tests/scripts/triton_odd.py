"""Launches Triton kernels that cannot be given other blocks, each for a reason of its own.

triton_odd.py steps
"""

import sys

import torch
from odd_kernels import (
    N,
    add_in_place,
    blocks_of,
    fatal,
    largest,
    prepared,
    scale,
    softmax,
    totals_of_blocks,
    unread,
    with_seed,
)

GRID = blocks_of(N)
model = torch.nn.Linear(N, N)
out, partial = torch.empty(N), torch.empty(N // 16)
matrix, rows = torch.rand(8, 32), torch.empty(8, 32)
places = torch.empty(8, dtype=torch.int64)
compiled = unread.warmup(out, None, out, N, BLOCK=16, grid=(1,))
for step in range(int(sys.argv[1])):
    x = torch.rand(N)
    scale[(N // 16,)](x, out, N, BLOCK=16)
    softmax[lambda meta: (8,)](matrix, rows, 32, BLOCK=32)
    totals_of_blocks[GRID](x, partial, N, BLOCK=16)
    prepared[GRID](x, out, N)
    add_in_place[GRID](x, N, BLOCK=16)
    with_seed[GRID](x, out, step, N, BLOCK=16)
    fatal[GRID](x, out, N, BLOCK=16)
    largest.run(matrix, places, 32, BLOCK=32, grid=(8,), warmup=False)
    compiled[(N // 16,)](x, None, out, N)
    model(out).sum().backward()
