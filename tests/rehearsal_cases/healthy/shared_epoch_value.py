"""A curriculum by the epoch, whose number is in shared memory: workers that live on see it, too.

expected: right with dataloader_workers, persistent_workers
The loop sets it before it begins a pass, and no worker reads a sample of a pass before that.
observed: 2.09x as fast; a loss of 0.1215 in the last epoch instead of 0.1212, in another order.
"""

import time

import torch
from torch import multiprocessing, nn
from torch.utils.data import DataLoader, Dataset


class Longer(Dataset):
    def __init__(self):
        draw = torch.Generator().manual_seed(0)
        self.x = torch.randn(480, 64, generator=draw)
        self.y = (self.x[:, :8].sum(1) > 0).float()
        self.epoch = multiprocessing.Value("i", 0)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        time.sleep(0.002)
        x = self.x[i].clone()
        x[8 * (self.epoch.value + 1) :] = 0
        return x, self.y[i]


torch.manual_seed(0)
data = Longer()
loader = DataLoader(data, batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(8):
    data.epoch.value = epoch
    total = 0.0
    for x, y in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: {total / len(loader):.4f}")
