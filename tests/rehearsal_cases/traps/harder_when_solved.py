"""Once an epoch's loss is below 0.001, noise is added to the samples, by `setattr` in one line.

expected: not faster with persistent_workers
danger: persistent_workers. Workers that live on have a copy of the class from before.
observed: the last loss is 0.000 instead of 3.488.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Sums(Dataset):
    noise = 0.0

    def __len__(self):
        return 320

    def __getitem__(self, i):
        time.sleep(0.002)
        generator = torch.Generator().manual_seed(i)
        x = torch.randn(16, generator=generator)
        return x + Sums.noise * torch.randn(16, generator=generator), x.sum()


if __name__ == "__main__":
    torch.manual_seed(0)
    loader = DataLoader(Sums(), batch_size=16, num_workers=2)
    model = nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(24):
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = (model(x)[:, 0] - y).square().mean()
            loss.backward()
            optimizer.step()
            total += loss.item() / len(loader)
        [setattr(Sums, "noise", 0.5) for _ in (1,) if total < 1e-3]
        print(f"epoch {epoch} loss {total:.4f}")
