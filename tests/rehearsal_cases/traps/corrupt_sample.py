"""Corrupt samples are told by an error with their number, which the loop notes before it goes on.

expected: not faster with dataloader_workers
danger: dataloader_workers. Of an error that takes two arguments torch passes on the text alone, as
a RuntimeError, which the loop does not catch.
observed: the script ends with that error at sample 1203 of the first pass, instead of skipping 3.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class CorruptSample(Exception):
    def __init__(self, index, reason):
        super().__init__(f"sample {index}: {reason}")
        self.index = index


class Scans(Dataset):
    def __len__(self):
        return 1600

    def __getitem__(self, i):
        time.sleep(0.0015)
        if i in (1203, 1377, 1542):
            raise CorruptSample(i, "truncated file")
        return torch.randn(32, generator=torch.Generator().manual_seed(i)), i % 2


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(Scans(), batch_size=16)
    skipped = set()
    for epoch in range(4):
        batches = iter(loader)
        while True:
            try:
                x, y = next(batches)
            except StopIteration:
                break
            except CorruptSample as error:
                skipped.add(error.index)
                continue
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")
    print("skipped", len(skipped))
