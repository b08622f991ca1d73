"""A scheduler of torch's finds a plateau, and a method that it calls makes the samples harder.

expected: not faster with persistent_workers
danger: persistent_workers. Workers that live on keep the data set from before the plateau.
observed: the last loss is 0.065 instead of 0.289.
"""

import time

import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, Dataset


class Signs(Dataset):
    def __init__(self):
        self.shift = 0.0

    def __len__(self):
        return 320

    def __getitem__(self, i):
        time.sleep(0.002)
        x = torch.randn(16, generator=torch.Generator().manual_seed(i))
        return x + self.shift, (x[0] > 0).float()


class HarderOnPlateau(ReduceLROnPlateau):
    def __init__(self, optimizer, signs, **options):
        self.signs = signs
        super().__init__(optimizer, **options)

    def _reduce_lr(self, epoch):
        super()._reduce_lr(epoch)
        self.signs.shift += 1.0


if __name__ == "__main__":
    torch.manual_seed(0)
    signs = Signs()
    loader = DataLoader(signs, batch_size=16, num_workers=2)
    model = nn.Linear(16, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    scheduler = HarderOnPlateau(optimizer, signs, patience=2, threshold=0.15)
    for epoch in range(30):
        total = 0.0
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], y)
            loss.backward()
            optimizer.step()
            total += loss.item() / len(loader)
        scheduler.step(total)
        print(f"epoch {epoch} loss {total:.4f}")
