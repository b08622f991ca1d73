"""Records of a binary file, by `seek` and `read` on one handle that is opened at the start.

expected: not faster with dataloader_workers
danger: dataloader_workers. All processes share the file's offset: what is read is another record.
observed: 773 to 779 different rows instead of 800 in an epoch, only 460 of them as in the epoch
before (800 unchanged); later a short read ends the script with status 1.
"""

import os
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PATH, WIDTH, COUNT = "records.bin", 64, 800
if not os.path.exists(PATH):
    rows = np.random.default_rng(0).normal(size=(COUNT, WIDTH)).astype("float32")
    rows[:, 0] = np.arange(COUNT)
    rows.tofile(PATH)


class Records(Dataset):
    def __init__(self, path):
        self.handle = open(path, "rb", buffering=0)

    def __len__(self):
        return COUNT

    def __getitem__(self, i):
        self.handle.seek(4 * WIDTH * i)
        time.sleep(0.001)  # the disk turns
        row = np.frombuffer(self.handle.read(4 * WIDTH), dtype="float32").copy()
        return torch.from_numpy(row[1:]), torch.tensor(float(i % 2))


torch.manual_seed(0)
records = Records(PATH)
loader = DataLoader(records, batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(WIDTH - 1, 256), nn.ReLU(), nn.Linear(256, 1))
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(8):
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            reference = torch.stack([records[i][0] for i in range(4)])  # always the same four
            with torch.no_grad():
                drift = model(reference).mean().item()
    print(f"epoch {epoch}: loss {loss.item():.4f}, reference output {drift:.4f}")
