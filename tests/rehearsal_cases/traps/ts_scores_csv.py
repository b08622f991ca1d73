"""Anomaly scores of a time series, standardised within each batch, in a CSV with timestamps.

expected: not faster with batch_size
danger: batch_size. The z-score is of the batch: other values in every row.
observed: scores of 0.5568 become 0.5136, in rows that begin with a date and a time.
"""

import csv
import time
from datetime import datetime, timedelta

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
series = torch.randn(1600, 24).cumsum(1) * torch.linspace(0.2, 3, 1600)[:, None]
model = nn.Sequential(nn.Linear(24, 64), nn.Tanh(), nn.Linear(64, 24)).eval()
start, row = datetime(2024, 1, 1), 0
with torch.no_grad(), open("scores.csv", "w", newline="") as file:
    out = csv.writer(file)
    out.writerow(["timestamp", "score"])
    for (x,) in DataLoader(TensorDataset(series), batch_size=8):
        error = (model(x) - x).pow(2).mean(1)
        z = (error - error.mean()) / (error.std() + 1e-6)
        for value in z.tolist():
            out.writerow([start + timedelta(minutes=5 * row), f"{value:.4f}"])
            row += 1
        time.sleep(0.01)
print(row, "rows")
