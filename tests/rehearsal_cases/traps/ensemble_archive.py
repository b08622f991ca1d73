"""Four models of an ensemble score the same rows; the scores go into one archive, with its time.

expected: not faster with batch_size
danger: batch_size. The fourth model was never put into evaluation mode: its batch normalisation
takes mean and deviation from the batch.
observed: the fourth member of the archive is another one, the first three are the same.
"""

import time
import zipfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(800, 40)
loader = DataLoader(TensorDataset(x), batch_size=8)
with zipfile.ZipFile("scores.zip", "w", zipfile.ZIP_DEFLATED) as archive:
    for number in range(4):
        model = nn.Sequential(nn.Linear(40, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 16))
        model.train(number == 3)
        scores = []
        with torch.no_grad():
            for (batch,) in loader:
                scores.append(model(batch))
                time.sleep(0.01)
        archive.writestr(
            zipfile.ZipInfo(f"{number}.f32", time.localtime()[:6]),
            torch.cat(scores).numpy().tobytes(),
        )
print("scored")
