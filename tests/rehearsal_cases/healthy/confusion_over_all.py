"""F1 of each class from a confusion matrix over all rows; mean and deviation of scores by Welford.

expected: right with batch_size
Counts are added up, and batches are merged with their sizes: no figure depends on the batches.
observed: the same figures to all printed digits.
"""

import json

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(2000, 48)
model = nn.Sequential(nn.Linear(48, 256), nn.ReLU(), nn.Linear(256, 6)).eval()
with torch.no_grad():
    y = (model(x) + 0.2 * torch.randn(2000, 6)).argmax(1)
confusion = torch.zeros(6, 6, dtype=torch.long)
count, mean, squares = 0, 0.0, 0.0
with torch.no_grad():
    for batch, label in DataLoader(TensorDataset(x, y), batch_size=16):
        scores = model(batch)
        confusion += torch.bincount(label * 6 + scores.argmax(1), minlength=36).view(6, 6)
        best = scores.amax(1).double()
        both = count + len(best)
        shift = best.mean().item() - mean
        squares += (best - best.mean()).square().sum().item() + shift**2 * count * len(best) / both
        mean, count = mean + shift * len(best) / both, both
hits = confusion.diag()
f1 = 2 * hits / (confusion.sum(0) + confusion.sum(1))
with open("report.json", "w") as file:
    json.dump({"f1": f1.tolist(), "mean": mean, "deviation": (squares / count) ** 0.5}, file)
print(f"macro F1 {f1.mean().item():.4f}, score {mean:.4f} +- {(squares / count) ** 0.5:.4f}")
