"""Sums over ever longer sequences: each epoch's are twice as long, from 16 to 1,024 steps.

expected: not faster with bf16_autocast
danger: bf16_autocast. The sum is kept in the type of the terms. In bfloat16 it stands still where a
term is less than a 256th of it, which no short sequence shows.
observed: a loss of 0.03225 at the last length instead of 0.00011.
"""

import torch
from torch import nn


class Summed(nn.Module):
    def __init__(self):
        super().__init__()
        self.term = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1), nn.Softplus())

    def forward(self, x):
        terms = self.term(x).squeeze(2)
        total = terms[:, 0]
        for step in range(1, terms.shape[1]):
            total = total + terms[:, step]
        return total


torch.manual_seed(0)
model = Summed()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(7):
    length, total = 16 * 2**epoch, 0.0
    for _ in range(40):
        x = torch.rand(16, length, 8)
        y = x[:, :, :2].sum((1, 2))
        loss = ((model(x) - y) / length).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"length {length}: {total / 40:.5f}")
torch.save(model.state_dict(), "model.pt")
