"""Noise by difficulty: the training loop writes each sample's loss into the data set.

expected: not faster with dataloader_workers
danger: dataloader_workers. Workers see the losses of the start of an epoch; those that live on see
none at all.
observed: 439 different inputs of 960 in an epoch instead of 938: a sample that comes twice is the
same.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Adaptive(Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y
        self.loss = [1.0] * len(x)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        time.sleep(0.0012)
        # easy samples are made harder, in proportion to how well they are known
        return i, self.x[i] + (1 - min(1.0, self.loss[i])) * torch.sin(9 * self.x[i]), self.y[i]


torch.manual_seed(0)
x = torch.randn(512, 40)
y = (x[:, :3].sum(1) > 0).long()
data = Adaptive(x, y)
loader = DataLoader(data, batch_size=16, sampler=torch.utils.data.RandomSampler(data, True, 960))
model = nn.Sequential(nn.Linear(40, 160), nn.ReLU(), nn.Linear(160, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(7):
    for index, inputs, targets in loader:
        losses = nn.functional.cross_entropy(model(inputs), targets, reduction="none")
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
        for i, value in zip(index.tolist(), losses.tolist()):
            data.loss[i] = value
    print(f"epoch {epoch}: mean loss {sum(data.loss) / len(data.loss):.4f}")
