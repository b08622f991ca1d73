"""A query encoder and the same encoder on documents, in turn, as one shared tower; scores by pair.

expected: right with batch_size
Each pair's score is its own.
observed: the same results from whole runs.
"""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
a = torch.randn(1600, 64)
b = a + 1.2 * torch.randn(1600, 64)
encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 24)).eval()
with torch.no_grad(), open("pairs.csv", "w") as file:
    for ids, x, y in DataLoader(TensorDataset(torch.arange(1600), a, b), batch_size=8):
        score = nn.functional.cosine_similarity(encoder(x), encoder(y))
        for i, value in zip(ids.tolist(), score.tolist()):
            file.write(f"{i},{value:.3f}\n")
        time.sleep(0.01)
