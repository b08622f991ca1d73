"""A masked autoencoder draws its mask from a seed, and the loss draws the same one once more.

expected: not faster with compile
danger: compile. Compiled code draws other random numbers from the same seed, so that the loss looks
at another half than was hidden: mostly at what the model only has to copy.
observed: a loss of 1.2521 in the last epoch instead of 1.4833.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(48, 256), nn.ReLU(), nn.Linear(256, 48))

    def forward(self, x):
        hidden = torch.rand_like(x) < 0.5
        return self.body(x.masked_fill(hidden, 0.0))


torch.manual_seed(0)
x = torch.randn(3200, 8) @ torch.randn(8, 48)
model = Masked()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(x), batch_size=32, shuffle=True)
step = 0
for epoch in range(12):
    total = 0.0
    for (batch,) in loader:
        with torch.random.fork_rng():
            torch.manual_seed(step)
            output = model(batch)
        hidden = torch.rand(batch.shape, generator=torch.Generator().manual_seed(step)) < 0.5
        loss = (output - batch)[hidden].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        step += 1
    print(f"epoch {epoch}: {total / len(loader):.4f}")
torch.save(model.state_dict(), "model.pt")
