"""A stream is shuffled through a buffer, of which what is left at the end of an epoch is not given.

expected: not faster with persistent_workers
danger: persistent_workers. A new worker begins with an empty buffer. One that lives on has what was
left: later epochs are as much longer, and begin with samples of the end of the one before.
observed: 1,200 samples in each epoch but the first instead of 960.
"""

import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Shuffled(IterableDataset):
    def __init__(self):
        draw = torch.Generator().manual_seed(0)
        self.x = torch.randn(1200, 32, generator=draw)
        self.y = (self.x[:, :4].sum(1) > 0).float()
        self.buffer = []

    def __iter__(self):
        info = get_worker_info()
        for i in range(info.id, len(self.x), info.num_workers):
            time.sleep(0.001)
            self.buffer.append(i)
            if len(self.buffer) > 120:
                k = self.buffer.pop(random.randrange(len(self.buffer)))
                yield self.x[k], self.y[k]


torch.manual_seed(0)
loader = DataLoader(Shuffled(), batch_size=16, num_workers=2)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(10):
    total = seen = 0
    for x, y in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(x)
        seen += len(x)
    print(f"epoch {epoch}: {total / seen:.4f} of {seen} samples")
torch.save(model.state_dict(), "model.pt")
