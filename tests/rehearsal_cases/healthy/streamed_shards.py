"""An `IterableDataset` that shards by worker, beside a map-style one for validation; it has two
workers already, and keeping them saves their start in each of the short epochs.

expected: faster with persistent_workers
observed: all passes over the data in 8.8 s instead of 16.2 s (1.85x), on two busy cores; exit
status 0.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info


class Shards(IterableDataset):
    def __init__(self, shards=8, rows=16):
        self.shards, self.rows = shards, rows

    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for shard in range(first, self.shards, step):
            generator = torch.Generator().manual_seed(shard)
            for _ in range(self.rows):
                time.sleep(0.0005)
                x = torch.randn(30, generator=generator)
                yield x, x.sum()


def main():
    torch.manual_seed(0)
    train = DataLoader(Shards(), batch_size=8, num_workers=2)
    valid = DataLoader(TensorDataset(torch.randn(32, 30)), batch_size=32)
    model = nn.Sequential(nn.Linear(30, 100), nn.ReLU(), nn.Linear(100, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(60):
        for x, y in train:
            loss = nn.functional.mse_loss(model(x)[:, 0], y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            score = sum((model(x)[:, 0] - x.sum(1)).pow(2).mean().item() for (x,) in valid)
        if epoch % 10 == 0:
            print(f"epoch {epoch}: {loss.item():.4f}, validation {score:.4f}")


if __name__ == "__main__":
    main()
