"""Settings of an epoch are handed to the data set in an environment variable.

expected: not faster with persistent_workers
danger: persistent_workers. A worker's environment is that of its start.
observed: the horizon stays at 4 while the log says 48; loss 0.036 instead of 0.066.
"""

import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Windows(Dataset):
    series = torch.sin(torch.arange(4000) / 7.0)

    def __len__(self):
        return 480

    def __getitem__(self, i):
        horizon = int(os.environ.get("HORIZON", "1"))
        time.sleep(0.002)
        start = i * 7
        return self.series[start : start + 48], self.series[start + 48 + horizon]


torch.manual_seed(2)
loader = DataLoader(Windows(), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(48, 200), nn.Tanh(), nn.Linear(200, 1))
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
for epoch in range(1, 13):
    os.environ["HORIZON"] = str(4 * epoch)
    for x, y in loader:
        loss = nn.functional.l1_loss(model(x)[:, 0], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"horizon {4 * epoch}: {loss.item():.4f}")
torch.save({"model": model.state_dict(), "horizon": 48}, "forecaster.pt")
