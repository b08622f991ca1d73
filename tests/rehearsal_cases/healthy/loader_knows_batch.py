"""Scores are put where row `i * loader.batch_size + j` belongs: the loader is asked for its size.

expected: right with batch_size
observed: the same mean and the same best row; 1.4 times as long, on two busy cores.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(3000, 64)
layers = [nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)]
model = nn.Sequential(*layers).eval()
loader = DataLoader(TensorDataset(x), batch_size=16)
scores = torch.zeros(len(x))
with torch.no_grad():
    for i, (batch,) in enumerate(loader):
        start = i * loader.batch_size
        scores[start : start + len(batch)] = model(batch).squeeze(1)
torch.save(scores, "scores.pt")
print(f"mean {scores.mean().item():.4f}, best row {scores.argmax().item()}")
