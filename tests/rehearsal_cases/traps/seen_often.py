"""Parts of a sample are cut out once this process has shown it more than three times.

expected: not faster with persistent_workers
danger: persistent_workers. Workers that are made anew begin to count at 0 in each epoch, so that
nothing was ever cut out. Those that live on count over epochs, and begin with it after some.
observed: a loss of 0.3948 in the last epoch instead of 0.0253.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Signals(Dataset):
    def __init__(self):
        self.x = torch.randn(96, 60)
        self.shown = [0] * len(self.x)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        time.sleep(0.0005)
        x = self.x[i].clone()
        if self.shown[i] > 3:
            x[10:50] = 0
        self.shown[i] += 1
        return self.x[i], x


torch.manual_seed(0)
loader = DataLoader(Signals(), batch_size=16, shuffle=True, num_workers=2)
model = nn.Sequential(nn.Linear(60, 200), nn.ReLU(), nn.Linear(200, 60))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(40):
    total = 0.0
    for target, x in loader:
        loss = nn.functional.mse_loss(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: {total / len(loader):.4f}")
