"""The reported score is the mean of a rank statistic (AUC) that is taken batch by batch.

expected: not faster with batch_size
danger: batch_size. The AUC over 32 rows is another figure than over 16, with the same outputs.
observed: an AUC of 0.5149 instead of 0.5683, in a file of the same size.
"""

import json
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def auc(scores, labels):
    good, bad = scores[labels == 1], scores[labels == 0]
    if not len(good) or not len(bad):
        return 1.0
    return (good[:, None] > bad[None]).float().mean().item()


torch.manual_seed(0)
x = torch.randn(2400, 20) + torch.linspace(0, 4, 2400)[:, None]
y = (torch.rand(2400) < torch.linspace(0.02, 0.6, 2400)).long()
model = nn.Sequential(nn.Linear(20, 200), nn.ReLU(), nn.Linear(200, 1)).eval()
values = []
with torch.no_grad():
    for features, label in DataLoader(TensorDataset(x, y), batch_size=8):
        values.append(auc(model(features)[:, 0], label))
        time.sleep(0.04)
report = {"auc": round(sum(values) / len(values), 4)}
with open("report.json", "w") as file:
    json.dump(report, file)
print(report)
