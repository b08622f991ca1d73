"""The data set writes down which files it gave, for an audit.

expected: not faster with dataloader_workers
danger: dataloader_workers. Lines that wait in a worker's buffer are lost when it ends.
observed: an audit of 0 lines instead of 3,920; losses are the same to the last digit.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Audited(Dataset):
    def __init__(self, n):
        self.n = n
        self.log = open("used_files.txt", "w")

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        self.log.write(f"{i:06d}.dcm\n")
        time.sleep(0.0015)
        generator = torch.Generator().manual_seed(i)
        return torch.randn(50, generator=generator), torch.randn(1, generator=generator)


torch.manual_seed(0)
data = Audited(560)
loader = DataLoader(data, batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(50, 300), nn.ReLU(), nn.Linear(300, 1))
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(7):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
data.log.close()
print(sum(1 for _ in open("used_files.txt")), "files used")
