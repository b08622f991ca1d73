"""An RNN on windows of a series, with the state detached between the batches of an epoch.

expected: faster with dataloader_workers
observed: all passes over the data in 12.3 s instead of 22.3 s (1.82x), on two busy cores; exit
status 0.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Series(Dataset):
    """Batch b, row r: window b of series r, so that the state can be carried on."""

    def __init__(self, series=10, windows=48, length=16):
        grid = torch.arange(windows * length + 1) / 5.0
        self.data = torch.stack([torch.sin(grid * (1 + r / 7)) for r in range(series)])
        self.series, self.windows, self.length = series, windows, length

    def __len__(self):
        return self.series * self.windows

    def __getitem__(self, i):
        time.sleep(0.003)
        window, row = divmod(i, self.series)
        part = self.data[row, window * self.length : (window + 1) * self.length + 1, None]
        return part[:-1], part[1:]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(1, 24, batch_first=True)
        self.out = nn.Linear(24, 1)

    def forward(self, x, h):
        y, h = self.rnn(x, h)
        return self.out(y), h


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
loader = DataLoader(Series(), batch_size=10)
for epoch in range(9):
    state = torch.zeros(1, 10, 24)
    for x, y in loader:
        prediction, state = net(x, state.detach())
        loss = nn.functional.mse_loss(prediction, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
