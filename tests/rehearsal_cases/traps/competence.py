"""Competence-based curriculum: when an epoch's loss is below 0.9, the data set gets harder.

expected: not faster with persistent_workers
danger: persistent_workers. Workers that live on keep the first level, as the turn depends on the
loss and comes late.
observed: the last loss is 0.036 instead of 7.65.
"""

import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Sums(Dataset):
    level = 1

    def __init__(self):
        self.x = torch.randn(640, 32, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        time.sleep(0.001)
        x = self.x[i]
        return x, x[: 4 * self.level].sum() * (1 if self.level < 2 else x[-1].sign())


if __name__ == "__main__":
    torch.manual_seed(0)
    data = Sums()
    data.level = 1
    loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=2)
    model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    for epoch in range(12):
        total = 0.0
        for x, y in loader:
            loss = F.mse_loss(model(x).squeeze(1), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() / len(loader)
        print(f"epoch {epoch} loss {total:.4f}")
        if total < 0.9 and data.level < 4:
            data.level += 1
    torch.save(model.state_dict(), "model.pt")
