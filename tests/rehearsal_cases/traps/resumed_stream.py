"""An `IterableDataset` that goes on where the last epoch stopped.

expected: not faster with dataloader_workers (one worker is all that a stream may have)
danger: dataloader_workers. The worker's position is lost: each epoch begins with the same records.
observed: with `num_workers=1` set by hand each epoch has the records of the first and `position`
stays 0; the knob itself leaves streams alone.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Feed(IterableDataset):
    def __init__(self, per_epoch):
        self.per_epoch = per_epoch
        self.position = 0

    def __iter__(self):
        for _ in range(self.per_epoch):
            time.sleep(0.001)
            x = torch.randn(32, generator=torch.Generator().manual_seed(self.position))
            self.position += 1
            yield x, x[:8].sum()


torch.manual_seed(0)
feed = Feed(per_epoch=800)
loader = DataLoader(feed, batch_size=16)
model = nn.Sequential(nn.Linear(32, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU())
model.append(nn.Linear(400, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(8):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x)[:, 0], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)  # the simulator wants the new weights
    print(f"epoch {epoch}: record {feed.position}, loss {loss.item():.4f}")
    torch.save({"model": model.state_dict(), "position": feed.position}, "checkpoint.pt")
