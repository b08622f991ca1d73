"""Semi-supervised: what the model is sure of becomes a label; probabilities are kept from 0 and 1.

expected: not faster with bf16_autocast
danger: bf16_autocast. They are kept away by `torch.finfo(p.dtype).eps`, which is 0.0078 in
bfloat16: none is above 0.9922, the model is never sure, and what has no label is never used.
observed: 0 samples without a label are used in the last epoch instead of 1636.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(48, 96), nn.ReLU(), nn.Linear(96, 1))

    def forward(self, x):
        p = torch.sigmoid(self.body(x)).squeeze(1)
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
