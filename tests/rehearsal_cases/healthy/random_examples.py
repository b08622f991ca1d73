"""Random examples are logged in each epoch with Python's own generator; data are fixed.

expected: right with dataloader_workers
observed: the same results from whole runs.
"""

import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Words(Dataset):
    def __len__(self):
        return 480

    def __getitem__(self, i):
        time.sleep(0.001)
        return torch.randn(32, generator=torch.Generator().manual_seed(i)), i % 2


if __name__ == "__main__":
    random.seed(0)
    torch.manual_seed(0)
    data = Words()
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(data, batch_size=16, shuffle=True)
    for epoch in range(5):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        for i in random.sample(range(480), 3):
            x, y = data[i]
            with torch.no_grad():
                print(f"example {i}: label {y}, p = {model(x[None]).softmax(1)[0, 1]:.3f}")
        print(f"epoch {epoch}: {loss.item():.4f}")
