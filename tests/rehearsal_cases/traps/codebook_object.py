"""A codebook as in VQ-VAE: how often codes are used is followed slowly, in an object of its own.

expected: not faster with bf16_autocast
danger: bf16_autocast. The counts begin with those of the first batch, in the type of the features.
In bfloat16 a change by a thousandth is rounded away, and codes keep their first frequencies.
observed: 7 codes in use instead of 9.
"""

import json

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Usage:
    def __init__(self):
        self.counts = None

    def follow(self, counts):
        self.counts = counts if self.counts is None else 0.999 * self.counts + 0.001 * counts


class Quantised(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 8))
        self.codes = nn.Parameter(torch.randn(16, 8))
        self.decoder = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 32))
        self.usage = Usage()

    def forward(self, x):
        features = self.encoder(x)
        share = (features @ self.codes.t()).softmax(1).to(features.dtype)
        if self.training:
            self.usage.follow(share.detach().sum(0))
        return self.decoder(share @ self.codes)


torch.manual_seed(0)
x = torch.randn(3200, 32)
model = Quantised()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(x), batch_size=16, shuffle=True)
for epoch in range(10):
    for (batch,) in loader:
        loss = nn.functional.mse_loss(model(batch), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
with open("usage.json", "w") as file:
    json.dump(model.usage.counts.float().tolist(), file)
print("codes in use:", int((model.usage.counts > 1.0).sum()))
