"""Semi-supervised: what the model is sure of becomes a label, by probabilities in float32.

expected: right with bf16_autocast
Logits are made float32 before their sigmoid, so that the smallest step between numbers is that of
float32 in both.
observed: a last loss of 0.0008 both times; 1633 samples without a label used instead of 1636.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(48, 96), nn.ReLU(), nn.Linear(96, 1))

    def forward(self, x):
        p = torch.sigmoid(self.body(x).float()).squeeze(1)
        eps = torch.finfo(p.dtype).eps
        return p.clamp(eps, 1 - eps)


def drawn(n):
    y = (torch.rand(n) < 0.5).float()
    return torch.randn(n, 48) + 0.45 * (2 * y - 1)[:, None] * direction, y


torch.manual_seed(0)
direction = torch.randn(48).sign()
x, y = drawn(640)
free, _ = drawn(3200)
model = Classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
labelled = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
unlabelled = DataLoader(TensorDataset(free), batch_size=80, shuffle=True)
for epoch in range(16):
    used = 0
    for (few, target), (many,) in zip(labelled, unlabelled):
        loss = (model(few) - target).square().mean()
        p = model(many)
        sure = (p > 0.995) | (p < 0.005)
        if sure.any():
            loss = loss + (p - p.detach().round())[sure].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        used += int(sure.sum())
    print(f"epoch {epoch}: {loss.item():.4f}, {used} without a label were used")
torch.save(model.state_dict(), "model.pt")
