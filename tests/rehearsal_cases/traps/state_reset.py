"""Where the loss stands still, Adam forgets: its averages are cleared and it counts anew from 0.

expected: not faster with fused_optimizer
danger: fused_optimizer. Its kernel counts in float32, and fails with the whole number that the
script sets there; the unchanged one takes it. It happens when three epochs brought nothing.
observed: a `RuntimeError` of the optimizer where the loss first stood still.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def forget(optimizer):
    for group in optimizer.param_groups:
        group["lr"] *= 0.5
        for parameter in group["params"]:
            state = optimizer.state[parameter]
            state["step"] = torch.tensor(0)
            state["exp_avg"].zero_()
            state["exp_avg_sq"].zero_()


torch.manual_seed(0)
x = torch.randn(2000, 64)
y = torch.tanh(x[:, :4]).sum(1) + 0.5 * torch.randn(2000)
train = DataLoader(TensorDataset(x[:1500], y[:1500]), batch_size=20, shuffle=True)
model = nn.Sequential(
    nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
best, waited = float("inf"), 0
for epoch in range(30):
    for xs, ys in train:
        loss = nn.functional.mse_loss(model(xs).squeeze(1), ys)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        error = nn.functional.mse_loss(model(x[1500:]).squeeze(1), y[1500:]).item()
    if error < best:
        best, waited = error, 0
    else:
        waited += 1
    if waited == 3:
        forget(optimizer)
        waited = 0
    print(f"epoch {epoch}: {error:.4f}")
print(f"best {best:.4f}")
