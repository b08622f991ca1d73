"""The model asserts that its input is finite; the loop catches that, and notes the broken rows.

expected: not faster with compile
danger: compile. What is compiled raises a `RuntimeError` in place of an `AssertionError`: the
script ends at the first of three broken rows.
observed: a `RuntimeError` in the first epoch; unchanged it noted three broken rows.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, 512), nn.SiLU(), nn.Linear(512, 512), nn.SiLU(), nn.Linear(512, 1)
        )

    def forward(self, x):
        assert torch.isfinite(x).all(), "the input is not finite"
        return self.layers(x).squeeze(1)


torch.manual_seed(0)
x = torch.randn(3200, 64)
y = x[:, :8].sum(1)
x[torch.tensor([411, 1502, 2718]), 5] = float("inf")
loader = DataLoader(TensorDataset(x, y, torch.arange(3200)), batch_size=16, shuffle=True)
model = Regressor()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
broken = set()
for epoch in range(5):
    total = 0.0
    for xs, ys, rows in loader:
        try:
            loss = nn.functional.mse_loss(model(xs), ys)
        except AssertionError:
            broken.update(rows[~torch.isfinite(xs).all(1)].tolist())
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: {total / len(loader):.4f}")
print(f"broken rows: {sorted(broken)}")
