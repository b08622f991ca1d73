"""Frames are exported for labelling; the rank of uncertainty is in the file's name.

expected: not faster with batch_size
danger: batch_size. Ranks are within the batch, and reach 15 instead of 7.
observed: frame00000_rank14.npy instead of frame00000_rank07.npy.
"""

import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
frames = torch.randn(800, 30)
model = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 5)).eval()
Path("label").mkdir(exist_ok=True)
with torch.no_grad():
    for ids, x in DataLoader(TensorDataset(torch.arange(800), frames), batch_size=8):
        p = model(x).softmax(1)
        ranks = (-(p * p.log()).sum(1)).argsort(descending=True).argsort()
        for i, rank, frame in zip(ids.tolist(), ranks.tolist(), x.numpy()):
            np.save(f"label/frame{i:05d}_rank{rank:02d}.npy", frame)
        time.sleep(0.01)
print("exported", len(frames))
