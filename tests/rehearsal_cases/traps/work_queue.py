"""Each item is taken from a shuffled list of jobs, which is refilled when it is empty.

expected: not faster with dataloader_workers
danger: dataloader_workers. Each worker empties its own copy of the list.
observed: 1,187 to 1,215 different tiles of 1,600 in an epoch; loss 0.0026 instead of 0.0004 after
six.
"""

import random
import time

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

random.seed(11)
torch.manual_seed(11)


class Jobs(Dataset):
    """Without replacement: every tile once before any comes again."""

    def __init__(self, tiles):
        self.tiles = tiles
        self.todo = []

    def __len__(self):
        return len(self.tiles)

    def __getitem__(self, _):
        if not self.todo:
            self.todo = list(range(len(self.tiles)))
            random.shuffle(self.todo)
        tile = self.tiles[self.todo.pop()]
        time.sleep(0.0015)
        return tile, tile.mean()


tiles = torch.randn(1600, 1, 12, 12)
net = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(1600, 1))
optim = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
loader = DataLoader(Jobs(tiles), batch_size=16)
for epoch in range(6):
    for x, y in loader:
        optim.zero_grad()
        loss = ((net(x).squeeze(1) - y) ** 2).mean()
        loss.backward()
        optim.step()
    print("epoch", epoch, "loss", round(loss.item(), 5))
