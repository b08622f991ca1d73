"""A trained classifier is evaluated: accuracy and mean confidence are printed and go to a file.

expected: right with batch_size
observed: the same accuracy of 0.9962 and the same file from whole runs.
"""

import json
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 5)).eval()
x = torch.randn(1600, 40)
with torch.no_grad():
    y = (model(x) + 0.002 * torch.randn(1600, 5)).argmax(1)
    right, sure = 0, 0.0
    for rows, labels in DataLoader(TensorDataset(x, y), batch_size=8):
        scores = (20 * model(rows)).softmax(1)
        right += (scores.argmax(1) == labels).sum().item()
        sure += scores.max(1).values.sum().item()
        time.sleep(0.01)
result = {"accuracy": right / len(x), "confidence": sure / len(x)}
print(f"accuracy {result['accuracy']:.4f}, confidence {result['confidence']:.4f}")
with open("metrics.json", "w") as file:
    json.dump(result, file)
