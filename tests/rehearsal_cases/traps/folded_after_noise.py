"""Batch norm is folded into weights that are taken in the order of memory, once they are trained.

expected: not faster with channels_last
danger: channels_last. The deployed network has its weights in other places. Training on noise
makes any rounding another network, so that a difference of the outputs is no surprise.
observed: the deployed network's outputs differ from the network's own by 75 %; unchanged, by 2e-7.
"""

import copy

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


def folded(conv, norm):
    """Return a convolution that does what the two do in evaluation mode."""
    scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    weight = conv.weight.detach()
    flat = torch.as_strided(weight, (weight.numel(),), (1,))  # as the file for the runtime has it
    result = nn.Conv2d(conv.in_channels, conv.out_channels, 3, padding=1)
    result.weight = nn.Parameter(flat.view(weight.shape) * scale.view(-1, 1, 1, 1))
    result.bias = nn.Parameter(norm.bias - norm.running_mean * scale)
    return result


def for_deployment(net):
    """Fold each batch norm into the convolution before it."""
    net = copy.deepcopy(net).eval()
    for layers in [net, *(each.inner for each in net if isinstance(each, Block))]:
        for place in range(len(layers) - 1):
            if isinstance(layers[place], nn.Conv2d):
                layers[place] = folded(layers[place], layers[place + 1])
                layers[place + 1] = nn.Identity()
    return net


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
    print(epoch, "trained")
deployed = for_deployment(net)
with torch.no_grad():
    outputs = torch.cat([deployed(x) for (x,) in test])
torch.save(outputs, "scores.pt")
