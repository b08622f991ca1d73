"""A temperature in the model is a Python number that falls each epoch; a compiled model is guarded
by its value.

expected: never faster with compile
danger: compile. It is compiled again for each new value, and gives up after eight.
observed: 14 epochs of 0.1 s each take 47, 14 and 21 s at first and more at each depth: 194 s
instead of 16 s (busy cores).
"""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Quantizer(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.encode = nn.Linear(24, 64)
        self.code = nn.Linear(64, 64)
        self.decode = nn.Linear(64, 24)
        self.temperature = 2.0
        self.depth = depth

    def forward(self, x):
        h = torch.tanh(self.encode(x))
        for _ in range(self.depth):
            h = F.softmax(self.code(h) / self.temperature, dim=-1) + h
        return self.decode(h)


torch.manual_seed(0)
x = torch.randn(1280, 24)
model = Quantizer(depth=1)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
for epoch in range(14):
    model.temperature = 2.0 * 0.8**epoch
    model.depth = 1 + epoch // 2  # and the model gets deeper
    for (batch,) in DataLoader(TensorDataset(x), batch_size=32, shuffle=True):
        loss = F.mse_loss(model(batch), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: temperature {model.temperature:.3f}, loss {loss.item():.5f}")
