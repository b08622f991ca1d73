"""Few-shot episodes: very short epochs with two workers, which are started each time.

expected: faster with persistent_workers
observed: all passes over the data in 7.3 s instead of 32.1 s (4.42x), on two busy cores; exit
status 0.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Episode(Dataset):
    def __init__(self):
        self.x = torch.randn(96, 30, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        time.sleep(0.001)
        return self.x[i] + 0.1 * torch.randn(30), i % 5


torch.manual_seed(0)
loader = DataLoader(Episode(), batch_size=12, shuffle=True, num_workers=2)
model = nn.Sequential(nn.Linear(30, 100), nn.ReLU(), nn.Linear(100, 5))
optimizer = torch.optim.Adam(model.parameters())
for episode in range(80):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if episode % 20 == 0:
        print(episode, loss.item())
