"""Recordings are decoded by a program that knows files only: each goes through one scratch file.

expected: not faster with dataloader_workers
danger: dataloader_workers. Two workers write the same file, and each reads what the other has put
there in the meantime: a recording gets another one's samples, with its own label.
observed: exit status 1, as a file was read that was half written.
"""

import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SCRATCH = Path("decoded.raw")


def decode(packed):
    """Stands for `ffmpeg -y -i - decoded.raw`, which takes a while."""
    SCRATCH.write_bytes(packed)
    time.sleep(0.002)
    return np.frombuffer(SCRATCH.read_bytes(), dtype=np.float32)


class Recordings(Dataset):
    def __init__(self):
        draw = np.random.default_rng(0)
        self.labels = draw.integers(0, 4, 600)
        waves = draw.normal(size=(600, 128)) + 0.4 * np.sin(
            np.arange(128) * (self.labels[:, None] + 1) / 9
        )
        self.packed = [wave.astype(np.float32).tobytes() for wave in waves]

    def __len__(self):
        return len(self.packed)

    def __getitem__(self, i):
        return torch.from_numpy(decode(self.packed[i]).copy()), int(self.labels[i])


torch.manual_seed(0)
loader = DataLoader(Recordings(), batch_size=20, shuffle=True)
model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(6):
    total = 0.0
    for wave, label in loader:
        loss = nn.functional.cross_entropy(model(wave), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: {total / len(loader):.4f}")
