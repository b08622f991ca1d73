"""Review scores, standardised per batch, under the key "sentiment" of a JSON file.

expected: not faster with batch_size
danger: batch_size. The scale is the batch's.
observed: other scores, under a key that has "time" in it.
"""

import json
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
tokens = torch.randint(0, 2000, (1600, 20))
model = nn.Sequential(
    nn.EmbeddingBag(2000, 32), nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)
).eval()
sentiment = []
with torch.inference_mode():
    for (x,) in DataLoader(TensorDataset(tokens), batch_size=8):
        score = model(x)[:, 0]
        score = torch.sigmoid((score - score.mean()) / score.std())
        sentiment += [round(v, 4) for v in score.tolist()]
        time.sleep(0.01)
with open("reviews.json", "w") as file:
    json.dump({"model": "bag-v1", "sentiment": sentiment}, file)
