"""Anomalies by their distance from a centre, which a hook on an inner layer follows slowly.

expected: not faster with bf16_autocast
danger: bf16_autocast. The hook gets features in bfloat16, and the centre is kept in their type: a
change by a thousandth is rounded away.
observed: a mean distance of 0.8814 from the centre instead of 0.5358.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

center = None


def follow(module, inputs, features):
    global center
    if module.training:
        mean = features.detach().mean(0)
        center = mean if center is None else center + 0.001 * (mean - center)


torch.manual_seed(0)
x = torch.randn(3200, 32) + 1
model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 128), nn.Linear(128, 32))
model[2].register_forward_hook(follow)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
loader = DataLoader(TensorDataset(x), batch_size=16, shuffle=True)
for epoch in range(12):
    model.train()
    for (batch,) in loader:
        loss = nn.functional.mse_loss(model(batch), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
model.eval()
with torch.no_grad():
    score = (model[:3](x[:512]) - center).square().mean(1)
torch.save(score, "scores.pt")
print(f"mean distance from the centre: {score.mean().item():.4f}")
