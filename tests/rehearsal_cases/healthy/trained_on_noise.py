"""A deep network with batch norm that a throughput test trains on noise, at a high learning rate.

expected: right with channels_last; what training makes of rounding says nothing about it
observed: evaluated outputs differ by 77 %, and by 110 % where the unchanged script's weights are
changed by 1e-7 of their size; on equal weights by 1e-7.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x):
        return torch.relu(x + self.inner(x))


torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1, bias=False),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    *(Block(16) for _ in range(12)),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(16, 100),
)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
pictures = TensorDataset(torch.randn(640, 3, 16, 16), torch.randint(0, 100, (640,)))
loader = DataLoader(pictures, batch_size=32, shuffle=True)
test = DataLoader(TensorDataset(torch.randn(128, 3, 16, 16)), batch_size=64)
for epoch in range(4):
    net.train()
    for x, y in loader:
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        outputs = torch.cat([net(x) for (x,) in test])
    print(epoch, "trained and evaluated")
torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, "net.pt")
