"""Augmentation with Python's `random`, which torch seeds in each worker.

expected: faster with dataloader_workers
observed: all passes over the data in 33.1 s instead of 41.8 s (1.26x), on two busy cores; exit
status 0.
"""

import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Sentences(Dataset):
    """Words are dropped and swapped at random."""

    def __init__(self, n=640, words=300):
        rng = random.Random(0)
        self.sentences = [[rng.randrange(2, words) for _ in range(20)] for _ in range(n)]

    def __len__(self):
        return len(self.sentences)

    def __getitem__(self, i):
        words = list(self.sentences[i])
        a, b = random.sample(range(20), 2)
        words[a], words[b] = words[b], words[a]
        words = [1 if random.random() < 0.1 else word for word in words]
        time.sleep(0.0018)
        return torch.tensor(words), sum(self.sentences[i]) % 2


random.seed(3)
torch.manual_seed(3)
model = nn.Sequential(nn.EmbeddingBag(300, 64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(10):
    for words, label in DataLoader(Sentences(), batch_size=16, shuffle=True):
        loss = nn.functional.cross_entropy(model(words), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("epoch", epoch, "loss", loss.item())
