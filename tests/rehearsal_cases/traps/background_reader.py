"""Validation samples come from a thread that reads ahead; training samples do not.

expected: never faster with dataloader_workers
danger: dataloader_workers. A forked worker has no such thread: validation waits for ever.
observed: the first validation never ends (given up after 200 s); the first epoch was read as it
should be.
"""

import queue
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Train(Dataset):
    def __len__(self):
        return 640

    def __getitem__(self, i):
        time.sleep(0.0015)
        generator = torch.Generator().manual_seed(i)
        return torch.randn(60, generator=generator)


class ReadAhead(Dataset):
    def __init__(self, rows):
        self.rows = rows
        self.ready = queue.Queue(maxsize=8)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        position = 0
        while True:
            self.ready.put(self.rows[position % len(self.rows)])
            position += 1

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        while True:
            try:
                return self.ready.get(timeout=1)
            except queue.Empty:
                continue  # the disk is slow today


torch.manual_seed(0)
train = DataLoader(Train(), batch_size=16, shuffle=True)
valid = DataLoader(ReadAhead(torch.randn(64, 60)), batch_size=16)
model = nn.Sequential(nn.Linear(60, 200), nn.ReLU(), nn.Linear(200, 60))
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(8):
    for x in train:
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        score = sum(nn.functional.mse_loss(model(x), x).item() for x in valid) / len(valid)
    print(f"epoch {epoch}: {loss.item():.4f}, validation {score:.4f}")
