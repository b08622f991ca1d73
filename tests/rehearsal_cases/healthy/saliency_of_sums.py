"""Which inputs matter: gradients of each row's own score by its inputs.

expected: right with batch_size
The sum over the batch is differentiated, in which each row's gradient is its own.
observed: the same 6,667 are marked.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(1600, 48)
model = nn.Sequential(nn.Linear(48, 256), nn.Tanh(), nn.Linear(256, 1)).eval()
maps, marked = [], 0
for (batch,) in DataLoader(TensorDataset(x), batch_size=16):
    batch.requires_grad_(True)
    model(batch).sum().backward()
    maps.append(batch.grad.abs())
    marked += int((batch.grad.abs() > 0.08).sum())
torch.save(torch.cat(maps), "saliency.pt")
print("marked:", marked)
