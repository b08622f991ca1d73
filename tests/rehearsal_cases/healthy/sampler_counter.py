"""A sampler of the script's own counts its epochs and shuffles by them, in the process of the
script.

expected: right with dataloader_workers
Samplers are not copied.
observed: the same results from whole runs.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


class EpochSampler(Sampler):
    def __init__(self, n):
        self.n, self.epoch, self.served = n, 0, 0

    def __iter__(self):
        g = torch.Generator().manual_seed(self.epoch)
        self.epoch += 1
        for i in torch.randperm(self.n, generator=g).tolist():
            self.served += 1
            yield i

    def __len__(self):
        return self.n


class Slow(Dataset):
    def __len__(self):
        return 480

    def __getitem__(self, i):
        time.sleep(0.001)
        return torch.randn(32, generator=torch.Generator().manual_seed(i)), i % 2


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(Slow(), batch_size=16, sampler=EpochSampler(480))
    for epoch in range(5):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")
