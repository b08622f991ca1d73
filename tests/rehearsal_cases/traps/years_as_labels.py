"""In which year was it built? The model takes the labels and returns its loss, as many do.

expected: not faster with bf16_autocast
danger: bf16_autocast. Labels are brought to the type of the outputs, and in bfloat16 years are
multiples of 8. Errors are decades at first, so that losses agree; in the end they are a few years.
observed: a loss of 26.98 in the last epoch instead of 15.27.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Dating(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 1))
        self.mean = 1950.0

    def forward(self, x, year=None):
        estimate = self.body(x).squeeze(1) * 30 + self.mean
        if year is None:
            return estimate
        return (estimate - year.to(estimate.dtype)).square().mean()


torch.manual_seed(0)
x = torch.randn(3200, 32)
year = (1950 + 30 * torch.tanh(x[:, :4].sum(1) / 2)).round()
model = Dating()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(x, year), batch_size=32, shuffle=True)
for epoch in range(12):
    total = 0.0
    for batch, label in loader:
        loss = model(batch, label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: {total / len(loader):.4f}")
model.eval()
with torch.no_grad():
    torch.save(model(x[:320]), "estimates.pt")
