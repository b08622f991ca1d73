"""The data set learns mean and deviation while it is read; the checkpoint keeps them.

expected: not faster with dataloader_workers
danger: dataloader_workers. The script's own data set is never read: its statistics stay empty.
observed: normalization.json has mean 0 and deviation 0 instead of 20.018 and 0.932; losses are the
same to the last digit.
"""

import json
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Sensors(Dataset):
    def __init__(self, n):
        self.rows = np.random.default_rng(0).normal(20, 5, size=(n, 30)).astype("float32")
        self.count, self.mean, self.m2 = 0, 0.0, 0.0

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        time.sleep(0.001)
        self.count += 1
        delta = row.mean() - self.mean
        self.mean += delta / self.count  # Welford
        self.m2 += delta * (row.mean() - self.mean)
        return torch.from_numpy((row - 20) / 5), torch.tensor(float(row[0] > row[1]))

    @property
    def deviation(self):
        return (self.m2 / max(1, self.count - 1)) ** 0.5


torch.manual_seed(0)
sensors = Sensors(800)
loader = DataLoader(sensors, batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(30, 200), nn.ReLU(), nn.Linear(200, 1))
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(8):
    for x, y in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} {loss.item():.4f}")
statistics = {"mean": float(sensors.mean), "deviation": float(sensors.deviation)}
torch.save({"model": model.state_dict(), **statistics}, "sensors.pt")
with open("normalization.json", "w") as file:
    json.dump(statistics, file)
print("normalization", {name: round(value, 3) for name, value in statistics.items()})
