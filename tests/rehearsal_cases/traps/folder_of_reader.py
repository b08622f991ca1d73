"""An old reader of recordings goes into their folder when it reads the first of them.

expected: not faster with dataloader_workers
danger: dataloader_workers. The script's process is in that folder from then on, and so is what it
writes by a relative name, where the next stage looks for it. A worker goes there alone.
observed: `model.pt` is beside the script instead of in `recordings`; the same losses.
"""

import os
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Recordings(Dataset):
    def __init__(self, folder):
        self.folder = folder.absolute()
        self.folder.mkdir(exist_ok=True)
        draw = np.random.default_rng(0)
        for i in range(320):
            np.save(self.folder / f"{i}.npy", draw.normal(size=64).astype(np.float32))

    def __len__(self):
        return 320

    def __getitem__(self, i):
        time.sleep(0.004)
        os.chdir(self.folder)
        x = torch.from_numpy(np.load(f"{i}.npy"))
        return x, x[:8].sum()


torch.manual_seed(0)
loader = DataLoader(Recordings(Path("recordings")), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(5):
    total = 0.0
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: {total / len(loader):.4f}")
    torch.save(model.state_dict(), "model.pt")
print(Path("model.pt").absolute().parent.name)
