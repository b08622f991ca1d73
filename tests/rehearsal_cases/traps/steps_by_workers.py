"""The learning rate falls after some epochs, counted in steps that the loader's workers share.

expected: not faster with dataloader_workers
danger: dataloader_workers. The formula is from a stream, of which each worker gives its share; here
two workers make an epoch no shorter, and the rate falls when half of the steps are done.
observed: a loss of 0.0733 in the last epoch instead of 0.0072.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Series(Dataset):
    def __init__(self):
        draw = torch.Generator().manual_seed(0)
        self.x = torch.randn(480, 48, generator=draw)
        self.y = torch.sin(3 * self.x[:, :3].sum(1, keepdim=True))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        time.sleep(0.001)
        return self.x[i], self.y[i]


torch.manual_seed(0)
dataset = Series()
loader = DataLoader(dataset, batch_size=16, shuffle=True)
per_epoch = len(dataset) // (16 * max(1, loader.num_workers))
model = nn.Sequential(nn.Linear(48, 256), nn.ReLU(), nn.Linear(256, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 12 * per_epoch, gamma=0.01)
for epoch in range(14):
    total = 0.0
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        total += loss.item()
    print(f"epoch {epoch}: {total / len(loader):.4f}")
torch.save(model.state_dict(), "model.pt")
