"""Cross validation with five folds, a subset and a loader for each.

expected: right with dataloader_workers
observed: the same results from whole runs.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


class Table(Dataset):
    def __init__(self):
        self.x = torch.randn(500, 20, generator=torch.Generator().manual_seed(0))
        self.y = (self.x[:, :3].sum(1) > 0).long()

    def __len__(self):
        return 500

    def __getitem__(self, i):
        time.sleep(0.0005)
        return self.x[i], self.y[i]


if __name__ == "__main__":
    torch.manual_seed(0)
    data, scores = Table(), []
    folds = torch.randperm(500).chunk(5)
    for k in range(5):
        train = Subset(data, torch.cat([f for n, f in enumerate(folds) if n != k]).tolist())
        test = Subset(data, folds[k].tolist())
        model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 2))
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        for epoch in range(3):
            for x, y in DataLoader(train, batch_size=20, shuffle=True):
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        right = 0
        with torch.no_grad():
            for x, y in DataLoader(test, batch_size=20):
                right += (model(x).argmax(1) == y).sum().item()
        scores.append(right / len(test))
        print(f"fold {k}: {scores[-1]:.3f}")
    print(f"mean {sum(scores) / 5:.4f}")
