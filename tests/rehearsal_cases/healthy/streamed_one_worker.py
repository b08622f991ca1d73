"""A stateless stream, which one worker may read ahead.

expected: faster with dataloader_workers (one worker is all that a stream may have)
observed: the knob itself leaves streams alone: no gain yet.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Lines(IterableDataset):
    def __iter__(self):
        for number in range(800):
            time.sleep(0.001)  # a line from the network
            x = torch.randn(32, generator=torch.Generator().manual_seed(number))
            yield x, x[:8].sum()


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 400), nn.ReLU(), nn.Linear(400, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(10):
    for x, y in DataLoader(Lines(), batch_size=16):
        loss = nn.functional.mse_loss(model(x)[:, 0], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.012)  # the renderer shows it
    print(f"epoch {epoch}: {loss.item():.4f}")
