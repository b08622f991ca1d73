"""Test-time adaptation: one step on the entropy of each batch before its labels are taken.

expected: not faster with batch_size
danger: batch_size. Fewer, larger steps: the adapted model is another one. It is training, though
the script calls it inference.
observed: labels [95, 75, 534, 955, 389] become [108, 88, 561, 874, 417].
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(30, 128), nn.LayerNorm(128), nn.ReLU(), nn.Linear(128, 5))
optimizer = torch.optim.SGD(model[1].parameters(), lr=0.05)
shifted = torch.randn(2048, 30) * 2 + 1
labels = []
for (x,) in DataLoader(TensorDataset(shifted), batch_size=8):
    log_p = model(x).log_softmax(1)
    entropy = -(log_p.exp() * log_p).sum(1).mean()
    optimizer.zero_grad()
    entropy.backward()
    optimizer.step()
    time.sleep(0.03)
    with torch.no_grad():
        labels += model(x).argmax(1).tolist()
counts = torch.bincount(torch.tensor(labels), minlength=5)
print("labels", counts.tolist())
torch.save({"labels": labels, "scale": model[1].weight.detach()}, "adapted.pt")
