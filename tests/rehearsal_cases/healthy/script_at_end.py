"""Training, then `torch.jit.script` for the C++ service.

expected: right, with every knob: `torch.jit.script` must not meet what the harness puts around a
model
observed: exit status 0, unchanged and with one thread. It failed with "Unsupported annotation
collections.abc.Callable" until the harness stepped aside.
"""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=600)
args = parser.parse_args()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(128, 128) for _ in range(8))
        self.head = nn.Linear(128, 10)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x)) + x
        return self.head(x)


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for step in range(args.steps):
    x = torch.randn(256, 128)
    y = x[:, :10].argmax(1)
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(step, loss.item())
torch.jit.script(net.eval()).save("net.ts")
