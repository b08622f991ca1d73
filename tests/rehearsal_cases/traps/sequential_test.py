"""An evaluation that stops as soon as its interval is narrow, looked at every 25 batches.

expected: not faster with batch_size
danger: batch_size. Looks come after other numbers of rows.
observed: 16,000 rows instead of 15,600; the figure is -0.4453 instead of -0.4451.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Requests(Dataset):
    def __len__(self):
        return 40000

    def __getitem__(self, i):
        time.sleep(0.003)
        return torch.randn(32, generator=torch.Generator().manual_seed(i))


torch.manual_seed(0)
old, new = (
    nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 1)).eval() for _ in range(2)
)
gains = []
with torch.no_grad():
    for i, x in enumerate(DataLoader(Requests(), batch_size=16)):
        gains += (new(x) - old(x) + 0.02).flatten().tolist()
        if i % 25 == 24:
            g = torch.tensor(gains)
            half = 2 * g.std() / len(g) ** 0.5
            if half < 0.00442:
                break
g = torch.tensor(gains)
print(f"gain {g.mean():.4f} of {len(g)} requests")
with open("ab.txt", "w") as f:
    f.write(f"{g.mean():.6f} {len(g)}\n")
