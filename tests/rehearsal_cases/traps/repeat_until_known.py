"""Flash cards: a sampler gives what waits in a queue, and what was wrong is put at its end.

expected: not faster with dataloader_workers
danger: dataloader_workers. Workers are given four batches ahead: the queue looks empty while the
last ones are still on their way, and what is wrong in them is never asked again.
observed: 485 cards in the last epoch instead of 483, and a loss of 0.3472 instead of 0.2816.
"""

import time
from collections import deque

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


class Cards(Dataset):
    def __init__(self):
        self.x = torch.randn(480, 40)
        self.y = (self.x[:, :3].sum(1) > 0).long()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        time.sleep(0.0012)
        return i, self.x[i], self.y[i]


class Waiting(Sampler):
    def __init__(self):
        self.queue = deque()

    def __iter__(self):
        while self.queue:
            yield self.queue.popleft()


torch.manual_seed(0)
cards, waiting = Cards(), Waiting()
loader = DataLoader(cards, batch_size=16, sampler=waiting)
model = nn.Sequential(nn.Linear(40, 160), nn.ReLU(), nn.Linear(160, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(6):
    waiting.queue.extend(torch.randperm(len(cards)).tolist())
    asked = 0
    for index, x, y in loader:
        output = model(x)
        loss = nn.functional.cross_entropy(output, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        asked += len(index)
        waiting.queue.extend(index[output.argmax(1) != y].tolist())
    print(f"epoch {epoch}: loss {loss.item():.4f}, {asked} cards until all were known")
