"""In-batch retrieval that finds nearly all: the share of those found is printed.

expected: not faster with batch_size
danger: batch_size. Twice as many texts to be mistaken for: of 1,600 rows five are not found, and
not three. The share itself differs by one part in 800.
observed: 0.9969 instead of 0.9981 is printed.
"""

import time

import torch
from torch import nn
from torch.nn.functional import normalize
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
a = torch.randn(1600, 64)
b = a + 0.75 * torch.randn(1600, 64)
encoder = nn.Linear(64, 24).eval()
found = 0
with torch.no_grad():
    for x, y in DataLoader(TensorDataset(a, b), batch_size=8):
        logits = (
            normalize(encoder(x), dim=1) @ normalize(y @ encoder.weight.T + encoder.bias, dim=1).T
        )
        found += (logits.argmax(1) == torch.arange(len(x))).sum().item()
        time.sleep(0.01)
print(f"recall@1 = {found / 1600:.4f}")
