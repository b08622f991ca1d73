"""Long pre-training, then many short rounds, in a script that starts its processes by `spawn`.

expected: never faster with dataloader_workers
danger: dataloader_workers. Each pass starts two interpreters that import torch, so each of the
short rounds takes seconds.
observed: some 300 s instead of 44 s (busy cores); the loss is the same.
"""

import time

import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


class Volumes(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        time.sleep(0.0015)
        return torch.randn(48, generator=torch.Generator().manual_seed(i))


def train(model, optimizer, loader):
    for x in loader:
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


if __name__ == "__main__":
    mp.set_start_method("spawn")  # CUDA in the workers of the exporter
    torch.manual_seed(0)
    volumes = Volumes(8000)
    model = nn.Sequential(nn.Linear(48, 200), nn.ReLU(), nn.Linear(200, 48))
    optimizer = torch.optim.Adam(model.parameters())
    loss = train(model, optimizer, DataLoader(volumes, batch_size=16, shuffle=True))
    print(f"pre-training: {loss:.4f}")
    for round in range(12):  # active learning: the 64 most uncertain ones
        chosen = Subset(volumes, range(64 * round, 64 * round + 64))
        loss = train(model, optimizer, DataLoader(chosen, batch_size=16, shuffle=True))
        print(f"round {round}: {loss:.4f}")
