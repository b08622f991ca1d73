"""Everything in a `TensorDataset`; many small operations, for which two threads are too many.

expected: faster with cpu_threads or compile, or no gain
observed: all passes in 10.9 s for twelve epochs, and 176 s for four with two threads that other
programs disturbed; no gain is known on idle cores.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(4096, 96)
y = (x[:, :6].sum(1) > 0).long()
model = nn.Sequential(nn.Linear(96, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU())
model.append(nn.Linear(400, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(12):
    for inputs, labels in DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
