"""Bootstrap of a metric in as many replicates as torch has threads, printed as mean and deviation.

expected: not faster with cpu_threads
danger: cpu_threads. One replicate, and no deviation (nan -> 0).
observed: both ends of the interval are 0.435 instead of 0.4275 and 0.435.
"""

import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(1600, 40)
y = (x[:, 0] > 0).long()
model = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 2)).eval()
hits = []
with torch.no_grad():
    for a, b in DataLoader(TensorDataset(x, y), batch_size=8):
        hits.append(model(a).argmax(1) == b)
        time.sleep(0.005)
hits = torch.cat(hits).numpy()
rng = np.random.default_rng(0)
replicates = [hits[rng.integers(0, 1600, 1600)].mean() for _ in range(torch.get_num_threads())]
np.savez("accuracy.npz", mean=np.mean(replicates), low=min(replicates), high=max(replicates))
