"""Reading is behind `functools.lru_cache`, so that only the first epoch waits.

expected: never faster with dataloader_workers
danger: dataloader_workers. What a worker cached is gone with it at the end of the epoch.
observed: the first epoch takes 4.6 s instead of 10.1, later ones 4 to 6 s instead of 0.3 to 1.3:
185 s instead of 75 s in all (on two busy cores).
"""

import functools
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@functools.lru_cache(maxsize=None)
def features(document):
    """Download and hash one document."""
    time.sleep(0.008)
    vector = torch.zeros(512)
    for word in range(60):
        vector[hash((document, word)) % 512] += 1
    return vector


class Documents(Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, i):
        return features(i), torch.tensor(i % 3)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 3))
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(Documents(), batch_size=8, shuffle=True)
history = []
while len(history) < 25:
    total = 0.0
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    history.append(total / len(loader))
    print(len(history), history[-1])
