"""When parcels will arrive: a date and a time of day for each, in a table.

expected: not faster with batch_size
danger: batch_size. Delays are relative to the longest of their batch.
observed: 600 of 1,200 moments are others; the table holds nothing else.
"""

import csv
import time
from datetime import datetime, timedelta

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LEFT = datetime(2024, 3, 5, 6, 0, 0)


class Parcels(Dataset):
    def __init__(self):
        self.x = torch.randn(1200, 12, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        time.sleep(0.001)
        return i, self.x[i]


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 1), nn.Softplus()).eval()
arrivals = {}
with torch.no_grad():
    for ids, x in DataLoader(Parcels(), batch_size=8):
        hours = model(x).squeeze(1)
        hours = 48 * hours / hours.max()
        for i, h in zip(ids.tolist(), hours.tolist()):
            arrivals[f"parcel-{i}"] = (LEFT + timedelta(hours=h)).strftime("%Y-%m-%d %H:%M:%S")
with open("arrivals.csv", "w", newline="") as f:
    csv.writer(f).writerows([("parcel", "arrives_at"), *arrivals.items()])
