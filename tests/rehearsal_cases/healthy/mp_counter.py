"""Samples that were read are counted in shared memory, under a lock, for a progress line.

expected: right with dataloader_workers
The counter is shared by all processes.
observed: the same results from whole runs.
"""

import multiprocessing as mp
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Counted(Dataset):
    def __init__(self):
        self.read = mp.Value("q", 0)

    def __len__(self):
        return 480

    def __getitem__(self, i):
        time.sleep(0.001)
        with self.read.get_lock():
            self.read.value += 1
        return torch.randn(32, generator=torch.Generator().manual_seed(i)), i % 2


if __name__ == "__main__":
    torch.manual_seed(0)
    data = Counted()
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(data, batch_size=16, shuffle=True)
    for epoch in range(5):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}, {data.read.value} samples read")
