"""A map-style front of a stream: `__getitem__` ignores its index and takes the next record.

expected: not faster with dataloader_workers
danger: dataloader_workers. Each worker has a copy of the stream.
observed: an epoch's 4,000 rows have 2,016 different samples instead of 4,000, and each later epoch
has the same ones.
"""

import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
random.seed(0)


def click_log(seed):
    """Events as they come from the log server, for ever."""
    generator = random.Random(seed)
    user = 0
    while True:
        user += 1
        features = [generator.gauss(0, 1) for _ in range(15)] + [user / 1e5]
        yield features, float(sum(features[:4]) > 0)


class Clicks(Dataset):
    def __init__(self, n=4000):
        self.n = n
        self.log = click_log(seed=3)

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        features, clicked = next(self.log)
        time.sleep(0.0015)  # the log server is in another building
        return torch.tensor(features), torch.tensor(clicked)


model = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.BCEWithLogitsLoss()
loader = DataLoader(Clicks(), batch_size=32)

for epoch in range(3):
    total = 0.0
    for features, clicked in loader:
        loss = criterion(model(features).squeeze(1), clicked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: loss {total / len(loader):.4f}")
torch.save(model.state_dict(), "clicks.pt")
