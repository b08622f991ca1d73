"""Per-batch calibrated scores go to a pickle, as a dictionary by time stamp.

expected: not faster with batch_size
danger: batch_size. Calibrated to the batch's mean.
observed: other scores in a pickled dictionary whose keys are time stamps.
"""

import pickle
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(1600, 40)
model = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 1)).eval()
table = {}
with torch.no_grad():
    for ids, batch in DataLoader(TensorDataset(torch.arange(1600), x), batch_size=8):
        score = model(batch)[:, 0]
        score = (score - score.mean()) / score.std()
        for i, value in zip(ids.tolist(), score.tolist()):
            table[f"2024-03-{1 + i // 60:02d} 10:{i % 60:02d}:00"] = value
        time.sleep(0.01)
with open("scores.pkl", "wb") as file:
    pickle.dump(table, file)
