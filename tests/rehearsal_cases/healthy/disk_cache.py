"""Decoded samples are cached on the disk in the first epoch, a file each, and loaded afterwards.

expected: right with dataloader_workers
Each sample has a file of its own.
observed: the same results from whole runs.
"""

import os
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Cached(Dataset):
    def __len__(self):
        return 320

    def __getitem__(self, i):
        path = f"cache/{i}.npy"
        if not os.path.exists(path):
            time.sleep(0.003)
            x = torch.randn(32, generator=torch.Generator().manual_seed(i)).numpy()
            np.save(f"cache/tmp{i}.npy", x)
            os.replace(f"cache/tmp{i}.npy", path)
        return np.load(path), i % 2


if __name__ == "__main__":
    os.makedirs("cache", exist_ok=True)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(Cached(), batch_size=16)
    for epoch in range(5):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")
