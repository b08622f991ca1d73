"""Active learning: the pool shrinks by the least certain rows after each round, by new subsets.

expected: right with dataloader_workers
Each round has a loader of its own.
observed: the same results from whole runs.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


class Pool(Dataset):
    def __init__(self):
        self.x = torch.randn(600, 20, generator=torch.Generator().manual_seed(0))
        self.y = (self.x[:, :3].sum(1) > 0).long()

    def __len__(self):
        return 600

    def __getitem__(self, i):
        time.sleep(0.0005)
        return self.x[i], self.y[i]


if __name__ == "__main__":
    torch.manual_seed(0)
    pool, known = Pool(), list(range(80))
    for round_ in range(4):
        model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        loader = DataLoader(Subset(pool, known), batch_size=16, shuffle=True)
        for epoch in range(3):
            for x, y in loader:
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        rest = sorted(set(range(600)) - set(known))
        with torch.no_grad():
            p = torch.cat(
                [
                    model(x).softmax(1)[:, 1]
                    for x, _ in DataLoader(Subset(pool, rest), batch_size=50)
                ]
            )
        known += [rest[i] for i in (p - 0.5).abs().argsort()[:40].tolist()]
        print(f"round {round_}: {len(known)} known, loss {loss.item():.4f}")
