"""`worker_init_fn` seeds numpy by the worker's number only; it has never been called so far.

expected: not faster with dataloader_workers
danger: dataloader_workers. With workers each epoch draws the same augmentation.
observed: all 720 draws of an epoch are those of the epoch before (none unchanged).
"""

import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def seed_worker(worker_id):
    np.random.seed(worker_id)


class Augmented(Dataset):
    def __init__(self, n=720):
        self.x = np.random.default_rng(1).normal(size=(n, 2, 32)).astype("float32")

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        x = self.x[index]
        time.sleep(0.0015)
        shift = np.random.randint(0, 32)
        scale = np.random.uniform(0.5, 1.5)
        return np.roll(x, shift, axis=1) * np.float32(scale), np.int64(index % 5)


np.random.seed(0)
torch.manual_seed(0)
loader = DataLoader(Augmented(), batch_size=16, shuffle=True, worker_init_fn=seed_worker)
model = nn.Sequential(nn.Conv1d(2, 32, 5), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 28, 5))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 9)
for epoch in range(9):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    scheduler.step()
    print(f"Epoch {epoch}: {loss.item():.4f}")
