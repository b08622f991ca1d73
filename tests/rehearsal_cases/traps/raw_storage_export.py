"""Weights are written byte by byte from their storage, for a runtime in C.

expected: not faster with channels_last
danger: channels_last. The file has the same size and another order of the weights.
observed: other bytes in a file of the same size, 158,992 bytes.
"""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 64, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(64, 64, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(2),
    nn.Flatten(),
    nn.Linear(256, 4),
)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
pictures = torch.randn(400, 3, 20, 20)
classes = torch.randint(0, 4, (400,))
for epoch in range(5):
    for first in range(0, 400, 16):
        loss = nn.functional.cross_entropy(
            net(pictures[first : first + 16]), classes[first : first + 16]
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
with open("weights.bin", "wb") as file:
    for parameter in net.parameters():
        file.write(bytes(parameter.detach().untyped_storage()))
print("weights.bin written")
