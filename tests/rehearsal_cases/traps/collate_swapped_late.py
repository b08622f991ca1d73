"""CutMix in the collate function; for the last three epochs the loader gets another function.

expected: not faster with persistent_workers
danger: persistent_workers. Workers that live on have the function that they were started with: all
epochs are mixed to the end.
observed: a loss of 0.9342 in the last epoch instead of 0.2880.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate


class Rows(Dataset):
    def __init__(self):
        draw = torch.Generator().manual_seed(0)
        self.x = torch.randn(480, 64, generator=draw)
        self.y = (self.x.view(480, 4, 16).mean(2).argmax(1)).long()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        time.sleep(0.002)
        return self.x[i], nn.functional.one_hot(self.y[i], 4).float()


def cutmix(samples):
    x, y = default_collate(samples)
    other, cut = torch.randperm(len(x)), int(torch.randint(1, 64, ()))
    x[:, :cut] = x[other, :cut]
    return x, cut / 64 * y[other] + (1 - cut / 64) * y


torch.manual_seed(0)
loader = DataLoader(Rows(), batch_size=16, shuffle=True, num_workers=2, collate_fn=cutmix)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(12):
    if epoch == 9:
        loader.collate_fn = default_collate
    total = 0.0
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch}: {total / len(loader):.4f}")
