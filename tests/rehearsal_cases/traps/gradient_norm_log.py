"""The norm of all gradients, from `p.grad.view(-1)`, is logged at the end of each epoch.

expected: not faster with channels_last
danger: channels_last. Gradients have the layout of their weights: the first log line fails.
observed: exit status 1 after the first epoch.
"""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x):
        return x + torch.relu(self.norm(self.conv(x)))


def gradient_norm(model):
    return torch.cat([p.grad.view(-1) for p in model.parameters() if p.grad is not None]).norm()


if __name__ == "__main__":
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(3, 48, 3), Block(48), Block(48), nn.Flatten(), nn.Linear(9408, 5)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = TensorDataset(torch.randn(640, 3, 16, 16), torch.randint(0, 5, (640,)))
    for epoch in range(4):
        for x, y in DataLoader(data, batch_size=16, shuffle=True):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}, gradient {gradient_norm(model):.3f}")
