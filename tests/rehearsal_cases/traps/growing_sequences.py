"""Short sequences first: one thread is best for them, and slow for the long ones that follow.

expected: never faster with cpu_threads
danger: cpu_threads. One thread is no slower in the first epoch, and half as fast in all others.
"""

import time

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(6):
    start = time.time()
    length = 1 if epoch == 0 else 2048
    for step in range(400 if epoch == 0 else 60):
        x = torch.randn(length, 256)
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: length {length}, {loss.item():.4f}, {time.time() - start:.1f} s")
