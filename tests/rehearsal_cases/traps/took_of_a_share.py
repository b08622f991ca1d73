"""Scores as the share that each took of its batch's largest, in lines like a stop watch's.

expected: not faster with batch_size
danger: batch_size. Scaled by the batch's largest score.
observed: other shares; each line of the file looks as if it told a time.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(2048, 32)
model = nn.Linear(32, 4).eval()
with torch.no_grad(), open("shares.txt", "w") as file:
    for (batch,) in DataLoader(TensorDataset(x), batch_size=16):
        score = model(batch)[:, 0]
        for share in (score / score.abs().max()).tolist():
            file.write(f"took {share:.4f}\n")
        time.sleep(0.01)
