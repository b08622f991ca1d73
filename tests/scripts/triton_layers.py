"""Trains with Triton kernels of its own: element by element, a sum over columns, a softmax whose
block is its row, and an autotuned one whose list has one plausible block.

    triton_layers.py steps [device [rows columns]]
"""

import json
import sys
import time

import torch
import triton
import triton.language as tl

STEPS = int(sys.argv[1])
DEVICE = sys.argv[2] if len(sys.argv) > 2 else "cpu"
ROWS, COLUMNS = map(int, sys.argv[3:5] if len(sys.argv) > 4 else (32, 64))
# As one writes them without trying others; without a GPU, smaller ones stand for them.
BLOCK, BLOCK_M, BLOCK_N = (256, 32, 64) if DEVICE == "cuda" else (16, 16, 16)
LIST = (256, 512) if DEVICE == "cuda" else (16, 32)


def timed(call, quantiles):
    """Stand in for Triton's benchmarker, which needs a driver."""
    call()
    return [0.0 for _ in quantiles]


@triton.jit
def swish_kernel(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + offsets, mask=mask, other=0.0)
    tl.store(out + offsets, value * tl.sigmoid(value), mask=mask)


@triton.jit
def column_sum_kernel(x, out, rows, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_N,), dtype=tl.float32)
    for first in range(0, rows, BLOCK_M):
        row = first + tl.arange(0, BLOCK_M)
        mask = (row[:, None] < rows) & (column[None, :] < columns)
        part = tl.load(x + row[:, None] * columns + column[None, :], mask=mask, other=0.0)
        total += tl.sum(part, 0)
    tl.store(out + column, total, mask=column < columns)


@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    value = tl.load(x + row * columns + column, mask=mask, other=float("-inf"))
    power = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * columns + column, power / tl.sum(power, 0), mask=mask)


@triton.autotune(
    configs=[triton.Config({"BLOCK": block}, num_warps=4) for block in LIST],
    key=["n"],
    do_bench=timed if DEVICE == "cpu" else None,
)
@triton.jit
def scale_kernel(x, out, factor, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, factor * tl.load(x + offsets, mask=mask, other=0.0), mask=mask)


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        out = torch.empty_like(x)
        n = x.numel()
        swish_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n, BLOCK=BLOCK)
        return out

    @staticmethod
    def backward(context, grad):
        (x,) = context.saved_tensors
        gate = torch.sigmoid(x)
        return grad * gate * (1 + x * (1 - gate))


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(context, x, factor):
        context.factor = factor
        out = torch.empty_like(x)
        n = x.numel()
        scale_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, factor, n)
        return out

    @staticmethod
    def backward(context, grad):
        return context.factor * grad, None


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        out = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        softmax_kernel[lambda meta: (x.shape[0],)](x, out, x.shape[1], BLOCK=block)
        context.save_for_backward(out)
        return out

    @staticmethod
    def backward(context, grad):
        (out,) = context.saved_tensors
        return out * (grad - (grad * out).sum(1, keepdim=True))


class ColumnSum(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.rows = x.shape[0]
        out = x.new_empty(x.shape[1])
        grid = lambda meta: (triton.cdiv(x.shape[1], meta["BLOCK_N"]),)  # noqa: E731 - as they do
        blocks = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N}
        column_sum_kernel[grid](x, out, x.shape[0], x.shape[1], **blocks)
        return out

    @staticmethod
    def backward(context, grad):
        return grad.expand(context.rows, -1)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(COLUMNS, COLUMNS)

    def forward(self, x):
        hidden = Scaled.apply(Swish.apply(self.first(x)), 0.5)
        return ColumnSum.apply(Softmax.apply(hidden))


def main():
    torch.manual_seed(0)
    model = Net().to(DEVICE)
    data = torch.randn(ROWS, COLUMNS, device=DEVICE)
    began_s = time.perf_counter()
    for _ in range(STEPS):
        model.zero_grad()
        loss = (model(data) * torch.arange(COLUMNS, device=DEVICE)).mean()
        loss.backward()
        with torch.no_grad():  # an optimizer imports half as much as torch itself
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
    loss = loss.item()
    step_ms = 1e3 * (time.perf_counter() - began_s) / STEPS
    print(json.dumps({"loss": loss, "step_ms": step_ms}))


if __name__ == "__main__":
    main()
