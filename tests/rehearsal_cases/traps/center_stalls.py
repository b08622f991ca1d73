"""Deep SVDD: a centre of the features begins with the first batch and follows slowly.

expected: not faster with bf16_autocast
danger: bf16_autocast. The centre is made from the first features, in their type. In bfloat16 a
change by a thousandth is rounded away: the centre stays for ever where the first batch put it.
observed: a mean distance of 0.8829 from the centre instead of 0.5358.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 128))
        self.head = nn.Linear(128, 32)
        self.center = None

    def forward(self, x):
        features = self.body(x)
        if self.training:
            with torch.no_grad():
                mean = features.mean(0)
                if self.center is None:
                    self.center = mean
                self.center.lerp_(mean, 0.001)
        return self.head(features), (features - self.center).square().mean(1)


torch.manual_seed(0)
x = torch.randn(3200, 32) + 1
model = Encoder()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
loader = DataLoader(TensorDataset(x), batch_size=16, shuffle=True)
for epoch in range(12):
    model.train()
    for (batch,) in loader:
        rebuilt, _ = model(batch)
        loss = nn.functional.mse_loss(rebuilt, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
model.eval()
with torch.no_grad():
    _, score = model(x[:512])
torch.save(score, "scores.pt")
print(f"mean distance from the centre: {score.mean().item():.4f}")
