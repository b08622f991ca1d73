"""A chain of pointwise operators through memory, cured by `torch.compile`."""

import torch

WANT = {"fusion"}
DEVICE, SIZE = ("cuda", 1 << 26) if torch.cuda.is_available() else ("cpu", 1 << 12)


def activation(x, scale):
    for _ in range(6):
        x = x * torch.sigmoid(x * scale) + 0.1
        x = torch.clamp(x, -4.0, 4.0)
    return x


def steps(cured):
    function = torch.compile(activation) if cured else activation
    weight = torch.nn.Parameter(torch.ones(1, device=DEVICE))
    optimizer = torch.optim.SGD([weight], lr=1e-6)
    x = torch.randn(SIZE, device=DEVICE)
    while True:
        with torch.no_grad():
            result = function(x, 1.5)
        optimizer.zero_grad()
        (weight * result[:1024].mean()).sum().backward()
        optimizer.step()
        yield


if __name__ == "__main__":
    for _ in steps(cured=False):
        pass
