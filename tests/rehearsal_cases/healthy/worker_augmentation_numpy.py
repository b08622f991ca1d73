"""Augmentation with numpy's global generator, which torch seeds in each worker.

expected: faster with dataloader_workers
observed: all passes over the data in 27.5 s instead of 39.9 s (1.45x), on two busy cores; exit
status 0.
"""

import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Curves(Dataset):
    def __init__(self, n):
        self.curves = np.random.RandomState(0).randn(n, 120).astype(np.float32).cumsum(1) / 10

    def __len__(self):
        return len(self.curves)

    def __getitem__(self, idx):
        curve = self.curves[idx]
        time.sleep(0.002)
        curve = curve * np.random.uniform(0.8, 1.2) + np.random.normal(0, 0.05, curve.shape)
        return curve.astype(np.float32), np.float32(curve[-1] > curve[0])


def main():
    np.random.seed(7)
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(120, 128), nn.ReLU(), nn.Linear(128, 1))
    optim = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_fn = nn.BCEWithLogitsLoss()
    train_loader = DataLoader(Curves(640), batch_size=16, shuffle=True)
    for epoch in range(1, 11):
        running_loss = 0.0
        for data, target in train_loader:
            optim.zero_grad()
            loss = loss_fn(model(data).squeeze(1), target)
            loss.backward()
            optim.step()
            running_loss += loss.item()
        print(f"Train Epoch: {epoch} Loss: {running_loss / len(train_loader):.6f}")


if __name__ == "__main__":
    main()
