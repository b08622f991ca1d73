"""Anomalies against a threshold that is moved a little after each batch.

expected: not faster with batch_size
danger: batch_size. Half as many moves: another threshold, other anomalies. The model's own outputs
are the same.
observed: 717 anomalies become 1,365.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
log = torch.randn(2400, 32) * torch.linspace(1, 3, 2400)[:, None]
autoencoder = nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 32)).eval()
threshold, found = 1.0, []
with torch.no_grad():
    for first, (x,) in enumerate(DataLoader(TensorDataset(log), batch_size=8)):
        error = (autoencoder(x) - x).pow(2).mean(1)
        found += [value for value in error.tolist() if value > 1.5 * threshold]
        threshold = 0.98 * threshold + 0.02 * error.mean().item()
        time.sleep(0.04)
print(f"{len(found)} anomalies, threshold {threshold:.3f}")
with open("anomalies.txt", "w") as file:
    file.writelines(f"{value:.4f}\n" for value in found)
