"""Trains gains whose gradients a Triton kernel adds up in bfloat16, a row at a time, so that it
loses what is small beside what is there; and prints a text that any rounding turns.

For the fake Triton and its kernels.
"""

import sys

import torch

sys.modules["triton"] = None  # torch's optimizers import more of a Triton than the fake one has
import torch._dynamo  # noqa: E402

del sys.modules["triton"]
import odd_kernels  # noqa: E402

ROWS, COLUMNS, BATCHES = 768, 16, 4


class Gained(torch.autograd.Function):
    @staticmethod
    def forward(context, x, gain):
        context.save_for_backward(x, gain)
        return x * gain

    @staticmethod
    def backward(context, grad):
        x, gain = context.saved_tensors
        parts = (x * grad).to(torch.bfloat16)
        out = torch.zeros(COLUMNS, dtype=torch.bfloat16)
        seen = torch.zeros(COLUMNS, dtype=torch.int32)
        grid = lambda meta: (-(-ROWS // meta["ROWS"]),)  # noqa: E731 - as they do
        odd_kernels.added[grid](parts, out, seen, ROWS, COLUMNS, 1.0, ROWS=1, BLOCK=COLUMNS)
        return grad * gain, out.to(gain.dtype)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.rand(COLUMNS))

    def forward(self, x):
        return Gained.apply(x, self.gain)


def text_of(values):
    """Letters that change with any rounding."""
    return "".join(chr(97 + int(1e6 * abs(value)) % 26) for value in values.flatten().tolist())


def main():
    torch.manual_seed(0)
    model = Net()
    data = torch.utils.data.TensorDataset(torch.rand(BATCHES * ROWS, COLUMNS))
    loader = torch.utils.data.DataLoader(data, batch_size=ROWS)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for _ in range(2):
        model.train()
        for (x,) in loader:
            optimizer.zero_grad()
            loss = model(x).square().sum(1).mean()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            print("OUTPUT", text_of(model(data.tensors[0][:4])))


if __name__ == "__main__":
    main()
