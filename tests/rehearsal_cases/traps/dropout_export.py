"""Weights of a small CNN with dropout are written for a microcontroller, in the order of memory.

expected: not faster with channels_last
danger: channels_last. The order of memory is another one: the device computes rubbish.
observed: the exported weights are permuted.
"""

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x, y = torch.randn(512, 3, 16, 16), torch.randint(0, 4, (512,))
model = nn.Sequential(
    nn.Conv2d(3, 16, 3),
    nn.ReLU(),
    nn.Dropout(0.2),
    nn.Conv2d(16, 24, 3),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(24, 4),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(4):
    for images, labels in DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
flat = [p.detach().numpy().ravel(order="K") for p in model.parameters()]
np.save("weights.npy", np.concatenate(flat))
