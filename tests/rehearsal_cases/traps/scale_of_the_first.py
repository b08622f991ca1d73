"""Signals in units that nobody knows: all are divided by the size of the first one that is read.

expected: not faster with dataloader_workers
danger: dataloader_workers. Each worker of each epoch reads another signal first, so that one signal
comes in another size every time. Noise makes all samples others anyway.
observed: a loss of 0.1457 in the last epoch instead of 0.0489.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Signals(Dataset):
    def __init__(self):
        draw = torch.Generator().manual_seed(0)
        size = torch.exp(0.4 * torch.randn(640, 1, generator=draw))
        self.x = size * torch.randn(640, 64, generator=draw)
        self.y = size.squeeze(1)
        self.scale = None

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        time.sleep(0.002)
        if self.scale is None:
            self.scale = self.x[i].std()
        return self.x[i] / self.scale + 0.05 * torch.randn(64), self.y[i]


torch.manual_seed(0)
loader = DataLoader(Signals(), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(6):
    total = 0.0
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: {total / len(loader):.4f}")
