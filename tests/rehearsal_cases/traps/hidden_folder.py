"""Scores go to a run folder of its own, `.runs/latest`, as several trackers do.

expected: not faster with batch_size
danger: batch_size. The score is the share of the batch.
observed: other scores in .runs/latest/scores.json.
"""

import json
import os
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(1600, 40)
model = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 1)).eval()
scores = []
with torch.no_grad():
    for (batch,) in DataLoader(TensorDataset(x), batch_size=8):
        scores += model(batch)[:, 0].softmax(0).tolist()
        time.sleep(0.01)
os.makedirs(".runs/latest", exist_ok=True)
with open(".runs/latest/scores.json", "w") as file:
    json.dump(scores, file)
print("done")
