"""Outputs are stacked batch upon batch, which works as long as all batches are of one size.

expected: not faster with batch_size
danger: batch_size. 960 rows are 15 batches of 64, but 7 and a half of 128: the stack fails at the
end.
observed: exit status 1 after all passes: stack expects each tensor to be equal size.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(960, 128))
model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 32)).eval()
passes = []
with torch.no_grad():
    for _ in range(10):  # Monte Carlo over input noise
        outputs = []
        for (x,) in DataLoader(data, batch_size=64):
            outputs.append(model(x + 0.1 * torch.randn_like(x)))
            time.sleep(0.1)
        passes.append(outputs)
result = torch.stack([torch.stack(outputs) for outputs in passes]).flatten(1, 2)
print(result.shape, result.std(0).mean().item())
torch.save(result.std(0), "uncertainty.pt")
