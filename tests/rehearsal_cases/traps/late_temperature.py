"""Contrastive training whose temperature falls each epoch: logits grow from 1 to 200.

expected: not faster with bf16_autocast
danger: bf16_autocast. The first losses agree; late ones are decided by the third digit of a cosine.
observed: losses agree at first, and are 5.50 instead of 2.07 in the last epoch.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = nn.Sequential(nn.Linear(128, 768), nn.ReLU(), nn.Dropout(0.1))
        self.out = nn.Linear(768, 64)
        self.scale = 1.0

    def forward(self, a, b):
        a = F.normalize(self.out(self.left(a)), dim=1)
        b = F.normalize(self.out(self.left(b)), dim=1)
        return self.scale * (a @ b.T)


torch.manual_seed(0)
base = torch.randn(16, 128)
model = Pair()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
for epoch in range(8):
    model.scale = min(2000.0, 5.0**epoch)
    correct = 0
    for step in range(40):
        generator = torch.Generator().manual_seed(1000 * epoch + step)
        rows = base[torch.randint(0, 16, (96,), generator=generator)]
        rows = rows + 0.02 * torch.randn(96, 128, generator=generator)
        logits = model(rows, rows + 0.004 * torch.randn(96, 128, generator=generator))
        loss = F.cross_entropy(logits, torch.arange(96))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        correct += (logits.argmax(1) == torch.arange(96)).sum().item()
    print(f"epoch {epoch}: scale {model.scale:.0f}, {loss.item():.4f}, right {correct / 3840:.3f}")
