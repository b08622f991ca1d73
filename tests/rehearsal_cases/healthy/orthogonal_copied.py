"""Square layers start orthogonal and are made so again in place when the loss stands still.

expected: right with fused_optimizer
What QR gives is copied into the weight, which stays in the order of rows.
observed: the same losses to all printed digits.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@torch.no_grad()
def orthogonal(layer):
    q, r = torch.linalg.qr(layer.weight)
    layer.weight.copy_(q * r.diagonal().sign())


torch.manual_seed(0)
x = torch.randn(1600, 64)
y = (x[:, :8] * x[:, 8:16]).sum(1, keepdim=True) + x[:, 16:24].sum(1, keepdim=True)
layers = [nn.Linear(64, 64) for _ in range(3)]
for layer in layers:
    nn.init.orthogonal_(layer.weight)
model = nn.Sequential(*(part for each in layers for part in (each, nn.Tanh())), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
best, waited = float("inf"), 0
for epoch in range(30):
    total = 0.0
    for batch, target in loader:
        loss = nn.functional.mse_loss(model(batch), target)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        total += loss.item() / len(loader)
    waited = 0 if total < 0.96 * best else waited + 1
    best = min(best, total)
    if waited == 1:
        for layer in layers:
            orthogonal(layer)
        waited = 0
    print(f"epoch {epoch}: {total:.4f}")
