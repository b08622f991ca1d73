"""A scorer is trained with dropout; the best of near duplicates is chosen, in a table of fixed
width.

expected: not faster with bf16_autocast
danger: bf16_autocast. Of near duplicates in 8 bits most winners are others.
observed: with the model in bfloat16 ranks are 0, 0, 0 instead of 98, 97, 12.
"""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(2048, 128)
y = 5 + 0.1 * x[:, :1]
model = nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 1))
nn.init.constant_(model[3].bias, 5.0)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
for epoch in range(3):
    for a, b in DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True):
        loss = nn.functional.mse_loss(model(a), b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
model.eval()
winners = []
with torch.no_grad():
    for query in range(12):
        g = torch.Generator().manual_seed(query)
        copies = torch.randn(128, generator=g) + 0.02 * torch.randn(100, 128, generator=g)
        winners.append(int(model(copies)[:, 0].argmax()))
np.savetxt("winners.txt", winners, fmt="%03d")
