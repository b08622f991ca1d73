"""Rows of a database; each process opens a connection of its own when it first reads.

expected: faster with dataloader_workers, persistent_workers
observed: all passes over the data in 22.8 s instead of 43.3 s (1.90x), on two busy cores; exit
status 0.
"""

import os
import sqlite3
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PATH = "rows.db"
if not os.path.exists(PATH):
    rows = np.random.default_rng(0).normal(size=(640, 50)).astype("float32")
    with sqlite3.connect(PATH) as database:
        database.execute("create table samples (id integer primary key, x blob, y integer)")
        database.executemany(
            "insert into samples values (?, ?, ?)",
            [(i, row.tobytes(), int(row[:3].sum() > 0)) for i, row in enumerate(rows)],
        )


class Rows(Dataset):
    def __init__(self, path):
        self.path = path
        self.database = None

    def __len__(self):
        return 640

    def __getitem__(self, i):
        if self.database is None:
            self.database = sqlite3.connect(self.path)
        time.sleep(0.002)
        query = "select x, y from samples where id = ?"
        x, y = self.database.execute(query, (i,)).fetchone()
        return torch.frombuffer(bytearray(x), dtype=torch.float32), y


torch.manual_seed(0)
loader = DataLoader(Rows(PATH), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(50, 200), nn.ReLU(), nn.Linear(200, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(10):
    right = 0
    for x, y in loader:
        scores = model(x)
        loss = nn.functional.cross_entropy(scores, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right += (scores.argmax(1) == y).sum().item()
    print(f"epoch {epoch}: loss {loss.item():.4f}, accuracy {right / 640:.3f}")
