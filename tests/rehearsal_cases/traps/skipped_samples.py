"""Broken files are counted by the data set, and the run ends with an error if they are too many.

expected: not faster with dataloader_workers
danger: dataloader_workers. The counter of the script's process stays 0, and the division at the end
fails.
observed: ZeroDivisionError and exit status 1 after all epochs, whose losses are the same to the
last digit.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Scans(Dataset):
    def __init__(self, n=600):
        self.n = n
        self.good = self.broken = 0

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        time.sleep(0.0015)
        if i % 37 == 0:
            self.broken += 1
            i += 1
        else:
            self.good += 1
        generator = torch.Generator().manual_seed(i)
        return torch.randn(1, 16, 16, generator=generator), i % 2


torch.manual_seed(0)
scans = Scans()
model = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 196, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(10):
    for x, y in DataLoader(scans, batch_size=12, shuffle=True):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
share = scans.broken / (scans.good + scans.broken)
print(f"{share:.1%} of all reads met a broken file")
assert share < 0.1, "check the disk"
