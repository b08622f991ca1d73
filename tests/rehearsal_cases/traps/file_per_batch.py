"""Features are written to one file a batch, whose names a second script counts on.

expected: not faster with batch_size
danger: batch_size. 150 files become 75, and the second script looks for part_0149.npy.
observed: 75 files instead of 150.
"""

import os
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
os.makedirs("features", exist_ok=True)
model = nn.Sequential(nn.Linear(40, 500), nn.ReLU(), nn.Linear(500, 100)).eval()
loader = DataLoader(TensorDataset(torch.randn(3000, 40)), batch_size=20)
with torch.no_grad():
    for number, (x,) in enumerate(loader):
        np.save(f"features/part_{number:04d}.npy", model(x).numpy())
        time.sleep(0.06)
print(len(os.listdir("features")), "parts")
