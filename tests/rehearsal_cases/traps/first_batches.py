"""The first hundred batches of a large collection are enough for the estimate.

expected: not faster with batch_size
danger: batch_size. A hundred batches are twice as many rows: no time is saved, the sample differs.
observed: 4,800 rows instead of 2,400, in 26 s instead of 18; other means in a file of the same
size.
"""

import itertools
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Collection(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, i):
        time.sleep(0.001)
        return torch.full((50,), i / 1e4) + torch.randn(
            50, generator=torch.Generator().manual_seed(i)
        )


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(50, 400), nn.ReLU(), nn.Linear(400, 8)).eval()
total, rows = torch.zeros(8), 0
with torch.no_grad():
    for x in itertools.islice(DataLoader(Collection(), batch_size=8), 300):
        total += model(x).sum(0)
        rows += len(x)
        time.sleep(0.03)
print(rows, (total / rows).tolist())
torch.save(total / rows, "mean_features.pt")
