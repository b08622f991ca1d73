"""Batches made by hand from tensors in memory; a chain of many small operations.

expected: faster with compile in a long run, or no gain
observed: the same losses to the last digit; 130 s instead of 73 s, as compiling took longer than
all steps (busy cores).
"""

import torch
from torch import nn


class Flow(nn.Module):
    """Many small operations, which a compiler fuses."""

    def __init__(self, width=64, depth=6):
        super().__init__()
        self.scale = nn.ParameterList(torch.randn(width) * 0.05 for _ in range(depth))
        self.shift = nn.ParameterList(torch.zeros(width) for _ in range(depth))

    def forward(self, x):
        for scale, shift in zip(self.scale, self.shift):
            y = torch.tanh(x.roll(1, -1)) * scale
            x = x * torch.exp(y.clamp(-1, 1)) + torch.sin(x) * shift + 0.1 * torch.sigmoid(x)
            x = x / (1 + 0.01 * x.abs())
        return x


torch.manual_seed(0)
X = torch.randn(8192, 64)
flow = Flow()
optimizer = torch.optim.Adam(flow.parameters(), lr=1e-3)
n, batch_size = len(X), 1024
for epoch in range(120):
    permutation = torch.randperm(n)
    total = 0.0
    for i in range(0, n, batch_size):
        batch = X[permutation[i : i + batch_size]]
        z = flow(batch)
        loss = (z**2).mean() - 0.01 * z.std()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    if epoch % 20 == 0:
        print(f"epoch {epoch}: {total / (n // batch_size):.5f}")
torch.save(flow.state_dict(), "flow.pt")
