"""Hard negatives are mined every 3 epochs into a file, which workers load when they start.

expected: not faster with persistent_workers
danger: persistent_workers. Workers that live on have loaded the first file: the negatives are
those of the start in all epochs.
observed: the loss of epoch 3 is 0.001 instead of 0.40.
"""

import numpy as np
import torch
from torch import nn
from torch.nn.functional import normalize
from torch.utils.data import DataLoader, Dataset


class Triplets(Dataset):
    def __init__(self, x, y):
        self.x, self.y, self.negatives = x, y, None

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        if self.negatives is None:  # once a worker
            self.negatives = np.load("negatives.npy")
        return self.x[i], self.x[(i + 10) % len(self)], self.x[self.negatives[i]]


if __name__ == "__main__":
    torch.manual_seed(0)
    y = torch.arange(400) % 10
    x = torch.randn(10, 32)[y] + 1.2 * torch.randn(400, 32)
    np.save("negatives.npy", (np.arange(400) + 1) % 400)
    loader = DataLoader(Triplets(x, y), batch_size=16, shuffle=True, num_workers=2)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(9):
        if epoch and epoch % 3 == 0:
            with torch.no_grad():
                e = normalize(model(x), dim=1)
                s = e @ e.T - 9 * (y[:, None] == y[None])
            np.save("negatives.npy", s.argmax(1).numpy())
        total = 0.0
        for a, p, n in loader:
            a, p, n = (normalize(model(each), dim=1) for each in (a, p, n))
            loss = (0.3 + (a * n).sum(1) - (a * p).sum(1)).relu().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: {total / len(loader):.4f}")
