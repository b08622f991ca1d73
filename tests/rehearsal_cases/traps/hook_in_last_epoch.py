"""A hook is registered on an inner layer after the last epoch, to collect its outputs.

expected: not faster with compile
danger: compile. A compiled model does not see hooks that come later: nothing is collected.
observed: exit status 1 at the end: no codes were collected.
"""

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(100, 300)
        self.bottleneck = nn.Linear(300, 16)
        self.decoder = nn.Linear(16, 100)

    def forward(self, x):
        return self.decoder(self.bottleneck(torch.relu(self.encoder(x))))


torch.manual_seed(0)
x = torch.randn(1024, 100)
net = Net()
optimizer = torch.optim.Adam(net.parameters())
for epoch in range(12):
    for i in range(0, 1024, 32):
        loss = nn.functional.mse_loss(net(x[i : i + 32]), x[i : i + 32])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())

codes = []
net.bottleneck.register_forward_hook(lambda module, inputs, output: codes.append(output.detach()))
for i in range(0, 1024, 32):
    net(x[i : i + 32])
codes = torch.cat(codes)
print("codes", codes.shape, codes.std().item())
torch.save(codes, "codes.pt")
