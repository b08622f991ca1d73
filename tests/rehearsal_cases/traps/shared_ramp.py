"""Noise that grows with each step: the workers read its size from memory that they share.

expected: not faster with prefetch_factor
danger: prefetch_factor. Workers read the noise when they make a batch, not when it is used: with
twelve batches in advance instead of two a sample has the noise of long before.
observed: not yet run.
"""

import multiprocessing
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset):
    def __init__(self, size):
        self.x = torch.randn(320, 60)
        self.size = size

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        time.sleep(0.001)
        generator = torch.Generator().manual_seed(i)
        return self.x[i], self.x[i] + self.size.value * torch.randn(60, generator=generator)


torch.manual_seed(0)
size = multiprocessing.Value("d", 0.0)
loader = DataLoader(Noisy(size), batch_size=16, num_workers=1)
model = nn.Sequential(nn.Linear(60, 200), nn.ReLU(), nn.Linear(200, 60))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
step = 0
for epoch in range(8):
    for target, x in loader:
        loss = nn.functional.mse_loss(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % 40 == 0:
            size.value += 0.25
    print(f"epoch {epoch}: {loss.item():.4f}")
