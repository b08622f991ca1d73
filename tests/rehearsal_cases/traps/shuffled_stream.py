"""A stream with a shuffle buffer and a `random.Random` of its own.

expected: not faster with dataloader_workers (one worker is all that a stream may have)
danger: dataloader_workers. Each epoch's worker starts from the same generator: one order for all.
observed: with `num_workers=1` set by hand each epoch has the order of the first; the knob itself
leaves streams alone.
"""

import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Shuffled(IterableDataset):
    def __init__(self, source, size, seed=0):
        self.source, self.size = source, size
        self.random = random.Random(seed)

    def __iter__(self):
        buffer = []
        for item in self.source:
            time.sleep(0.001)
            if len(buffer) < self.size:
                buffer.append(item)
                continue
            place = self.random.randrange(self.size)
            yield buffer[place]
            buffer[place] = item
        self.random.shuffle(buffer)
        yield from buffer


torch.manual_seed(0)
source = list(zip(torch.randn(800, 20), torch.arange(800) % 4))
loader = DataLoader(Shuffled(source, size=200), batch_size=16)
model = nn.Sequential(nn.Linear(20, 300), nn.ReLU(), nn.Linear(300, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(8):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.01)  # shows the picture
    print(epoch, f"{loss.item():.4f}")
