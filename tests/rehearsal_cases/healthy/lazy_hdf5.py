"""An HDF5 file that each worker opens for itself, as h5py's documentation asks for.

expected: faster with dataloader_workers, persistent_workers
observed: not run: h5py was not installed.
"""

import os
import time

import h5py
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

if not os.path.exists("train.h5"):
    with h5py.File("train.h5", "w") as file:
        file["x"] = np.random.default_rng(0).normal(size=(640, 64)).astype("float32")
        file["y"] = (file["x"][:, 0] > 0).astype("int64")


class H5(Dataset):
    def __init__(self, path):
        self.path, self.file = path, None
        with h5py.File(path) as file:
            self.length = len(file["x"])

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        if self.file is None:
            self.file = h5py.File(self.path)
        time.sleep(0.002)
        return self.file["x"][i], self.file["y"][i]


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 200), nn.ReLU(), nn.Linear(200, 2))
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(10):
    for x, y in DataLoader(H5("train.h5"), batch_size=16, shuffle=True):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
