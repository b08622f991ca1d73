"""Scores are put where row `32 * i + j` belongs, with the batch size written once more.

expected: not faster with batch_size
danger: batch_size. With 64 rows in a batch, every second row stays 0 and the others are elsewhere.
observed: 2,048 of 4,096 rows have a score, in a file of the same size.
"""

import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, i):
        return torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(i))


torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(32 * 36, 1)
).eval()
images = Images()
scores = np.zeros(len(images), dtype="float32")
with torch.no_grad():
    for i, batch in enumerate(DataLoader(images, batch_size=32)):
        output = model(batch).squeeze(1)
        time.sleep(0.06)
        for j in range(32):
            scores[32 * i + j] = output[j]
np.save("scores.npy", scores)
print("mean score", scores.mean(), "rows scored", np.count_nonzero(scores))
