"""Each sample has a crop for good, from a `random.Random(index)`, and its split by its name's hash.

expected: faster with dataloader_workers
observed: 1.12x as fast, on two busy cores; the same losses.
"""

import hashlib
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def is_held_out(name):
    return int(hashlib.md5(name.encode()).hexdigest(), 16) % 10 == 0


class Crops(Dataset):
    def __init__(self, held_out):
        names = [f"series_{i}" for i in range(480)]
        self.numbers = [i for i, name in enumerate(names) if is_held_out(name) == held_out]

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, position):
        i = self.numbers[position]
        time.sleep(0.002)
        series = torch.randn(96, generator=torch.Generator().manual_seed(i)).cumsum(0) / 5
        start = random.Random(i).randrange(32)
        return series[start : start + 64]


torch.manual_seed(0)
train = DataLoader(Crops(False), batch_size=16, shuffle=True)
held_out = DataLoader(Crops(True), batch_size=16)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(6):
    for x in train:
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        error = sum(nn.functional.mse_loss(model(x), x).item() * len(x) for x in held_out)
    print(f"epoch {epoch}: {loss.item():.4f}, held out {error / len(held_out.dataset):.4f}")
