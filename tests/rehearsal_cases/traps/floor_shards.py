"""A stream of ten files: each worker takes `files // workers` of them, in its turn.

expected: not faster with dataloader_workers
danger: dataloader_workers. Two workers take five files each. Four take two each, and the last two
files are never read: a fifth of the data, all of one year.
observed: 960 rows an epoch both times: the knob leaves a stream alone that has workers already.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Files(IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        info = get_worker_info()
        number, workers = (info.id, info.num_workers) if info else (0, 1)
        share = self.n // workers
        for file in range(number * share, (number + 1) * share):
            generator = torch.Generator().manual_seed(file)
            for row in torch.randn(96, 40, generator=generator) + (file > 7):
                time.sleep(0.002)
                yield row


torch.manual_seed(0)
loader = DataLoader(Files(10), batch_size=16, num_workers=2)
model = nn.Sequential(nn.Linear(40, 160), nn.ReLU(), nn.Linear(160, 40))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(6):
    rows = 0
    for x in loader:
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rows += len(x)
    print(f"epoch {epoch}: {loss.item():.4f} over {rows} rows")
