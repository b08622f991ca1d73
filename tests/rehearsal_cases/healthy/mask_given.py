"""A masked autoencoder that is given its mask, which the loss uses as well.

expected: right with compile
The mask is drawn once, outside of the model.
observed: the same loss of 1.4231 in the last epoch.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(48, 256), nn.ReLU(), nn.Linear(256, 48))

    def forward(self, x, hidden):
        return self.body(x.masked_fill(hidden, 0.0))


torch.manual_seed(0)
x = torch.randn(3200, 8) @ torch.randn(8, 48)
model = Masked()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(x), batch_size=32, shuffle=True)
for epoch in range(12):
    total = 0.0
    for (batch,) in loader:
        hidden = torch.rand_like(batch) < 0.5
        loss = (model(batch, hidden) - batch)[hidden].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: {total / len(loader):.4f}")
torch.save(model.state_dict(), "model.pt")
