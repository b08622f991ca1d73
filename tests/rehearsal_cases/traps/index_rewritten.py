"""Lengths of documents are found as they are read, and kept in an index that a next stage needs.

expected: not faster with dataloader_workers
danger: dataloader_workers. Each document is added by reading the whole index and writing it anew.
Two workers lose each other's documents, or meet a file that is half written.
observed: exit status 1, as a half-written index was read: `JSONDecodeError`.
"""

import json
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

INDEX = Path("lengths.json")


class Documents(Dataset):
    def __init__(self):
        draw = torch.Generator().manual_seed(0)
        self.lengths = torch.randint(20, 200, (800,), generator=draw).tolist()
        self.vectors = torch.randn(800, 64, generator=draw)

    def __len__(self):
        return len(self.vectors)

    def __getitem__(self, i):
        time.sleep(0.002)
        index = json.loads(INDEX.read_text())
        index[str(i)] = self.lengths[i]
        INDEX.write_text(json.dumps(index))
        return self.vectors[i]


INDEX.write_text("{}")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8)).eval()
topics = []
with torch.no_grad():
    for vectors in DataLoader(Documents(), batch_size=16):
        topics += model(vectors).argmax(1).tolist()
Path("topics.json").write_text(json.dumps(topics))
print("documents:", len(topics))
