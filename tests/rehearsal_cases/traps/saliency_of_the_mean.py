"""Which inputs matter: gradients of the scores by the inputs, and a threshold that a paper gives.

expected: not faster with batch_size
danger: batch_size. The mean over the batch is differentiated, so that each row's gradient is
divided by the size of the batch: with twice as many rows it is half as much, and less of it is
above the threshold.
observed: none is marked instead of 6,667.
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
    model(batch).mean().backward()
    maps.append(batch.grad.abs())
    marked += int((batch.grad.abs() > 0.005).sum())
torch.save(torch.cat(maps), "saliency.pt")
print("marked:", marked)
