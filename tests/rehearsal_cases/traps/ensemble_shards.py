"""Two models of an ensemble each export embeddings in shards of 25 batches; the loader gives 100.

expected: not faster with batch_size
danger: batch_size. Of 13 batches of 64 no shard of 25 is ever written (at 2: 50 batches make 2 of
4 shards, all rows are there but shards have other sizes).
observed: 2 shards for each model instead of 4, of other sizes.
"""

import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(800, 40)
loader = DataLoader(TensorDataset(x), batch_size=8)
for number in range(2):
    model = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 16)).eval()
    shard, count = [], 0
    with torch.no_grad():
        for (batch,) in loader:
            shard.append(model(batch).numpy())
            if len(shard) == 25:
                np.save(f"model{number}-{count}.npy", np.concatenate(shard))
                shard, count = [], count + 1
            time.sleep(0.01)
print("exported")
